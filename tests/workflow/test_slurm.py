"""The CPU default's modes, at tiny widths, as jobs of a real SLURM of one node with two pretend GPUs."""

import re
import signal
import subprocess
import time
from collections import Counter

import pytest
import yaml

from tests.workflow.support import cluster as slurm
from tests.workflow.support import planted
from tests.workflow.support.audits import ROOT, copy_sources, small_audit, write_audit
from tests.workflow.support.killing import wait_for
from tests.workflow.support.running import begin, finish, snakemake

pytestmark = pytest.mark.skipif(slurm.obstacle() is not None, reason=str(slurm.obstacle()))

# Cells ask for a GPU though they compute on the CPU; the waits are those of jobs that take seconds.
OPTIONS = (
    *("--profile", "profiles/slurm", "--set-resources", "cell:gpu=1", "--retries", "1"),
    *("--slurm-init-seconds-before-status-checks", "1", "--max-status-checks-per-second", "10"),
)
CANDIDATES = {"failing": planted.FAILS, "cancelled": planted.WAITS_ONCE}
# The default's modes run on a GPU of their own, the first of them only at its second attempt.
CALLABLES = {
    "on_gpu": planted.ON_GPU.replace("from expression", "from flaky"),
    "flaky": planted.FAILS_ONCE,
    **CANDIDATES,
}


def audit() -> dict:
    default = yaml.safe_load((ROOT / "config" / "cpu.yaml").read_text())
    modes = default["candidates"]["diffusers"]["modes"]
    candidates = {
        "provider": {"callable": "on_gpu:table", "path": ["callables"], "modes": modes},
        "rl_kernel": {},
    }
    candidates |= {name: {"callable": f"{name}:table", "path": ["callables"]} for name in CANDIDATES}
    return small_audit(
        cases=[1],
        accuracy=False,
        candidates=candidates,
        modes=default["modes"],
        baselines=["provider[plain]"],
        required=[],
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An audit whose candidates go wrong in the ways that were planted."""
    folder = tmp_path_factory.mktemp("submitted") / "audit"
    copy_sources(folder)
    write_audit(folder, audit())
    for name, text in CALLABLES.items():
        (folder / "callables" / f"{name}.py").write_text(text)
    return folder


@pytest.fixture(scope="module")
def submitted(cluster, folder):
    """The first run; meanwhile the job of `cancelled` is cancelled once."""
    process = begin(folder, *OPTIONS, cores=None)
    wait_for(folder / "callables" / "cancelled.tried", timeout=600)  # its second attempt does not wait
    subprocess.run(["scancel", slurm.job_of("cell_wildcards_cancelled")], check=True)
    return finish(process, folder)


def cells_submitted(run):
    return re.findall(
        r"Job \d+ has been submitted with SLURM jobid \d+ \(log: .*/rule_cell/([^)]*)\)", run.output
    )


def test_every_cell_is_a_job_of_slurm(submitted):
    folders = {path.partition("/")[0] for path in cells_submitted(submitted)}
    modes = audit()["candidates"]["provider"]["modes"]
    implementations = {f"provider.{mode}" for mode in modes} | {
        "rl_kernel",
        "provider.control_inert",
        *CANDIDATES,
    }
    assert {folder.removesuffix("_1") for folder in folders} == implementations


def test_never_two_cells_on_one_gpu_and_both_gpus_used(submitted, folder):
    # A second process on a GPU finds the lock taken, fails, and would be named in the output.
    assert "BlockingIOError" not in submitted.output
    assert set((folder / "callables" / "gpus.txt").read_text().split()) == {"0", "1"}


def test_a_flaky_cell_is_tried_again(submitted, folder):
    assert (folder / "callables" / "flaky.tried").exists()
    tries = Counter(path.partition("/")[0] for path in cells_submitted(submitted))
    assert any(tries[cell] == 2 for cell in tries if cell.startswith("provider."))
    for mode in [*audit()["candidates"]["provider"]["modes"], "control_inert"]:
        assert (folder / f"results/small/cells/provider.{mode}/1/manifest.json").exists()


def test_a_cancelled_job_is_tried_again(submitted, folder):
    assert (folder / "callables" / "cancelled.tried").exists()
    assert (folder / "results/small/cells/cancelled/1/manifest.json").exists()


def test_a_failing_cell_is_reported_with_its_log_and_status_1(submitted, folder):
    assert submitted.returncode == 1
    log = "results/small/logs/cell/failing/1.log"
    assert re.search(rf"Error in rule cell:(?:\n .*)*\n +log: {log} ", submitted.output)
    assert "planted: fails always" in (folder / log).read_text()
    assert not (folder / "results/small/cells/failing/1/manifest.json").exists()
    assert not (folder / "results/small/report/report.json").exists()


def test_an_interrupt_leaves_no_jobs_and_the_next_run_finishes(submitted, folder):
    (folder / "callables" / "failing.py").write_text(planted.WAITS_ONCE)
    process = begin(folder, *OPTIONS, cores=None)
    slurm.job_of("cell_wildcards_failing")
    process.send_signal(signal.SIGINT)
    interrupted = finish(process, folder)
    assert interrupted.returncode != 0, interrupted.output
    deadline = time.monotonic() + 20  # a cancelled job is `COMPLETING` for some seconds
    while slurm.jobs() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert slurm.jobs() == []

    (folder / "callables" / "failing.tried").touch()
    finished = snakemake(folder, *OPTIONS, cores=None)
    assert finished.returncode == 0, finished.output
    expected = {
        "cell failing 1",
        "compare 1 failing provider.plain",
        "rows failing",
        "report",
        "page",
        "gate",
    }
    assert set(finished.jobs) == expected
    # Without the cluster, and with it, everything is up to date.
    assert snakemake(folder, "--dry-run").jobs == []
    assert snakemake(folder, "--dry-run", *OPTIONS, cores=None).jobs == []
