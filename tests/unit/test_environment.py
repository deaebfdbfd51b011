"""What a cell ran on, and whether it can run at all."""

import json
from pathlib import Path

import jsonschema
import pytest
import torch

from tests.unit.fixtures.small_cell import spec
from workflow_scripts.cell import availability, environment

SCHEMA = json.loads((Path(__file__).parents[2] / "config" / "schemas" / "manifest.schema.json").read_text())
ARM = "processor\t: 0\nFeatures\t: fp asimd bf16 sve\n"
INTEL = (
    "processor\t: 0\nmodel name\t: Intel(R) Xeon(R)\nflags\t\t: fpu avx2 avx512f amx_bf16\n\nprocessor\t: 1\n"
)


@pytest.fixture
def cpu(monkeypatch, tmp_path):
    def pretend(text):
        (tmp_path / "cpuinfo").write_text(text)
        real = Path.read_text
        monkeypatch.setattr(
            Path,
            "read_text",
            lambda self, **options: text if str(self) == "/proc/cpuinfo" else real(self, **options),
        )

    return pretend


def test_on_a_cpu_the_gpus_fields_are_null():
    found = environment.describe("cpu")
    jsonschema.validate(found, {"$defs": SCHEMA["$defs"], **SCHEMA["properties"]["environment"]})
    assert [found[k] for k in ("gpu", "capability", "multiprocessors", "mig", "driver", "cuda")] == [None] * 6
    assert found["torch"] == torch.__version__
    assert found["threads"] == torch.get_num_threads()
    assert found["libraries"]["torch"] == torch.__version__.partition("+")[0]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_the_gpus_fields_are_null_on_cuda_too():
    found = environment.describe("cuda")
    assert [found[k] for k in ("gpu", "capability", "multiprocessors", "mig", "driver")] == [None] * 5


def test_tf32_is_read_whichever_flag_set_it():
    before = torch.backends.cuda.matmul.fp32_precision
    try:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        assert environment.describe("cpu")["tf32"] is True
        torch.backends.cuda.matmul.fp32_precision = "ieee"
        assert environment.describe("cpu")["tf32"] is False
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


@pytest.mark.parametrize(
    ("text", "flags"),
    [(INTEL, {"fpu", "avx2", "avx512f", "amx_bf16"}), (ARM, {"fp", "asimd", "bf16", "sve"}), ("", set())],
)
def test_instruction_sets_are_those_of_the_first_processor(cpu, text, flags):
    cpu(text)
    assert environment.cpu_flags() == flags


def test_the_cpus_name(cpu):
    cpu(INTEL)
    assert environment.describe("cpu")["cpu"] == "Intel(R) Xeon(R)"
    cpu(ARM)
    assert environment.describe("cpu")["cpu"]


def test_versions_have_no_local_part():
    assert environment.library_version("torch") == torch.__version__.partition("+")[0]
    assert environment.library_version("no-such-distribution") is None


def missing(**changes):
    return availability.missing(spec(**changes))


def test_a_cell_that_needs_nothing_is_available():
    assert missing() is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_no_cuda_device():
    assert missing(device="cuda").startswith("no CUDA device")


def test_a_missing_instruction_set_is_named(cpu):
    cpu(INTEL)
    needs = {"libraries": [], "instruction_sets": ["avx2", "avx512_bf16", "amx_fp16"]}
    assert missing(needs=needs) == "the CPU lacks avx512_bf16, amx_fp16"


def test_a_missing_library_is_named():
    needs = {"libraries": ["torch", "no-such-library"], "instruction_sets": []}
    assert missing(needs=needs) == "not installed in the mode's environment: no-such-library"
