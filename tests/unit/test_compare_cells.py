"""Rule compare: when two cells are compared, and what is never called equal."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.unit.fixtures.cells import ENVIRONMENT, bf16, flip_bit, write_cell
from workflow_scripts.compare import compare_cells
from workflow_scripts.errors import AuditError, CorruptDumpError
from workflow_scripts.tensors import manifest
from workflow_scripts.tensors.manifest import CorruptManifestError

ROOT = Path(__file__).parents[2]
TABLE = np.arange(0x3F80, 0x3F80 + 24, dtype=np.uint16).reshape(4, 6)
SUMS = np.float32([[1, 2], [3, 4]])
OTHER = "diffusers[vllm]"


def changed(array, index, pattern):
    copy = array.copy()
    copy.view(f"u{array.itemsize}")[index] ^= pattern
    return copy


def pair(root, a, b, **changes):
    """Two cells; `changes` are of the second one's manifest."""
    return write_cell(root, a), write_cell(root, b, OTHER, **changes)


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-P", "-m", "workflow_scripts.compare", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_document_of_two_cells(tmp_path):
    tensors = {"out_0": TABLE, "grad_temb": SUMS}
    a, b = pair(tmp_path, tensors, {"out_0": changed(TABLE, (2, 1), 1), "grad_temb": SUMS})
    output = tmp_path / "compare" / "4" / "x.json"
    done = run("--a", a, "--b", b, "--output", output, "--configfile", "config/cpu.yaml", "--threads", 2)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    found = json.loads(output.read_text())
    detail = found["tensors"]["out_0"].pop("detail")
    # element 13 of the table: 0x3f8d is 1 + 13/128, and 0x3f8c is 1 + 12/128
    assert found == {
        "schema": "bitwise-reuse-audit/compare/1",
        "a": "diffusers[plain]",
        "b": "diffusers[vllm]",
        "case": 4,
        "status": "compared",
        "reason": None,
        "tensors": {
            "out_0": {"equal": False, "differ": 1, "numel": 24, "max_abs": 0.0078125, "reason": None},
            "grad_temb": {
                "equal": True,
                "differ": 0,
                "numel": 4,
                "max_abs": 0.0,
                "reason": None,
                "detail": None,
            },
        },
    }
    assert detail["first"] == {
        "index": [2, 1],
        "flat": 13,
        "a": 1 + 13 / 128,
        "b": 1 + 12 / 128,
        "a_bits": "0x3f8d",
        "b_bits": "0x3f8c",
    }


def test_equal_digests_are_equal_without_a_dump(tmp_path):
    a, b = pair(tmp_path, {"out_0": TABLE}, {"out_0": TABLE})
    for path in (a, b):
        (path.parent / "out_0.safetensors").unlink()
    found = compare_cells(a, b, "C")["tensors"]["out_0"]
    assert found == {
        "equal": True,
        "differ": 0,
        "numel": 24,
        "max_abs": 0.0,
        "reason": None,
        "detail": None,
    }


@pytest.mark.parametrize(
    ("other", "reason"), [(TABLE.reshape(6, 4), "shape"), (TABLE.view(np.float16), "dtype")]
)
def test_a_digest_alone_is_not_equality(tmp_path, other, reason):
    a, b = pair(tmp_path, {"out_0": TABLE}, {"out_0": other})
    assert manifest.read(a)["tensors"]["out_0"]["sha256"] == manifest.read(b)["tensors"]["out_0"]["sha256"]
    found = compare_cells(a, b, "C")
    assert found["status"] == "compared"
    assert found["tensors"]["out_0"] == {
        "equal": False,
        "differ": None,
        "numel": 24,
        "max_abs": None,
        "reason": reason,
        "detail": None,
    }


def test_bits_are_compared_not_numbers(tmp_path):
    a, b = pair(tmp_path, {"out_0": bf16(0, 0x7FC0)}, {"out_0": bf16(0x8000, 0x7FC1)})
    found = compare_cells(a, b, "C")["tensors"]["out_0"]
    assert (found["equal"], found["differ"], found["max_abs"]) == (False, 2, 0.0)


@pytest.mark.parametrize("status", ["unavailable", "error"])
def test_a_cell_that_is_not_ok_is_compared_with_nothing(tmp_path, status):
    a = write_cell(tmp_path, {"out_0": TABLE})
    b = write_cell(tmp_path, {}, OTHER, status=status)
    for one, two in ((a, b), (b, a), (b, b)):
        found = compare_cells(one, two, "C")
        assert (found["status"], found["tensors"]) == ("not comparable", {})
        assert f"diffusers[vllm] at case 4 is {status}: no CUDA device" in found["reason"]


def test_a_tensor_that_one_cell_lacks_is_not_comparable(tmp_path):
    a, b = pair(tmp_path, {"out_0": TABLE, "grad_b": TABLE}, {"out_0": TABLE})
    for one, two in ((a, b), (b, a)):
        found = compare_cells(one, two, "C")
        assert (found["status"], found["tensors"]) == ("not comparable", {})
        assert found["reason"] == "diffusers[vllm] has no grad_b"


