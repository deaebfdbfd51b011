"""Jobs that lose their node, or run out of time or memory, are tried again with what the profile allows."""

import re
import subprocess

import pytest

from tests.workflow.support import cluster as slurm
from tests.workflow.support import planted
from tests.workflow.support.audits import copy_sources, small_audit, write_audit
from tests.workflow.support.killing import report_of, wait_for
from tests.workflow.support.running import begin, finish, snakemake

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(slurm.obstacle() is not None, reason=str(slurm.obstacle())),
]

# Minutes and megabytes that a test can reach; they grow with each attempt, as those of the rules do.
OPTIONS = (
    *("--profile", "profiles/slurm", "--slurm-init-seconds-before-status-checks", "1"),
    *("--max-status-checks-per-second", "10"),
    *("--set-resources", "cell:runtime=attempt", "cell:mem_mb=1000*attempt"),
)
CANDIDATES = {"lost": planted.WAITS_ONCE, "late": planted.WAITS_ONCE, "hungry": planted.HUNGRY}


def states(name: str) -> list[tuple[str, str]]:
    """State and time limit of each job of that candidate's cell, in the order of submission."""
    words = ["scontrol", "show", "job", "--oneliner"]
    shown = subprocess.run(words, capture_output=True, text=True, check=True)
    jobs = [line for line in shown.stdout.splitlines() if f"cell_wildcards_{name}_" in line]
    found = [re.search(r"JobId=(\d+) .*JobState=(\w+) .*TimeLimit=(\S+)", line) for line in jobs]
    return [(job[2], job[3]) for job in sorted(filter(None, found), key=lambda job: int(job[1]))]


def prepare(folder):
    copy_sources(folder)
    (folder / "callables").mkdir()
    for name, text in CANDIDATES.items():
        (folder / "callables" / f"{name}.py").write_text(text)
    return folder


def write(folder, *names):
    candidates = {name: {"callable": f"{name}:table", "path": ["callables"]} for name in names}
    candidates["provider"] = {"callable": "expression:table", "path": ["callables"]}
    audit = small_audit(cases=[1], candidates=candidates, modes={"plain": {}}, baselines=["provider"])
    write_audit(folder, audit | {"accuracy": False, "required": []})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("limits") / "audit")


@pytest.fixture(scope="module")
def run(cluster, folder):
    """One run after the other: when the node is lost, all its jobs are."""
    write(folder, "lost")
    process = begin(folder, *OPTIONS, cores=None)
    wait_for(folder / "callables" / "lost.tried")  # its second attempt does not wait
    node = ["scontrol", "update", f"nodename={slurm.node()}"]
    subprocess.run([*node, "state=down", "reason=planted"], check=True)
    subprocess.run([*node, "state=resume"], check=False)  # refused where the node came back by itself
    first = finish(process, folder)
    assert first.returncode == 0, first.output
    write(folder, "lost", "late", "hungry")
    second = snakemake(folder, *OPTIONS, cores=None)
    assert second.returncode == 0, second.output
    return second


def test_a_lost_node(run):
    assert [state for state, _ in states("lost")] == ["NODE_FAIL", "COMPLETED"]


def test_a_time_limit(run):
    assert states("late") == [("TIMEOUT", "00:01:00"), ("COMPLETED", "00:02:00")]


def test_a_memory_limit(run):
    first, *others = [state for state, _ in states("hungry")]
    assert first in {"OUT_OF_MEMORY", "CANCELLED", "FAILED"}  # which one, the release of SLURM decides
    assert others == ["COMPLETED"], run.output


def test_the_report_is_that_of_an_undisturbed_run(run, folder, tmp_path):
    undisturbed = prepare(tmp_path / "audit")
    for name in CANDIDATES:
        (undisturbed / "callables" / f"{name}.tried").touch()
    write(undisturbed, *CANDIDATES)
    alone = snakemake(undisturbed)
    assert alone.returncode == 0, alone.output
    assert report_of(folder) == report_of(undisturbed)
