"""One audit of callables of which most are wrong: each is told apart, and none spoils the others."""

import json

import pytest
import yaml

from tests.workflow.support.audits import ROOT, copy_sources
from tests.workflow.support.running import snakemake

# The candidate's name: the callable behind it.
CALLABLES = {
    "right": "behaving:expression",
    "view": "behaving:strided_view",
    "bias_after": "behaving:bias_after_rounding",
    "bias_before": "behaving:bias_before_rounding",
    "five_chunks": "misbehaving:five_chunks",
    "no_gradient": "misbehaving:without_temb",
    "raises": "misbehaving:raises",
    "bf16_temb": "misbehaving:kernel_on_bf16_temb",
    "changes": "misbehaving:changes_temb",
    "unsteady": "misbehaving:other_bits_later",
    "unwritten": "misbehaving:unwritten_tail",
    "escapes": "behaving:expression",
}
ERRORS = {
    "five_chunks": "ValueError: the result has 5 chunks; expected 6",
    "no_gradient": "ValueError: the gradient of temb is None: the output does not depend on temb",
    "raises": "RuntimeError: boom: the kernel",
    "bf16_temb": "TypeError: adaln_projection: temb must be torch.float32, got torch.bfloat16",
}
HOSTILE = 'it\'s $(touch pwned) `touch pwned` "x" {wildcards} \\ | é'


def audit():
    candidates = {
        name: {"callable": f"tests.workflow.candidates.{callable_}", "path": [str(ROOT)]}
        for name, callable_ in CALLABLES.items()
    }
    candidates["escapes"]["source"] = HOSTILE
    return {
        "audit": "wrong",
        "results": "../out dir",
        "rfc": HOSTILE,
        "device": "cpu",
        "operator": {"hidden": 16, "dim": 64},
        "cases": [2],
        "threads": 1,
        "on_error": "record",
        "accuracy": False,
        "candidates": candidates,
        "modes": {"plain": None},
        "baselines": ["right"],
        "required": ["right", "view", "escapes"],
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wrong") / "$(touch pwned) it's"
    copy_sources(folder)
    (folder / "audit.yaml").write_text(yaml.safe_dump(audit(), allow_unicode=True))
    run = snakemake(folder, configfile="audit.yaml")
    assert run.returncode == 0, run.output
    assert "Traceback" not in run.output
    return folder


@pytest.fixture(scope="module")
def full(folder):
    return json.loads((folder.parent / "out dir/wrong/report/report.full.json").read_text())


@pytest.fixture(scope="module")
def cells(full):
    return {entry["label"]: entry["cells"]["2"] for entry in full["implementations"]}


def comparison(full, label):
    (found,) = (c for c in full["comparisons"] if (c["a"], c["b"]) == (label, "right"))
    return found


def test_nothing_of_names_and_texts_was_executed(folder):
    assert not list(folder.parent.rglob("pwned"))


def test_texts_arrive_as_they_were_written(full):
    (entry,) = (e for e in full["implementations"] if e["label"] == "escapes")
    assert entry["source"] == HOSTILE
    assert full["config"]["rfc"] == HOSTILE


@pytest.mark.parametrize(("name", "reason"), ERRORS.items())
def test_what_failed_has_a_status_and_a_reason_and_is_equal_to_nothing(cells, full, name, reason):
    assert (cells[name]["status"], cells[name]["reason"]) == ("error", reason)
    found = comparison(full, name)
    assert (found["status"], found["tensors"]) == ("not comparable", {})
    assert reason in found["reason"]


def test_the_short_report_has_them_as_unavailable(folder):
    results = json.loads((folder.parent / "out dir/wrong/report/report.json").read_text())["results"]
    for name, reason in ERRORS.items():
        assert results[name]["unavailable"] == f"error: {reason}"


@pytest.mark.parametrize("name", sorted(CALLABLES.keys() - ERRORS))
def test_the_others_ran(cells, name):
    assert (cells[name]["status"], cells[name]["reason"]) == ("ok", None)


def test_a_view_is_equal(full):
    assert all(tensor["equal"] for tensor in comparison(full, "view")["tensors"].values())


def test_changed_inputs_are_flagged_and_reach_no_other_cell(cells, full):
    changed = {name: cell["inputs_changed"] for name, cell in cells.items() if cell["inputs_changed"]}
    assert changed == {"changes": ["temb"]}
    assert comparison(full, "escapes")["tensors"]["grad_temb"]["equal"]


def test_what_is_not_repeatable_is_flagged(cells):
    unsteady = {
        n: c["repeats"]["differ"] for n, c in cells.items() if c["repeats"] and c["repeats"]["differ"]
    }
    assert unsteady == {"unsteady": ["out_0"], "unwritten": ["out_0"]}


def test_a_bias_on_the_other_side_of_the_rounding_differs_by_about_an_ulp(full):
    table = comparison(full, "bias_after")["tensors"]["out_0"]
    assert not table["equal"]
    assert table["detail"]["ulps"]["1"] > 0.9 * table["differ"]


def test_the_gate_judges_what_is_required_only(full):
    assert full["gate"] == {"passed": True, "reasons": []}


def test_by_default_an_error_fails_its_job_and_nothing_else(folder):
    """Last in this module: it takes the raising cell's results away."""
    run = snakemake(
        folder,
        *("--config", "on_error=fail"),
        *(
            "--forcerun",
            "../out dir/wrong/cells/raises/2/manifest.json",
            "../out dir/wrong/cells/view/2/manifest.json",
        ),
        configfile="audit.yaml",
    )
    assert run.returncode == 1
    assert "error: raises on 2 rows: RuntimeError: boom: the kernel" in run.output
    assert not (folder.parent / "out dir/wrong/cells/raises/2/manifest.json").exists()
    assert (folder.parent / "out dir/wrong/cells/view/2/manifest.json").exists()
