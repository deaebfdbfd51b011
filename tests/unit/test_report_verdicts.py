"""Verdicts on implementations and relations of pairs, in the situations that a reader meets."""

import pytest

from tests.unit.fixtures.report.factory import KERNEL, PLAIN, SGLANG, VLLM, World, witness
from workflow_scripts.report.full import full_report


def verdicts(world):
    return {
        entry["label"]: entry["verdict"]["verdict"]
        for entry in full_report(world.evidence())["implementations"]
    }


def reasons(world, label):
    report = full_report(world.evidence())
    return next(entry["verdict"]["reasons"] for entry in report["implementations"] if entry["label"] == label)


def relations(world):
    return {(pair["a"], pair["b"]): pair["relation"] for pair in full_report(world.evidence())["pairs"]}


def inert(world, label):
    """Let a mode run exactly what plain runs."""
    for case in world.cases:
        world.cells[label, case]["witness"] = witness("vllm", kernel="gemm_plain")


def test_all_equal_all_may_be_reused_and_replace_one_another():
    report = full_report(World().evidence())
    assert verdicts(World()) == dict.fromkeys((PLAIN, SGLANG, VLLM, KERNEL), "reuse")
    assert set(relations(World()).values()) == {"equal"}
    assert report["interchangeable"] == [[PLAIN, SGLANG, VLLM, KERNEL]]


def test_plain_that_is_not_row_invariant_and_equals_nobody_is_new():
    world = World()
    world.varying_rows(PLAIN, "grad_temb", 1)
    world.other_bits(PLAIN, "grad_temb", 1)
    assert verdicts(world) == {PLAIN: "new", SGLANG: "reuse", VLLM: "reuse", KERNEL: "reuse"}
    assert reasons(world, PLAIN) == ["not row-invariant: grads.temb at 1 row"]
    assert full_report(world.evidence())["interchangeable"] == [[SGLANG, VLLM, KERNEL]]


def test_bits_of_a_baseline_with_something_missing_extend():
    world = World(cases=(1, 4, 64))
    world.varying_rows(VLLM, "out_0", 1, 4)
    assert verdicts(world)[VLLM] == "extend"
    assert reasons(world, VLLM) == [
        "its bits are those of diffusers[plain] and rl_kernel in every tensor and case",
        "not row-invariant: out[0] at 1 and 4 rows",
    ]


def test_a_baseline_does_not_agree_with_itself():
    world = World(labels=(PLAIN,), baselines=(PLAIN,))
    world.varying_rows(PLAIN, "out_0", 1)
    assert verdicts(world) == {PLAIN: "new"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"repeats": {"runs": 2, "differ": ["grad_w"]}}, "not repeatable: grads.w at 4 rows"),
        ({"inputs_changed": ["temb"]}, "changes its inputs: temb"),
    ],
)
def test_what_is_missing_is_named(change, reason):
    world = World()
    world.other_bits(VLLM, "out_0")
    world.cells[VLLM, 4] |= change
    assert verdicts(world)[VLLM] == "new"
    assert reasons(world, VLLM) == [reason]


def accuracy(world, error):
    evidence = world.evidence()
    tensors = {"out_0": {"max_error": error, "mean_error": 0.0, "correctly_rounded": 0.9}}
    evidence.accuracy[VLLM, 4] = {"status": "measured", "reason": None, "tensors": tensors}
    report = full_report(evidence)
    return next(entry["verdict"] for entry in report["implementations"] if entry["label"] == VLLM)


def test_accuracy_counts_where_it_was_measured():
    world = World()
    world.other_bits(VLLM, "out_0")
    assert accuracy(world, 2.0**-7)["verdict"] == "reuse"
    assert accuracy(world, 2.0**-7 + 2.0**-40) == {
        "verdict": "new",
        "reasons": ["inaccurate: out[0] at 4 rows"],
        "notes": [],
    }


def test_inert_mode_is_no_verdict_and_its_equality_is_vacuous():
    world = World()
    inert(world, VLLM)
    assert verdicts(world)[VLLM] == "can't say"
    assert reasons(world, VLLM) == ["its mode changed nothing: what was measured is the plain process"]
    related = relations(world)
    assert related[PLAIN, VLLM] == related[VLLM, KERNEL] == related[SGLANG, VLLM] == "vacuous"
    assert related[PLAIN, SGLANG] == "equal"
    assert full_report(world.evidence())["interchangeable"] == [[PLAIN, SGLANG, KERNEL]]


def test_mode_that_changes_one_direction_only_is_vacuous_in_the_other():
    world = World()
    for case in world.cases:
        kernels = world.cells[VLLM, case]["witness"]["kernels"]
        kernels["backward"] = ["gemm_plain_grad"]
    report = full_report(world.evidence())
    pair = next(pair for pair in report["pairs"] if (pair["a"], pair["b"]) == (PLAIN, VLLM))
    assert pair["relation"] == "vacuous"
    gradients = ["grad_temb", "grad_w", "grad_b"]
    assert pair["vacuous"] == {"1": gradients, "4": gradients}
    entry = next(entry for entry in report["implementations"] if entry["label"] == VLLM)
    assert entry["verdict"]["verdict"] == "reuse"
    assert entry["verdict"]["notes"] == [
        "its mode changed nothing of: grads.temb at every case; grads.w at every case; grads.b at every case"
    ]


