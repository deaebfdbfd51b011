"""The verification of all that an audit keeps."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.unit.fixtures.cells import flip_bit, write_cell
from workflow_scripts import verify
from workflow_scripts.tensors import digest, dump, manifest

ROOT = Path(__file__).parents[2]
VERIFY = ("--configfile", "config/cpu.yaml", "--objects")
TABLE = np.arange(24, dtype=np.uint16).reshape(4, 6)


@pytest.fixture
def audit(tmp_path):
    """Three cells of which two share a tensor, and their store."""
    manifests = [
        write_cell(tmp_path, {"out_0": TABLE, "grad_b": TABLE[0]}),
        write_cell(tmp_path, {"out_0": TABLE, "grad_b": TABLE[1]}, "rl_kernel"),
        write_cell(tmp_path, {}, "diffusers[vllm]", status="unavailable"),
    ]
    return manifests, tmp_path / "objects"


def faults(audit):
    return verify.verify(*audit, "config/cpu.yaml")[0]


def run(manifests, objects):
    return subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "workflow_scripts.verify",
            *VERIFY,
            str(objects),
            "--manifests",
            *manifests,
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_sound_audit(audit):
    done = run(*audit)
    assert (done.returncode, done.stdout) == (0, "4 dumps of 3 cells verified, 0.00 GB\n")


def test_each_content_is_read_once(audit, monkeypatch):
    read = []
    honest = digest.sha256_of_dump
    for module in (verify, digest):
        monkeypatch.setattr(module, "sha256_of_dump", lambda found: read.append(found) or honest(found))
    assert faults(audit) == []
    assert sorted(found.data.size for found in read) == [12, 12, 48]


@pytest.mark.parametrize("kind", ["flipped bit", "truncated", "missing"])
def test_a_damaged_dump_is_named_in_every_cell_and_in_the_store(audit, kind):
    manifests, objects = audit
    path = manifests[0].parent / "grad_b.safetensors"
    kept = next(file for file in objects.iterdir() if file.samefile(path))
    if kind == "flipped bit":
        flip_bit(path, -1, 7)
    elif kind == "truncated":
        os.truncate(path, path.stat().st_size - 1)
    else:
        path.unlink()
    done = run(*audit)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{path}: ")
    assert lines[0].endswith(
        f"; remake the cell: snakemake --configfile config/cpu.yaml --forcerun {manifests[0]}"
    )
    if kind == "missing":
        assert len(lines) == 1
    else:
        assert lines[1].startswith(f"{kept}: ")
        assert lines[1].endswith(f"; remove it: rm {kept}")


def test_the_commands_mend_it(audit, tmp_path):
    manifests, _ = audit
    flip_bit(manifests[0].parent / "out_0.safetensors", -1)
    found = faults(audit)
    assert len(found) == 3  # two cells and the object that they share
    (remove,) = [fault.partition("; remove it: ")[2] for fault in found if "remove it" in fault]
    subprocess.run(shlex.split(remove), check=True)
    write_cell(
        tmp_path, {"out_0": TABLE, "grad_b": TABLE[0]}
    )  # what the other commands do, as far as files go
    write_cell(tmp_path, {"out_0": TABLE, "grad_b": TABLE[1]}, "rl_kernel")
    assert faults(audit) == []


def test_several_damaged_cells_are_mended_by_one_command(audit):
    """A comparison of the first that is remade would read the second, which is damaged still."""
    manifests, _ = audit
    flip_bit(manifests[0].parent / "out_0.safetensors", -1)
    cells = sorted(map(str, manifests[:2]))  # they share it
    last = run(*audit).stdout.splitlines()[-1]
    command = "snakemake --configfile config/cpu.yaml --forcerun"
    assert last == f"remake all of them: {command} {' '.join(cells)}"


def test_a_flipped_bit_in_a_manifest_is_found(audit):
    manifests, _ = audit
    flip_bit(manifests[2], 40)
    (fault,) = faults(audit)
    assert fault.startswith(f"{manifests[2]}: ")
    assert fault.endswith(f"snakemake --configfile config/cpu.yaml --forcerun {manifests[2]}")


def test_an_object_of_another_name_is_found(audit):
    _, objects = audit
    first, second, *_ = sorted(objects.iterdir())
    first.rename(objects / second.name.replace(second.name[:8], "0" * 8))
    (fault,) = faults(audit)
    assert f"SHA-256 {first.name[:64]} in place of 00000000" in fault


def test_what_a_killed_job_left_is_found(audit):
    _, objects = audit
    (objects / ".x.safetensors.0123.tmp").write_bytes(b"half")
    (fault,) = faults(audit)
    assert fault.endswith(f"remove it: rm {objects / '.x.safetensors.0123.tmp'}")


def test_scalars_have_a_name_in_the_store(tmp_path):
    path = write_cell(tmp_path, {"out_0": np.array(1.0)})
    assert faults(([path], tmp_path / "objects")) == []


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"extra": 1}, "extra"),
        ({"status": "fine"}, "$.status"),
        ({"tensors": {}}, "$.tensors"),
        ({"reason": "but"}, "$.reason"),
        ({"witness": None}, "$.witness"),
        ({"case": "4"}, "$.case"),
        ({"environment": {}}, "$.environment"),
        ({"inputs_changed": ["w", "w"]}, "$.inputs_changed"),
        ({"kernel": {"code": {"cpu": "xyz"}, "repository": {}}}, "$.kernel.code.cpu"),
    ],
)
def test_a_manifest_must_follow_its_schema(audit, changes, place):
    manifests, _ = audit
    manifest.write(manifests[0], manifest.read(manifests[0]) | changes)
    assert any(place in fault for fault in faults(audit))


@pytest.mark.parametrize("file", ["../rl_kernel/4/out_0.safetensors", "/etc/passwd", "out_0.bin"])
def test_a_dump_lies_beside_its_manifest(audit, file):
    manifests, _ = audit
    content = manifest.read(manifests[0])
    content["tensors"]["out_0"]["file"] = file
    manifest.write(manifests[0], content)
    assert any("$.tensors.out_0.file" in fault for fault in faults(audit))


def test_no_key_of_a_manifest_may_be_missing(audit):
    manifests, _ = audit
    content = manifest.read(manifests[0])
    for key in content:
        if key != "digest":
            manifest.write(manifests[0], {name: value for name, value in content.items() if name != key})
            assert any(f"'{key}' is a required property" in fault for fault in faults(audit))


def test_the_schema_is_strict_everywhere():
    """Every object either lists its keys or says what its values are."""
    pending = [json.loads(verify.SCHEMA.read_text())]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            kind = part.get("type", [])
            if kind == "object" or (isinstance(kind, list) and "object" in kind):
                assert "additionalProperties" in part or set(part) == {"type"}, part
            pending += part.values()
        elif isinstance(part, list):
            pending += part


def test_the_schema_lists_what_a_cell_records():
    pytest.importorskip("torch")
    from workflow_scripts.cell import environment
    from workflow_scripts.modes import witness

    properties = json.loads(verify.SCHEMA.read_text())["properties"]
    recorded = {
        "environment": environment.describe("cpu"),
        "witness": witness.after(witness.before("cpu")),
    }
    for part, content in recorded.items():
        assert (
            sorted(properties[part]["properties"]) == sorted(properties[part]["required"]) == sorted(content)
        )


def test_without_cells_there_is_nothing_to_verify(tmp_path):
    done = run([], tmp_path)
    assert done.returncode == 2
    assert done.stderr == "error: there is no cell to verify; run the audit first\n"


def test_a_damaged_object_is_replaced_by_the_next_cell_that_stores_it(audit, tmp_path):
    flip_bit(next(iter(audit[1].iterdir())), -1)
    write_cell(tmp_path, {"out_0": TABLE, "grad_b": TABLE[0]})
    write_cell(tmp_path, {"out_0": TABLE, "grad_b": TABLE[1]}, "rl_kernel")
    assert faults(audit) == []
    assert dump.open_dump(tmp_path / "cells" / "rl_kernel" / "4" / "out_0.safetensors").shape == (4, 6)
