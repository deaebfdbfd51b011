"""`snakemake bench`: latency, its page and figures, beside an audit that stays as it is."""

import json
from pathlib import Path

import pytest

from tests.workflow.support.audits import copy_audit
from tests.workflow.support.running import Run, snakemake

IMPLEMENTATIONS = ("provider.plain", "provider.upgradable", "rl_kernel")
LABELS = ("provider[plain]", "provider[upgradable]", "rl_kernel")
CASES = (1, 2)
PAGES = {"latency_report", "bench_page", "figure_of_differing_share", "figure_of_latency"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def benched(finished_audit: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """The finished audit after a bench, and that run."""
    folder = copy_audit(finished_audit, tmp_path_factory.mktemp("benched") / "audit")
    run = snakemake(folder, "bench")
    assert run.returncode == 0, run.output
    return folder, run


def test_every_cell_is_timed_and_none_is_made_again(benched):
    measurements = {f"latency {key} {case}" for key in IMPLEMENTATIONS for case in CASES}
    assert benched[1].jobs == sorted({"bench"} | measurements | PAGES)


def test_the_table_names_its_clock_and_its_spread_is_plausible(benched):
    report = benched[0] / "results" / "small" / "report"
    document = json.loads((report / "latency.json").read_text())
    found = [(each["case"], each["implementation"]) for each in document["measurements"]]
    assert found == [(case, label) for case in CASES for label in LABELS]
    for each in document["measurements"]:
        assert (each["status"], each["clock"], each["threads"]) == ("measured", "wall clock", 1)
        for part in ("forward", "forward_backward"):
            runs = each[part]
            assert 1 <= runs["warmup"] <= 20
            assert 3 <= runs["runs"] <= 100
            assert 0 < runs["min"] <= runs["p10"] <= runs["median"] <= runs["p90"]
    table = (report / "latency.md").read_text()
    assert "(wall clock, " in table
    assert table.count("| provider[plain] ") == len(CASES)


def test_the_page_of_the_bench_shows_latency_and_that_of_the_audit_does_not(benched):
    report = benched[0] / "results" / "small" / "report"
    assert 'id="latency"' in (report / "bench.html").read_text()
    assert 'id="latency"' not in (report / "report.html").read_text()


def test_the_audit_has_nothing_to_do_after_a_bench(benched):
    folder = benched[0]
    assert snakemake(folder, "--dry-run").jobs == []
    assert snakemake(folder, "bench", "--dry-run").jobs == []