def test_two_modes_that_ran_the_same_are_vacuously_equal():
    world = World()
    for case in world.cases:
        world.cells[SGLANG, case]["witness"]["kernels"] = world.cells[VLLM, case]["witness"]["kernels"]
    assert relations(world)[SGLANG, VLLM] == "vacuous"
    assert relations(world)[PLAIN, VLLM] == "equal"


def test_unavailable_library():
    world = World()
    world.stop(SGLANG, "unavailable", "sglang is not installed")
    assert verdicts(world) == {PLAIN: "reuse", SGLANG: "can't say", VLLM: "reuse", KERNEL: "reuse"}
    assert reasons(world, SGLANG) == ["unavailable: sglang is not installed"]
    assert relations(world)[PLAIN, SGLANG] == "unknown"


def test_error_in_one_case():
    world = World()
    world.stop(VLLM, "error", "RuntimeError: boom", 4)
    assert verdicts(world)[VLLM] == "can't say"
    assert reasons(world, VLLM) == ["error: RuntimeError: boom (at 4 rows)"]


def test_cell_without_a_manifest():
    world = World()
    del world.cells[VLLM, 4]
    assert verdicts(world)[VLLM] == "can't say"
    assert reasons(world, VLLM) == ["missing: no manifest of this cell was handed to the report (at 4 rows)"]


def test_incomparable_machine_never_counts_as_equal_or_different():
    world = World()
    world.elsewhere(VLLM, "NVIDIA H100")
    assert verdicts(world)[VLLM] == "can't say"
    assert reasons(world, VLLM) == [
        "gpu NVIDIA H100 against None (with diffusers[plain])",
        "gpu NVIDIA H100 against None (with rl_kernel)",
        "no plain cell of diffusers shows what its mode changed",
    ]
    assert [verdicts(world)[label] for label in (PLAIN, SGLANG, KERNEL)] == ["reuse"] * 3
    related = relations(world)
    assert related[PLAIN, VLLM] == related[VLLM, KERNEL] == "unknown"
    classes = full_report(world.evidence())["classes"]["4"]["out_0"]
    assert [group["members"] for group in classes] == [[PLAIN, SGLANG, KERNEL], [VLLM]]
    assert classes[0]["sha256"] == classes[1]["sha256"]


@pytest.mark.parametrize("control", ["flipped", "inert"])
def test_control_that_fails_or_is_absent_silences_every_verdict(control):
    failed = World()
    failed.flipped |= {"status": "failed", "reason": "one element differs"}
    if control == "inert":
        failed = World()
        failed.inert["witness"] = witness("control_inert")
    absent = World()
    setattr(absent, control, {})
    for world in (failed, absent):
        assert set(verdicts(world).values()) == {"can't say"}
        assert set(relations(world).values()) == {"unknown"}
        assert full_report(world.evidence())["interchangeable"] == []


def test_bits_that_differ_differ_even_when_a_control_failed():
    world = World()
    world.flipped["status"] = "failed"
    world.other_bits(VLLM, "out_0", 4)
    assert relations(world)[PLAIN, VLLM] == "differs"


def test_missing_baseline_leaves_nothing_to_compare_with():
    world = World(baselines=(KERNEL,))
    world.stop(KERNEL, "error", "RuntimeError: boom")
    assert set(verdicts(world).values()) == {"can't say"}
    assert reasons(world, VLLM) == ["compared with no baseline"]


def test_missing_plain_leaves_no_control_and_no_witness_to_hold_against():
    world = World()
    world.stop(PLAIN, "error", "RuntimeError: boom")
    assert reasons(world, VLLM) == [
        "a control did not pass: a mode whose switch does nothing is labelled inert"
    ]


def test_single_case_cannot_show_row_invariance():
    world = World(cases=(4,))
    for document in world.rows.values():
        document |= {"status": "not comparable", "reason": "there is only one case"}
    assert reasons(world, KERNEL) == ["its rows were not compared across cases: there is only one case"]


def test_same_digest_with_another_shape_or_dtype_is_another_class():
    world = World()
    world.cells[VLLM, 4]["tensors"]["out_0"]["shape"] = [576, 4]
    world.cells[SGLANG, 4]["tensors"]["out_0"]["dtype"] = "F16"
    evidence = world.evidence()
    for (a, b, case), document in evidence.compares.items():
        if case == 4 and {a, b} & {VLLM, SGLANG}:
            document["tensors"]["out_0"] |= {
                "equal": False,
                "differ": None,
                "max_abs": None,
                "reason": "shape",
            }
    classes = full_report(evidence)["classes"]["4"]["out_0"]
    assert [group["members"] for group in classes] == [[PLAIN, KERNEL], [SGLANG], [VLLM]]
    assert len({group["sha256"] for group in classes}) == 1


def test_other_inputs_are_not_held_against_each_other():
    world = World()
    world.cells[VLLM, 4]["inputs"]["temb"]["sha256"] = "0" * 64
    assert relations(world)[PLAIN, VLLM] == "unknown"
