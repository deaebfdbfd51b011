"""Kill an audit at random moments, again and again, and see what it comes to."""

import os
import random
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.workflow.support.running import Run, command, environment, snakemake

VICTIMS = ("the workflow", "the workflow and its jobs", "a job")


@dataclass
class Torment:
    """What was killed, and how many jobs it cost."""

    folder: Path
    random: random.Random
    within: tuple[float, float] = (1.0, 12.0)
    """Seconds after the start of a call; it takes two or three to get to its first job."""
    kills: int = 0
    jobs: int = 0
    """Jobs started, by all calls together."""
    audits: int = 0
    """Audits finished; each began without results."""
    reports: set[bytes] = field(default_factory=set)
    left: list[str] = field(default_factory=list)

    def go_on(self, kills: int) -> "Torment":
        """Run and kill until this many kills were done and the audit at hand is finished."""
        while self.kills < kills:
            if self._run_and_kill() == 0:
                self._take_stock()
                shutil.rmtree(self.folder / "results")
        run = snakemake(self.folder)
        assert run.returncode == 0, run.output
        self.jobs += len(run.jobs)
        self._take_stock()
        return self

    def _run_and_kill(self) -> int:
        process = subprocess.Popen(
            command(),
            cwd=self.folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(self.random.uniform(*self.within))
        except subprocess.TimeoutExpired:
            self.kills += self._kill(process.pid)
        output, _ = process.communicate(timeout=600)  # orphans hold the pipe: they end before the next call
        self.jobs += len(Run(process.returncode, output.decode()).jobs)
        if process.returncode < 0:
            unlocked = snakemake(self.folder, "--unlock")
            assert unlocked.returncode == 0, unlocked.output
        return process.returncode

    def _kill(self, workflow: int) -> bool:
        victim = self.random.choice(VICTIMS)
        if victim == "a job":
            jobs = processes_below(workflow)
            if not jobs:
                return False
            os.kill(self.random.choice(jobs), signal.SIGKILL)
        elif victim == "the workflow":
            os.kill(workflow, signal.SIGKILL)
        else:
            os.killpg(workflow, signal.SIGKILL)
        return True

    def _take_stock(self) -> None:
        self.audits += 1
        self.reports.add(report_of(self.folder))
        self.left += leftovers(self.folder)


def report_of(folder: Path) -> bytes:
    """report.json as it lies there."""
    return (folder / "results/small/report/report.json").read_bytes()


def processes_below(pid: int) -> list[int]:
    """The processes of jobs that run below a process: those that run Python, not their shells."""
    found = subprocess.run(["ps", "-eo", "pid=,ppid=,comm="], capture_output=True, text=True, check=True)
    rows = [line.split(maxsplit=2) for line in found.stdout.splitlines()]
    below, jobs = {pid}, []
    for _ in range(4):
        for child, parent, name in rows:
            if int(parent) in below and int(child) not in below:
                below.add(int(child))
                jobs += [int(child)] if name.startswith("python") else []
    return jobs


def leftovers(folder: Path) -> list[str]:
    """Temporary files, folders of builds, objects that no cell refers to, and what `verify` finds."""
    results = folder / "results" / "small"
    found = [str(path) for path in results.rglob(".*")]
    found += [str(path) for path in (results / "objects").iterdir() if path.stat().st_nlink < 2]
    verified = snakemake(folder, "verify")
    return found if verified.returncode == 0 else [*found, verified.output]


def wait_for(path: Path, timeout: float = 300) -> None:
    """Wait until a file is there."""
    deadline = time.monotonic() + timeout
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear within {timeout} s"
        time.sleep(0.05)
