"""After an interruption the next run finishes, redoes only what was lost, and ends in the same report."""

import os
import random
import signal
import subprocess

import pytest

from tests.workflow.support import planted, running
from tests.workflow.support.audits import copy_audit, copy_sources, small_audit, tiny_audit, write_audit
from tests.workflow.support.killing import Torment, leftovers, processes_below, report_of, wait_for
from tests.workflow.support.running import begin, finish, snakemake

AFTER_THE_CELL = {
    *("compare 1 held provider.plain", "compare 1 held rl_kernel", "rows held", "accuracy 1"),
    *("report", "page", "gate"),
}


@pytest.fixture(scope="module")
def undisturbed(finished_audit, tmp_path_factory):
    """The finished audit, to which a candidate is added whose cell waits until it is let go."""
    folder = copy_audit(finished_audit, tmp_path_factory.mktemp("undisturbed") / "audit")
    audit = small_audit()
    audit["candidates"]["held"] = {"callable": "held:table", "path": ["callables"]}
    write_audit(folder, audit)
    (folder / "callables" / "held.py").write_text(planted.WAITS_FOR_LEAVE)
    (folder / "callables" / "leave").touch()
    run = snakemake(folder)
    assert run.returncode == 0, run.output
    return folder


@pytest.fixture
def held(undisturbed, tmp_path):
    """A copy in which only the cell of `held`, and what is made of it, is missing; the cell must wait."""
    folder = copy_audit(undisturbed, tmp_path / "audit")
    for name in ("manifest.json", "out_0.safetensors"):
        (folder / "results/small/cells/held/1" / name).unlink()
    (folder / "results/small/report/report.full.json").unlink()
    for file in ("leave", "waiting"):
        (folder / "callables" / file).unlink()
    return folder


def start(folder):
    process = begin(folder)
    wait_for(folder / "callables" / "waiting")
    return process


def let_go(folder):
    (folder / "callables" / "leave").touch()


def check_next_run(folder, undisturbed, jobs):
    run = snakemake(folder)
    assert run.returncode == 0, run.output
    assert set(run.jobs) == jobs
    assert report_of(folder) == report_of(undisturbed)
    assert leftovers(folder) == []


def test_sigint(held, undisturbed):
    process = start(held)
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does: the whole group of processes
    interrupted = finish(process, held)
    assert interrupted.returncode == 1, interrupted.output
    let_go(held)
    check_next_run(held, undisturbed, {"cell held 1"} | AFTER_THE_CELL)


def test_sigterm_lets_the_running_job_finish(held, undisturbed):
    process = start(held)
    process.send_signal(signal.SIGTERM)
    let_go(held)
    ended = finish(process, held)
    assert ended.returncode == 1, ended.output
    assert (held / "results/small/cells/held/1/manifest.json").exists()
    # The cell came out as it was, so what was made of it before holds; only the report was missing.
    check_next_run(held, undisturbed, {"report", "page", "gate"})


def test_sigkill_of_the_workflow_and_its_jobs(held, undisturbed):
    process = start(held)
    subprocess.run(["kill", "-KILL", "--", f"-{process.pid}"], check=True)
    process.wait(60)
    locked = snakemake(held)
    assert locked.returncode == 1
    assert "--unlock" in locked.output  # Snakemake itself says what to do
    assert snakemake(held, "--unlock").returncode == 0
    let_go(held)
    check_next_run(held, undisturbed, {"cell held 1"} | AFTER_THE_CELL)


def test_sigkill_of_a_cell(held, undisturbed):
    process = start(held)
    subprocess.run(["kill", "-KILL", *map(str, processes_below(process.pid))], check=True)
    run = finish(process, held)
    assert run.returncode == 1, run.output
    assert "results/small/logs/cell/held/1.log" in run.output
    assert not (held / "results/small/cells/held/1/manifest.json").exists()
    let_go(held)
    check_next_run(held, undisturbed, {"cell held 1"} | AFTER_THE_CELL)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB on `disk`."""
    disk = tmp_path / "disk"
    disk.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if subprocess.run(words, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small file system cannot be mounted here (that needs root)")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk(small_disk, tmp_path, undisturbed):
    folder = tmp_path / "audit"
    copy_sources(folder)
    write_audit(folder, tiny_audit(results=str(small_disk)))
    full = snakemake(folder)
    assert full.returncode == 1
    assert "No space left on device" in full.output
    assert "Traceback" not in full.output
    assert list(small_disk.rglob("*.tmp")) == []
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    run = snakemake(folder)
    assert run.returncode == 0, run.output


def test_random_kills(audit_elsewhere, tmp_path, monkeypatch):
    monkeypatch.delitem(running.VARIABLES, "CXX", raising=False)  # a build, too, may be killed half-way
    folder = tmp_path / "audit"
    copy_sources(folder)
    write_audit(folder, tiny_audit(kernel=True))
    torment = Torment(folder, random.Random(5), within=(2.0, 7.0)).go_on(kills=5)
    undisturbed = (
        audit_elsewhere / "the results/small/report/report.json"
    )  # results say nothing of their place
    assert torment.reports == {undisturbed.read_bytes()}
    assert torment.left == []
