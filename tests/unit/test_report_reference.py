"""report.json has the published form: keys, nesting, order, types and formatting."""

import json
from pathlib import Path

import pytest

from tests.unit.fixtures.report.factory import KERNEL, PLAIN, SGLANG, VLLM, World
from workflow_scripts.report.full import full_report
from workflow_scripts.report.reference import dumps, reference_form

PUBLISHED = Path(__file__).parent / "fixtures" / "report" / "published_form.json"


def short(world):
    return reference_form(full_report(world.evidence()))


def kinds(value):
    """The form of a document: keys in their order and the types of values."""
    if isinstance(value, dict):
        return [(key, kinds(item)) for key, item in value.items()]
    if isinstance(value, list):
        return "list" if all(isinstance(item, int) for item in value) else [kinds(item) for item in value]
    return type(value).__name__


def test_form_is_the_published_one_all_the_way_down():
    published = json.loads(PUBLISHED.read_text())
    world = World(labels=(PLAIN, VLLM, KERNEL), cases=(4, 64, 2048))
    world.other_bits(PLAIN, "grad_temb", 4)
    for cell in world.cells.values():
        cell["environment"] |= {
            "gpu": "NVIDIA H200",
            "capability": [9, 0],
            "cuda": "13.0",
            "torch": "2.13.0+cu130",
        }
        libraries = {
            "triton": "3.7.1",
            "vllm": "0.30.0",
            "flashinfer-python": "0",
            "sglang": "0",
            "liger-kernel": "0",
        }
        cell["environment"]["libraries"] |= libraries | {"transformer_engine": "2", "diffusers": None}
    world.audit["mode_variables"] = published["environment"]["mode_environment"]

    assert kinds(short(world)) == kinds(published)


def test_formatting_is_the_published_one():
    text = PUBLISHED.read_text()
    assert dumps(json.loads(text)) == text


def test_cpu_has_null_for_what_it_has_not():
    environment = short(World())["environment"]
    assert [environment[key] for key in ("gpu", "capability", "cuda")] == [None, None, None]
    assert environment["tf32"] is False


def test_cases_are_in_order_and_their_keys_sorted_as_strings():
    report = short(World(cases=(1, 4, 64, 2048)))
    assert report["cases"] == [1, 4, 64, 2048]
    assert list(report["results"][VLLM][f"vs {PLAIN}"]) == ["1", "2048", "4", "64"]


def test_a_baseline_is_not_compared_with_itself():
    results = short(World())["results"]
    assert list(results[PLAIN]) == ["source", "vs rl_kernel"]
    assert list(results[VLLM]) == ["source", "vs diffusers[plain]", "vs rl_kernel"]


def test_unavailable_in_every_case():
    world = World()
    world.stop(SGLANG, "unavailable", "sglang is not installed")
    assert short(world)["results"][SGLANG] == {
        "source": "source of diffusers[sglang]",
        "unavailable": "sglang is not installed",
    }


def test_error_in_every_case_is_named_an_error():
    world = World()
    world.stop(SGLANG, "error", "RuntimeError: boom")
    assert short(world)["results"][SGLANG]["unavailable"] == "error: RuntimeError: boom"


def test_a_case_that_failed_is_absent_and_the_others_are_there():
    world = World()
    world.stop(SGLANG, "error", "RuntimeError: boom", 4)
    assert list(short(world)["results"][SGLANG][f"vs {PLAIN}"]) == ["1"]


def test_a_pair_that_is_incomparable_is_absent():
    world = World()
    world.elsewhere(VLLM, "NVIDIA H100")
    assert list(short(world)["results"][VLLM]) == ["source"]


@pytest.mark.parametrize("reason", ["dtype", "shape"])
def test_another_dtype_or_shape_has_no_counts(reason):
    world = World()
    world.other_bits(VLLM, "out_0")
    document = world.compared()[VLLM, PLAIN, 4]
    document["tensors"]["out_0"] |= {"differ": None, "max_abs": None, "reason": reason, "detail": None}
    world.compares[VLLM, PLAIN, 4] = document
    assert short(world)["results"][VLLM][f"vs {PLAIN}"]["4"]["out"] == [
        {"equal": False, "differ": None, "numel": 2304, "max_abs": None}
    ]


def test_commit_is_that_of_the_repository_the_kernel_was_built_from():
    world = World()
    for case in world.cases:
        world.cells[KERNEL, case]["kernel"]["repository"] = {"commit": "f" * 40, "tracked_tree_dirty": True}
    assert (short(world)["rl_kernel_commit"], short(world)["tracked_tree_dirty"]) == ("f" * 40, True)


def test_kernel_built_outside_git_has_no_commit():
    world = World()
    for case in world.cases:
        world.cells[KERNEL, case]["kernel"]["repository"] = {"commit": None, "tracked_tree_dirty": None}
    assert (short(world)["rl_kernel_commit"], short(world)["tracked_tree_dirty"]) == (None, None)


def test_without_a_kernel_there_is_no_commit():
    report = short(World(labels=(PLAIN, VLLM), baselines=(PLAIN,)))
    assert (report["rl_kernel_commit"], report["tracked_tree_dirty"]) == (None, None)
