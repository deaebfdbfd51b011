"""The gate fails, with the reason, whenever an audit must not count as passed."""

import pytest

from tests.unit.fixtures.report.factory import KERNEL, PLAIN, SGLANG, VLLM, World, witness
from workflow_scripts.report.full import full_report


def gate(world):
    return full_report(world.evidence())["gate"]


def expecting(name, /, **expectation):
    world = World()
    world.audit["expect"] = {name: expectation}
    return world


def test_passes_when_everything_ran_and_nothing_more_is_expected():
    assert gate(World()) == {"passed": True, "reasons": []}


def test_difference_alone_is_no_failure():
    world = World()
    world.other_bits(PLAIN, "out_0")
    world.varying_rows(PLAIN, "out_0", 1)
    assert gate(world)["passed"]


def test_no_cell_ran_is_never_a_pass():
    world = World()
    world.audit["required"] = []
    for label in world.labels:
        world.stop(label, "unavailable", "no CUDA device")
    world.flipped |= {"status": "not run", "reason": "no cell"}
    world.inert |= {"status": "unavailable", "reason": "no CUDA device", "witness": None}
    assert gate(world)["reasons"] == [
        "no cell ran",
        "nothing was compared",
        "the baseline diffusers[plain] is missing at 1 and 4 rows",
        "the baseline rl_kernel is missing at 1 and 4 rows",
        "control not run: one flipped bit in a copy of a baseline's tensor is found at its place: no cell",
        (
            "control not run: a mode whose switch does nothing is labelled inert: "
            "its cell is unavailable: no CUDA device"
        ),
    ]


def test_no_manifest_at_all_is_never_a_pass():
    world = World()
    world.audit["required"] = []
    world.cells, world.rows, world.inert, world.flipped = {}, {}, {}, {}
    assert gate(world)["reasons"][:2] == ["no cell ran", "nothing was compared"]


def test_nothing_compared():
    world = World(labels=(PLAIN,), baselines=(PLAIN,))
    assert gate(world)["reasons"] == ["nothing was compared"]


def test_baseline_missing_in_one_case():
    world = World()
    world.audit["required"] = [VLLM]
    world.stop(KERNEL, "error", "RuntimeError: boom", 4)
    assert gate(world)["reasons"] == ["the baseline rl_kernel is missing at 4 rows"]


@pytest.mark.parametrize(
    ("status", "reason"), [("unavailable", "sglang is not installed"), ("error", "boom")]
)
def test_required_implementation_that_did_not_run(status, reason):
    world = World()
    world.stop(SGLANG, status, reason)
    assert gate(world)["reasons"] == [
        f"diffusers[sglang] is required, and at 1 and 4 rows {status}: {reason}"
    ]
    world.audit["required"] = [PLAIN, KERNEL]
    assert gate(world)["passed"]


def test_what_is_absent_for_one_reason_is_told_once():
    world = World(labels=(PLAIN, VLLM, SGLANG, "diffusers[megatron]", KERNEL))
    for label in (VLLM, SGLANG):
        world.stop(label, "unavailable", "no CUDA device")
    world.stop("diffusers[megatron]", "unavailable", "no CUDA device", 4)
    assert gate(world)["reasons"] == [
        "diffusers[megatron] is required, and at 4 rows unavailable: no CUDA device",
        (
            "diffusers[sglang] and diffusers[vllm] are required, "
            "and at 1 and 4 rows unavailable: no CUDA device"
        ),
    ]


def test_required_implementation_that_is_not_there():
    world = World()
    world.audit["required"] = ["diffusers[megatron]"]
    assert gate(world)["reasons"] == ["diffusers[megatron] is required, and is not part of the audit"]


def test_required_implementation_that_changes_its_inputs_or_is_not_repeatable():
    world = World()
    world.cells[VLLM, 4]["inputs_changed"] = ["w"]
    world.cells[VLLM, 1]["repeats"]["differ"] = ["grad_b"]
    assert gate(world)["reasons"] == [
        "diffusers[vllm] changes its inputs: w",
        "diffusers[vllm] is not repeatable: grads.b at 1 row",
    ]
    world.audit["required"] = [PLAIN]
    assert gate(world)["passed"]


@pytest.mark.parametrize("status", ["failed", "not run"])
def test_control_that_did_not_pass(status):
    world = World()
    world.flipped |= {"status": status, "reason": "why"}
    assert gate(world)["reasons"] == [
        f"control {status}: one flipped bit in a copy of a baseline's tensor is found at its place: why"
    ]


def test_control_of_which_there_is_no_document():
    world = World()
    world.inert = {}
    (reason,) = gate(world)["reasons"]
    assert reason.startswith("control not run: a mode whose switch does nothing")


def test_expected_rows():
    assert gate(expecting(VLLM, rows="invariant"))["passed"]
    world = expecting(VLLM, rows="invariant")
    world.varying_rows(VLLM, "out_0", 1)
    assert gate(world)["reasons"] == ["diffusers[vllm]: expected rows: invariant, found variant"]
    world = expecting(VLLM, rows="variant")
    assert gate(world)["reasons"] == ["diffusers[vllm]: expected rows: variant, found invariant"]
    world.rows[VLLM] |= {"status": "not comparable", "reason": "there is only one case", "cases": {}}
    assert gate(world)["reasons"] == ["diffusers[vllm]: expected rows: variant, found that it can't be said"]


def test_expected_repeatability():
    assert gate(expecting(VLLM, repeatable=True))["passed"]
    world = expecting(VLLM, repeatable=False)
    assert gate(world)["reasons"] == ["diffusers[vllm]: expected repeatable: false, found true"]
    world.audit["required"] = []
    world.stop(VLLM, "error", "boom", 4)
    assert gate(world)["reasons"] == [
        "diffusers[vllm]: expected repeatable: false, found that it can't be said"
    ]


def test_expected_label():
    assert gate(expecting(VLLM, label="effective"))["passed"]
    world = expecting(VLLM, label="inert")
    assert gate(world)["reasons"] == ["diffusers[vllm]: expected label: inert, found effective"]
    world.cells[VLLM, 1]["witness"] = witness("vllm", kernel="gemm_plain")
    assert gate(world)["reasons"] == [
        "diffusers[vllm]: expected label: inert, found effective and inert, by case"
    ]
    world.cells[VLLM, 4]["witness"] = witness("vllm", kernel="gemm_plain")
    assert gate(world)["passed"]


def test_expected_relations():
    assert gate(expecting(VLLM, equal_to=[PLAIN, KERNEL]))["passed"]
    world = expecting(VLLM, equal_to=[PLAIN], differs_from=[KERNEL])
    world.other_bits(KERNEL, "grad_w", 4)
    assert gate(world)["passed"]
    world = expecting(VLLM, equal_to=[KERNEL], differs_from=[PLAIN])
    world.other_bits(KERNEL, "grad_w", 4)
    assert gate(world)["reasons"] == [
        "diffusers[vllm]: expected equal to rl_kernel, found: bits differ: grads.w at 4 rows",
        "diffusers[vllm]: expected differs from diffusers[plain], found: equal in every tensor of every case",
    ]


def test_what_cannot_be_compared_is_neither_equal_nor_different():
    world = expecting(VLLM, equal_to=[PLAIN], differs_from=[KERNEL])
    world.elsewhere(VLLM, "NVIDIA H100")
    assert len(gate(world)["reasons"]) == 2
