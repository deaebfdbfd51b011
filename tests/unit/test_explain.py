"""explain names the thing that differs, and exits as diff does."""

import json

import numpy as np
import pytest

from tests.unit.fixtures.report import factory
from tests.unit.fixtures.report.entry import call
from workflow_scripts.explain import main
from workflow_scripts.tensors import dump, manifest
from workflow_scripts.tensors.digest import sha256_of

ROWS, COLUMNS = 4, 6


def explain(*arguments, folder=None):
    return call(main, *arguments, folder=folder)


def bf16(value=0x3F80):
    """A tensor of 4 rows and 6 columns, all of one bit pattern (1.0)."""
    return np.full((ROWS, COLUMNS), value, np.uint16)


def changed(bits, place, value):
    changed = bits.copy()
    changed[place] = value
    return changed


def write(path, bits, dtype="BF16", shape=None):
    dump.write(path, "tensor", bits.tobytes(), dtype, shape or bits.shape)
    return path


ONE = bf16()
PAIRS = {
    "same": (ONE, ONE, 0, "equal, bit for bit"),
    "signed zeros": (bf16(0), changed(bf16(0), (1, 2), 0x8000), 1, "signed zeros only: +0 on one side, -0"),
    "NaN payload": (bf16(0x7FC0), changed(bf16(0x7FC0), (3, 0), 0x7FC1), 1, "NaN payloads only"),
    "one ulp": (ONE, changed(ONE, (0, 5), 0x3F81), 1, "differs by one unit in the last place"),
    "a whole row": (ONE, changed(ONE, 2, 0x4000), 1, "differs in a whole row (2)"),
}


@pytest.mark.parametrize("name", PAIRS)
def test_names_the_thing_between_two_dumps(name, tmp_path):
    a, b, status, words = PAIRS[name]
    done = explain(write(tmp_path / "a.safetensors", a), write(tmp_path / "b.safetensors", b))
    assert words in done.stdout
    assert (done.returncode, done.stderr) == (status, "")


def test_names_another_dtype(tmp_path):
    a = write(tmp_path / "a.safetensors", ONE)
    b = write(tmp_path / "b.safetensors", ONE, dtype="F16")
    done = explain(a, b)
    assert done.returncode == 1
    assert "another dtype" in done.stdout


def test_names_another_shape_of_the_same_bytes(tmp_path):
    a = write(tmp_path / "a.safetensors", ONE)
    b = write(tmp_path / "b.safetensors", ONE, shape=(COLUMNS, ROWS))
    done = explain(a, b)
    assert done.returncode == 1
    assert "another shape" in done.stdout


def test_shows_the_first_difference_with_its_bits(tmp_path):
    a = write(tmp_path / "a.safetensors", ONE)
    b = write(tmp_path / "b.safetensors", changed(ONE, (1, 4), 0x3F81))
    assert "first at [1, 4]: 1.0 (0x3f80) in a, 1.0078125 (0x3f81) in b" in explain(a, b).stdout


@pytest.mark.parametrize("fault", ["absent", "cut short"])
def test_damaged_dump_is_trouble(fault, tmp_path):
    a = write(tmp_path / "a.safetensors", ONE)
    b = tmp_path / "b.safetensors"
    if fault == "cut short":
        b.write_bytes(a.read_bytes()[:-1])
    done = explain(a, b)
    assert done.returncode == 2
    assert str(b) in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def audit(tmp_path):
    """An audit's folder, two implementations and two cases, whose tables differ by one ulp at 4 rows."""
    world = factory.World(labels=(factory.PLAIN, factory.VLLM))
    for (label, case), cell in world.cells.items():
        folder = tmp_path / "results" / "made_up" / "cells" / factory.key(label) / str(case)
        folder.mkdir(parents=True)
        bits = np.full((case, COLUMNS), 0x3F80, np.uint16)
        if (label, case) == (factory.VLLM, 4):
            bits[0, 5] = 0x3F81
        write(folder / "out_0.safetensors", bits)
        entry = {"dtype": "BF16", "shape": list(bits.shape), "sha256": sha256_of(bits.tobytes())}
        cell["tensors"] = {"out_0": entry | {"strides": [], "file": "out_0.safetensors"}}
        manifest.write(folder / "manifest.json", cell)
    (tmp_path / "results" / "made_up" / "configuration.json").write_text(json.dumps(world.audit))
    return tmp_path


def test_explains_every_case_of_two_implementations(audit):
    done = explain(factory.PLAIN, factory.VLLM, folder=audit)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "a: diffusers[plain]",
        "b: diffusers[vllm]",
        "",
        "1 row",
        "  out[0]      equal, bit for bit",
        "",
        "4 rows",
        "  out[0]      differs by one unit in the last place",
        "              1 of 24 elements differ (4.2 %)",
        "              in 1 of 4 rows: 0",
        "              in 1 of 6 columns",
        "              largest absolute difference 0.0078125",
        "              first at [0, 5]: 1.0 (0x3f80) in a, 1.0078125 (0x3f81) in b",
        "              units in the last place: 1 by 1",
        "",
        "Different: 1 of 2 tensors.",
    ]


def test_looks_at_one_case_and_one_tensor(audit):
    done = explain("diffusers.plain", "diffusers.vllm", "--case", 1, "--tensor", "out", folder=audit)
    assert done.returncode == 0
    assert done.stdout.endswith("The same, bit for bit.\n")


def test_equality_that_says_nothing_is_marked(audit):
    path = audit / "results" / "made_up" / "cells" / "diffusers.vllm" / "1" / "manifest.json"
    cell = manifest.read(path)
    cell["witness"] = factory.witness("vllm", kernel="gemm_plain")
    manifest.write(path, cell)
    assert "vacuous" in explain(factory.PLAIN, factory.VLLM, "--case", 1, folder=audit).stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((factory.PLAIN, "diffusers[sglang]"), "has no cells of diffusers.sglang; it has diffusers.plain"),
        ((factory.PLAIN, factory.VLLM, "--case", 64), "case 64 did not run in both; 1 and 4 rows did"),
        ((factory.PLAIN, factory.VLLM, "--tensor", "temb"), "there is no tensor temb; there are out[0]"),
        ((factory.PLAIN, factory.VLLM, "--results", "elsewhere"), "elsewhere has no cells"),
    ],
)
def test_trouble_says_what_there_is(arguments, words, audit):
    done = explain(*arguments, folder=audit)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_cell_of_another_machine_or_without_tensors_is_trouble(audit):
    path = audit / "results" / "made_up" / "cells" / "diffusers.vllm" / "1" / "manifest.json"
    cell = manifest.read(path)
    elsewhere = cell["environment"] | {"torch": "2.12.0"}
    stopped = {"status": "error", "reason": "boom", "tensors": {}}
    for change, words in (({"environment": elsewhere}, "torch"), (stopped, "boom")):
        manifest.write(path, cell | change)
        done = explain(factory.PLAIN, factory.VLLM, folder=audit)
        assert done.returncode == 2
        assert words in done.stderr


def test_flipped_bit_in_a_dump_is_trouble_that_names_the_command(audit):
    path = audit / "results" / "made_up" / "cells" / "diffusers.vllm" / "4" / "out_0.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    done = explain(factory.PLAIN, factory.VLLM, "--case", 4, folder=audit)
    assert done.returncode == 2
    assert "snakemake --configfile config/cpu.yaml --forcerun" in done.stderr


def test_without_an_audit_there_is_nothing_to_explain(tmp_path):
    done = explain(factory.PLAIN, factory.VLLM, folder=tmp_path)
    assert done.returncode == 2
    assert "no audit has run in results/" in done.stderr