def test_nothing_is_not_equal_to_nothing(tmp_path):
    a, b = pair(tmp_path, {"out_0": TABLE}, {"out_0": TABLE})
    found = compare_cells(a, b, "C", expected=["out_0", "grad_b"])
    assert found["status"] == "not comparable"
    assert found["reason"] == "diffusers[plain] has no grad_b; diffusers[vllm] has no grad_b"
    done = run(
        "--a", a, "--b", b, "--output", tmp_path / "x", "--configfile", "C", "--tensors", "out_0", "grad_b"
    )
    assert done.returncode == 0
    assert json.loads((tmp_path / "x").read_text()) == found


@pytest.mark.parametrize("tensors", [{}, {"grad_b": None}])
def test_cells_without_tensors_are_not_comparable(tmp_path, tensors):
    a, b = pair(tmp_path, {}, {})
    for path in (a, b):
        manifest.write(path, manifest.read(path) | {"tensors": tensors})
    found = compare_cells(a, b, "C")
    assert (found["status"], found["tensors"]) == ("not comparable", {})


@pytest.mark.parametrize(
    ("fact", "value", "phrase"),
    [
        ("gpu", "NVIDIA B200", "gpu NVIDIA H200 against NVIDIA B200"),
        ("multiprocessors", 114, "multiprocessors 132 against 114"),
    ],
)
def test_cells_of_two_machines_are_incomparable_and_never_differ(tmp_path, fact, value, phrase):
    a, b = pair(
        tmp_path, {"out_0": TABLE}, {"out_0": changed(TABLE, 0, 1)}, environment=ENVIRONMENT | {fact: value}
    )
    found = compare_cells(a, b, "C")
    assert (found["status"], found["tensors"]) == ("incomparable", {})
    assert found["reason"] == f"other machine or stack: {phrase}"


def test_cells_that_were_given_other_inputs_are_not_comparable(tmp_path):
    inputs = {"w": {"dtype": "BF16", "shape": [6, 2], "sha256": "1" * 64}}
    a, b = pair(tmp_path, {"out_0": TABLE}, {"out_0": TABLE}, inputs=inputs)
    found = compare_cells(a, b, "C")
    assert (found["status"], found["reason"]) == ("not comparable", "the cells were given other inputs: w")


@pytest.mark.parametrize("key", ["case", "operator"])
def test_cells_of_two_cases_are_a_mistake(tmp_path, key):
    a, b = pair(tmp_path, {"out_0": TABLE}, {"out_0": TABLE}, **{key: {"case": 5, "operator": "other"}[key]})
    with pytest.raises(AuditError, match="of one case"):
        compare_cells(a, b, "C")


def damage(path, kind):
    if kind == "flipped bit":
        flip_bit(path, -3)
    elif kind == "truncated by a byte":
        os.truncate(path, path.stat().st_size - 1)
    elif kind == "a byte too long":
        with path.open("ab") as file:
            file.write(b"\0")
    elif kind == "missing":
        path.unlink()
    else:  # another sound tensor in its place
        path.write_bytes((path.parent / "grad_temb.safetensors").read_bytes())


@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize(
    "kind", ["flipped bit", "truncated by a byte", "a byte too long", "missing", "replaced"]
)
def test_a_corrupt_dump_is_named_and_never_compared(tmp_path, side, kind):
    a, b = pair(
        tmp_path,
        {"out_0": TABLE, "grad_temb": changed(TABLE, 0, 2)},
        {"out_0": changed(TABLE, 0, 1), "grad_temb": changed(TABLE, 0, 2)},
    )
    wrong = {"a": a, "b": b}[side]
    dump = wrong.parent / "out_0.safetensors"
    damage(dump, kind)
    output = tmp_path / "compare.json"
    done = run("--a", a, "--b", b, "--output", output, "--configfile", "config/cpu.yaml")
    assert done.returncode == 2
    assert not output.exists()
    assert done.stderr.startswith(f"error: {dump}: ")
    assert done.stderr.endswith(
        f"; remake the cell: snakemake --configfile config/cpu.yaml --forcerun {wrong}\n"
    )
    assert done.stderr.count("\n") == 1


def test_a_bit_that_flips_towards_the_other_tensor_is_no_equality(tmp_path):
    """The dumps are the same bytes then, and only the digest tells."""
    a, b = pair(tmp_path, {"out_0": bf16(5)}, {"out_0": bf16(4)})
    flip_bit(a.parent / "out_0.safetensors", -2)
    dumps = [(path.parent / "out_0.safetensors").read_bytes() for path in (a, b)]
    assert dumps[0] == dumps[1]
    with pytest.raises(CorruptDumpError):
        compare_cells(a, b, "C")


def test_a_corrupt_manifest_is_named_and_never_compared(tmp_path):
    a, b = pair(tmp_path, {"out_0": TABLE}, {"out_0": changed(TABLE, 0, 1)})
    digest = hashlib.sha256(TABLE.tobytes()).hexdigest()
    b.write_text(b.read_text().replace(manifest.read(b)["tensors"]["out_0"]["sha256"], digest))
    with pytest.raises(CorruptManifestError, match="remake the cell"):
        compare_cells(a, b, "C")


def test_threads_do_not_change_the_document(tmp_path):
    generator = np.random.default_rng(1)
    table = generator.integers(0, 1 << 16, (64, 9000), dtype=np.uint16)
    a, b = pair(
        tmp_path, {"out_0": table}, {"out_0": np.where(generator.random(table.shape) < 0.1, 0, table)}
    )
    documents = [compare_cells(a, b, "C", threads) for threads in (1, 2, 5)]
    assert documents[0] == documents[1] == documents[2]
