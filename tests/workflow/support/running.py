"""Run Snakemake as a user does, in a process of its own, and read off its log what it did."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_JOB = re.compile(r"^(?:local)?(?:rule|checkpoint) (\w+):\n((?:    .*\n)*)", re.MULTILINE)
_WILDCARDS = re.compile(r"^    wildcards: (.*)$", re.MULTILINE)

# Half of numpy's import are threads, for which neither Snakemake nor a comparison has any use.
VARIABLES = {"OPENBLAS_NUM_THREADS": "1"}
"""Variables that every call gets; cells do not see them."""


@dataclass(frozen=True)
class Run:
    """What a call of Snakemake came to."""

    returncode: int
    output: str

    @property
    def jobs(self) -> list[str]:
        """The jobs that were started (or would be), such as `cell rl_kernel 1`, sorted; without `all`."""
        return sorted(job for job in _jobs(self.output) if job != "all")


def _jobs(output: str) -> Iterator[str]:
    for rule, block in _JOB.findall(output):
        found = _WILDCARDS.search(block)
        wildcards = [pair.partition("=")[2] for pair in found[1].split(", ")] if found else []
        yield " ".join([rule, *wildcards])


def command(*options: str, cores: int | None = 2, configfile: str = "small.yaml") -> list[str]:
    """The words of a call."""
    limits = ["--cores", str(cores)] if cores else []
    return [sys.executable, "-m", "snakemake", *options, *limits, "--configfile", configfile]


def environment(**changes: str) -> dict[str, str]:
    """The environment of a call: this one, without what pytest or a batch job puts into it."""
    dropped = ("PYTHONPATH", "SNAKEMAKE_PROFILE", "PYTEST_CURRENT_TEST")
    return {key: value for key, value in os.environ.items() if key not in dropped} | VARIABLES | changes


def begin(folder: Path, *options: str, **words) -> subprocess.Popen:
    """Begin a call, which leads a process group of its own; `finish` waits for it."""
    with (folder / "output.txt").open("w") as output:
        return subprocess.Popen(
            command(*options, **words),
            cwd=folder,
            env=environment(),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_heed_interrupts,  # noqa: PLW1509 (no threads are started here)
        )


def _heed_interrupts() -> None:
    """A test run in the background of a shell ignores SIGINT, and so would all that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def finish(process: subprocess.Popen, folder: Path, timeout: float = 600) -> Run:
    """Wait for a call that was begun in `folder`."""
    returncode = process.wait(timeout)
    return Run(returncode, (folder / "output.txt").read_text())


def snakemake(
    folder: Path, *options: str, timeout: float = 600, env: dict[str, str] | None = None, **words
) -> Run:
    """Call Snakemake in `folder` and wait."""
    done = subprocess.run(
        command(*options, **words),
        cwd=folder,
        env=environment(**(env or {})),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Run(done.returncode, done.stdout)
