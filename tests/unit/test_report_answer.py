"""The first screen's sentences, in each situation that a reader meets."""

import pytest

from tests.unit.fixtures.report.factory import KERNEL, PLAIN, SGLANG, VLLM, World, witness
from workflow_scripts.report.answer import answer
from workflow_scripts.report.full import full_report
from workflow_scripts.report.summary import LINES, WIDTH, short
from workflow_scripts.report.trust import machine, trust

REUSED = "May be reused as they are (row-invariant, repeatable, inputs untouched): "


def sentences(world):
    return answer(full_report(world.evidence()))


def doubts(world):
    return [each["text"] for each in trust(full_report(world.evidence())) if not each["good"]]


def everything_unavailable():
    world = World()
    for label in world.labels:
        world.stop(label, "unavailable", "no CUDA device")
    world.flipped |= {"status": "not run", "reason": "diffusers[plain] did not run"}
    world.inert |= {"status": "unavailable", "reason": "no CUDA device"}
    return world


def test_all_equal():
    assert sentences(World()) == [
        REUSED + "diffusers[plain], diffusers[sglang], diffusers[vllm] and rl_kernel.",
        "Any may replace any other: all have the same bits in every tensor and case.",
    ]
    assert doubts(World()) == []


def test_plain_not_row_invariant():
    world = World()
    world.other_bits(PLAIN, "grad_temb", 1)
    world.varying_rows(PLAIN, "grad_temb", 1)
    assert sentences(world) == [
        REUSED + "diffusers[sglang], diffusers[vllm] and rl_kernel.",
        "May not be reused: diffusers[plain] (not row-invariant).",
        "May replace one another, bit for bit: diffusers[sglang], diffusers[vllm] and rl_kernel.",
        "No other has all the bits of diffusers[plain].",
    ]


def test_nobody_equals_anybody():
    world = World()
    for label in world.labels:
        world.other_bits(label, "out_0")
        world.varying_rows(label, "out_0", 1)
    assert sentences(world) == [
        "None may be reused as it is.",
        "None may replace another: no two were shown to have the same bits in every tensor and case.",
    ]


def test_bits_of_a_baseline_with_something_missing():
    world = World()
    world.varying_rows(VLLM, "out_0", 1)
    assert sentences(world)[1] == "May be built upon: diffusers[vllm]."


def test_inert_mode():
    world = World()
    for case in world.cases:
        world.cells[VLLM, case]["witness"] = witness("vllm", kernel="gemm_plain")
    assert sentences(world) == [
        REUSED + "diffusers[plain], diffusers[sglang] and rl_kernel.",
        "May replace one another, bit for bit: diffusers[plain], diffusers[sglang] and rl_kernel.",
        (
            "Equal, but vacuously, for a mode did nothing or two modes did the same: "
            "diffusers[vllm] to diffusers[plain], diffusers[sglang] and rl_kernel."
        ),
    ]


def test_two_that_ran_the_same_kernels_do_not_replace_one_another():
    world = World(labels=(PLAIN, VLLM, KERNEL))
    world.other_bits(KERNEL, "out_0")
    for case in world.cases:
        world.cells[VLLM, case]["witness"] = witness("vllm", kernel="gemm_plain")
    assert sentences(world)[1:] == [
        "No two that compute in different ways have the same bits in every tensor and case.",
        (
            "Equal, but vacuously, for a mode did nothing or two modes did the same: "
            "diffusers[plain] to diffusers[vllm]."
        ),
    ]


def test_two_that_a_third_shows_to_be_equal_are_not_called_vacuous():
    world = World()
    for case in world.cases:
        world.cells[SGLANG, case]["witness"] = world.cells[VLLM, case]["witness"]
    assert sentences(world)[1:] == [
        "Any may replace any other: all have the same bits in every tensor and case."
    ]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("unavailable library", "Did not run: diffusers[sglang]."),
        ("unavailable at one case", "Did not run in every case: diffusers[sglang]."),
        ("incomparable machine", "Can't be compared with any other: diffusers[sglang]."),
    ],
)
def test_what_is_not_known_is_said(what, said):
    world = World()
    if what == "incomparable machine":
        world.elsewhere(SGLANG, "NVIDIA H100")
    else:
        cases = (4,) if what == "unavailable at one case" else ()
        world.stop(SGLANG, "unavailable", "sglang is not installed", *cases)
    assert sentences(world) == [
        REUSED + "diffusers[plain], diffusers[vllm] and rl_kernel.",
        "May replace one another, bit for bit: diffusers[plain], diffusers[vllm] and rl_kernel.",
        said,
    ]


def test_incomparable_machine_is_a_doubt():
    world = World()
    world.elsewhere(VLLM, "NVIDIA H100")
    assert machine(full_report(world.evidence())).endswith(", and another machine or stack")
    (doubt,) = doubts(world)
    assert doubt.startswith(
        "Cells of different machines were not compared: diffusers[vllm] with diffusers[plain]"
    )


def test_failed_control_leaves_no_answer():
    world = World()
    world.flipped |= {"status": "failed", "reason": "not so: one element differs"}
    assert sentences(world) == [
        "It can't be said: a control did not pass, so nothing found here can be trusted."
    ]
    assert doubts(world)[0].startswith("This report can't be trusted: control failed: one flipped bit")


def test_nothing_ran():
    assert sentences(everything_unavailable()) == ["It can't be said: no cell ran."]


def test_of_what_did_not_run_the_trust_line_claims_nothing():
    told = " ".join(each["text"] for each in trust(full_report(everything_unavailable().evidence())))
    assert "one machine" not in told
    assert "as released" not in told


def test_deviations_and_changed_files_are_doubts():
    world = World()
    world.cells[VLLM, 4]["deviations"] = ["a stand-in"]
    for case in world.cases:
        world.cells[KERNEL, case]["kernel"]["repository"]["tracked_tree_dirty"] = True
    assert [doubt.split(" ")[0] for doubt in doubts(world)] == ["The", "Not"]


@pytest.mark.parametrize("world", [World(), everything_unavailable()], ids=["all equal", "nothing ran"])
def test_summary_fits_a_terminal(world):
    lines = short(full_report(world.evidence()), "results/made_up/report").splitlines()
    assert len(lines) <= LINES
    assert all(len(line) <= WIDTH for line in lines)
    assert lines[-1] == "Report: results/made_up/report/report.html"


def test_summary_of_many_implementations_still_fits():
    labels = (PLAIN, *(f"diffusers[mode_{i}]" for i in range(40)), KERNEL)
    world = World(labels=labels)
    for label in labels:
        world.other_bits(label, "out_0")
        world.varying_rows(label, "out_0", 1)
    lines = short(full_report(world.evidence()), "results/made_up/report").splitlines()
    assert len(lines) == LINES
    assert any("more, in results/made_up/report/report.md" in line for line in lines)
