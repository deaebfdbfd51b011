"""Which cells ran on the same machine and stack."""

import pytest

from tests.unit.fixtures.cells import ENVIRONMENT
from workflow_scripts.report.machine import difference

CPU = ENVIRONMENT | {
    "device": "cpu",
    "gpu": None,
    "capability": None,
    "multiprocessors": None,
    "mig": None,
    "driver": None,
    "cuda": None,
}


def test_the_same_machine_has_no_difference():
    assert difference(ENVIRONMENT, dict(ENVIRONMENT)) == []
    assert difference(CPU, dict(CPU)) == []


@pytest.mark.parametrize(
    ("fact", "other", "phrase"),
    [
        ("gpu", "NVIDIA B200", "gpu NVIDIA H200 against NVIDIA B200"),
        ("capability", [10, 0], "capability 9.0 against 10.0"),
        ("multiprocessors", 114, "multiprocessors 132 against 114"),
        ("mig", True, "mig False against True"),
        ("driver", "570.0", "driver 580.1 against 570.0"),
        ("torch", "2.13.1+cu130", "torch 2.13.0+cu130 against 2.13.1+cu130"),
        ("cuda", None, "cuda 13.0 against none"),
        ("triton", "3.6.0", "triton 3.7.1 against 3.6.0"),
    ],
)
def test_each_fact_of_a_gpu_cell_counts(fact, other, phrase):
    assert difference(ENVIRONMENT, ENVIRONMENT | {fact: other}) == [phrase]


@pytest.mark.parametrize("fact", ["cpu", "instruction_sets"])
def test_the_processor_counts_only_on_a_cpu(fact):
    other = {"cpu": "Intel Xeon", "instruction_sets": ["avx2"]}[fact]
    assert difference(ENVIRONMENT, ENVIRONMENT | {fact: other}) == []
    (phrase,) = difference(CPU, CPU | {fact: other})
    assert phrase.startswith(f"{fact} ")


def test_the_order_of_instruction_sets_says_nothing():
    assert difference(CPU, CPU | {"instruction_sets": ["avx512f", "avx2"]}) == []


def test_what_a_mode_varies_does_not_count():
    varied = {"threads": 1, "cpu_capability": "DEFAULT", "tf32": True, "python": "3.11.1", "libraries": {}}
    assert difference(CPU, CPU | varied) == []


def test_a_cpu_and_a_gpu_are_two_machines():
    assert "device cuda against cpu" in difference(ENVIRONMENT, CPU)
    assert "device cpu against cuda" in difference(CPU, ENVIRONMENT)
