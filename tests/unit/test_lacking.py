"""`unavailable` is believed only where it is still true."""

import json

import pytest

from workflow_scripts import lacking


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with the flags of a CPU, to which a GPU can be added."""
    (tmp_path / "cpuinfo").write_text("flags\t\t: fpu avx2 avx512f\n")
    monkeypatch.setattr(lacking, "CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(lacking, "GPUS", tmp_path / "gpus")

    def add_gpu():
        (tmp_path / "gpus" / "0000:1b:00.0").mkdir(parents=True)
        lacking._machine.cache_clear()

    lacking._machine.cache_clear()
    yield add_gpu
    lacking._machine.cache_clear()


def manifest(tmp_path, status, reason):
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({"status": status, "reason": reason}))
    return path


def test_a_cell_without_a_gpu_is_stale_where_there_is_one(machine, tmp_path):
    recorded = lacking.lacking_here("cuda", [], tmp_path / "none yet.json")
    path = manifest(tmp_path, "unavailable", "no CUDA device")
    assert (
        lacking.lacking_here("cuda", [], path) == recorded == ["CUDA device"]
    )  # not stale on the login node
    machine()
    assert lacking.lacking_here("cuda", [], path) == []  # another value than the recorded one


def test_a_cell_that_ran_on_a_gpu_is_not_stale_where_there_is_none(machine, tmp_path):
    recorded = []  # on the machine with a GPU nothing was lacking
    assert lacking.lacking_here("cuda", [], manifest(tmp_path, "ok", None)) == recorded


def test_another_reason_is_not_of_the_machine(machine, tmp_path):
    path = manifest(tmp_path, "unavailable", "not installed in the mode's environment: vllm")
    assert lacking.lacking_here("cuda", [], path) == []


def test_instruction_sets(machine, tmp_path):
    path = manifest(tmp_path, "unavailable", "the CPU lacks amx_bf16")
    assert lacking.lacking_here("cpu", ["avx2", "amx_bf16"], path) == ["amx_bf16"]
    assert lacking.lacking_here("cpu", ["avx2", "avx512f"], path) == []


@pytest.mark.parametrize("text", ["", "[]", "{}", "not JSON"])
def test_a_damaged_manifest_says_nothing(machine, tmp_path, text):
    path = tmp_path / "manifest.json"
    path.write_text(text)
    assert lacking.lacking_here("cuda", [], path) == ["CUDA device"]


def test_the_reasons_are_those_that_cells_give():
    availability = (lacking.Path(lacking.__file__).parent / "cell" / "availability.py").read_text()
    assert all(f'"{reason}' in availability for reason in lacking.REASONS)
