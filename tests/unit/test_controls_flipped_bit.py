"""The control that plants a flipped bit: it passes where compare works, and fails where compare does not."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.unit.fixtures.cells import flip_bit, write_cell
from workflow_scripts import control_flipped_bit
from workflow_scripts.control_flipped_bit import control
from workflow_scripts.errors import AuditError, CorruptDumpError
from workflow_scripts.tensors import dump

ROOT = Path(__file__).parents[2]
TABLE = np.random.default_rng(2).integers(0, 1 << 16, (4, 6), dtype=np.uint16)
SHA256 = int(hashlib.sha256(TABLE.tobytes()).hexdigest(), 16)


def test_the_planted_bit_is_found_at_its_place(tmp_path):
    baseline = write_cell(tmp_path, {"out_0": TABLE})
    output = tmp_path / "controls" / "flipped_bit.json"
    before = (baseline.parent / "out_0.safetensors").read_bytes()
    command = [
        sys.executable,
        "-P",
        "-m",
        "workflow_scripts.control_flipped_bit",
        "--manifest",
        str(baseline),
    ]
    subprocess.run(
        [*command, "--tensor", "out_0", "--output", str(output)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    found = json.loads(output.read_text())
    flat, bit = (SHA256 >> 8) % 24, SHA256 % 16
    assert {key: found[key] for key in ("schema", "control", "status", "reason", "tensor")} == {
        "schema": "bitwise-reuse-audit/control/1",
        "control": "flipped_bit",
        "status": "passed",
        "reason": None,
        "tensor": "out_0",
    }
    assert (found["implementation"], found["case"]) == ("diffusers[plain]", 4)
    assert (found["flat_index"], found["bit"]) == (flat, bit)
    assert (found["found"]["equal"], found["found"]["differ"]) == (False, 1)
    first = found["found"]["detail"]["first"]
    old = int(TABLE.reshape(-1)[flat])
    assert (first["index"], first["a_bits"], first["b_bits"]) == (
        [flat // 6, flat % 6],
        f"0x{old:04x}",
        f"0x{old ^ 1 << bit:04x}",
    )
    assert [path.name for path in output.parent.iterdir()] == ["flipped_bit.json"]
    assert (baseline.parent / "out_0.safetensors").read_bytes() == before


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.float16])
def test_it_passes_for_every_dtype_and_place(tmp_path, dtype):
    for seed in range(20):
        array = np.random.default_rng(seed).integers(0, 100, (3, 2, 5)).astype(dtype)
        baseline = write_cell(tmp_path / str(seed), {"grad_w": array})
        found = control(baseline, "grad_w", tmp_path / "copy", "C")
        assert (found["status"], found["reason"]) == ("passed", None)


def altered(**changes):
    """compare_tensors with an answer that is wrong in one way, for tensors of other digests."""
    honest = control_flipped_bit.compare_tensors

    def compare(a, b, threads=2):
        found = honest(a, b, threads)
        return found | changes if a.entry["sha256"] != b.entry["sha256"] else found

    return compare


@pytest.mark.parametrize(
    ("lie", "claim"),
    [
        ({"equal": True}, "a flipped bit is a difference"),
        ({"equal": True, "differ": 0, "detail": None}, "one element differs"),
        ({"differ": 2}, "one element differs"),
        ({"detail": {"first": {"flat": 0, "index": [0, 0]}}}, "it is found at its place"),
        ({"detail": {"first": {"a_bits": "0x0000"}}}, "with its bits"),
    ],
)
def test_it_fails_where_compare_misses_the_bit(tmp_path, monkeypatch, lie, claim):
    baseline = write_cell(tmp_path, {"out_0": TABLE})
    monkeypatch.setattr(control_flipped_bit, "compare_tensors", altered(**lie))
    found = control(baseline, "out_0", tmp_path / "copy", "C")
    assert found["status"] == "failed"
    assert claim in found["reason"]


def test_it_fails_where_compare_finds_a_difference_in_an_untouched_copy(tmp_path, monkeypatch):
    baseline = write_cell(tmp_path, {"out_0": TABLE})
    wrong = control_flipped_bit.bits.Difference(equal=False, differ=1, numel=24, max_abs=0.0)
    monkeypatch.setattr(control_flipped_bit.bits, "compare", lambda *_, **__: wrong)
    found = control(baseline, "out_0", tmp_path / "copy", "C")
    assert found["status"] == "failed"
    assert "an untouched copy is equal" in found["reason"]


@pytest.mark.parametrize(
    ("tensors", "status", "reason"),
    [
        ({}, "unavailable", "diffusers[plain] at case 4 is unavailable: no CUDA device"),
        ({"grad_w": TABLE}, "ok", "diffusers[plain] has no element of out_0"),
        ({"out_0": TABLE[:0]}, "ok", "diffusers[plain] has no element of out_0"),
    ],
)
def test_without_a_tensor_it_does_not_run(tmp_path, tensors, status, reason):
    baseline = write_cell(tmp_path, tensors, status=status)
    found = control(baseline, "out_0", tmp_path / "copy", "C")
    assert (found["status"], found["reason"], found["found"]) == ("not run", reason, None)


def test_a_corrupt_baseline_is_an_error_and_the_copy_is_removed(tmp_path):
    baseline = write_cell(tmp_path, {"out_0": TABLE})
    flip_bit(baseline.parent / "out_0.safetensors", -1)
    with pytest.raises(CorruptDumpError, match="remake the cell"):
        control(baseline, "out_0", tmp_path / "copy", "C")
    assert not (tmp_path / "copy").exists()


def test_a_full_disk_is_said_and_the_copy_is_removed(tmp_path, monkeypatch):
    baseline = write_cell(tmp_path, {"out_0": TABLE})

    def copyfile(_, target):
        Path(target).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(control_flipped_bit.shutil, "copyfile", copyfile)
    with pytest.raises(AuditError, match="No space left"):
        control(baseline, "out_0", tmp_path / "copy", "C")
    assert not (tmp_path / "copy").exists()


def test_the_flip_changes_one_bit_of_the_file(tmp_path):
    path = tmp_path / "x"
    dump.write(path, "t", TABLE, "BF16", TABLE.shape)
    before = int.from_bytes(path.read_bytes(), "little")
    control_flipped_bit.flip(path, 7, 13)
    after = int.from_bytes(path.read_bytes(), "little")
    start = dump.open_dump(path).offset
    assert before ^ after == 1 << (8 * (start + 14) + 13)
