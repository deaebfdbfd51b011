"""Seconds of a call of Snakemake that has nothing to do, on an audit of 1000 cells.

python -P -m benchmarks.bench_dag [--cells 1000] [--repeats 5]

Files are made empty and marked as finished, with their records, by `snakemake --touch`: no job is run. The
limit is 6 s on two idle cores.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 6.0
# Snakemake that waits no tenth of a second after each file that it touches.
TOUCH = """
from snakemake.cli import main
from snakemake.executors.touch import Executor

Executor.SLEEPING_TIME = 0
main()
"""
CASES = [1, 4, 64, 2048]


def audit(cells: int) -> dict[str, Any]:
    """An audit of that many cells: one candidate under many modes, on four cases, against one baseline."""
    names = [f"mode_{index}" for index in range(1, cells // len(CASES))]
    modes = {name: {"variables": {"OMP_NUM_THREADS": "1"}} for name in names}
    return {
        "audit": "many",
        "device": "cpu",
        "operator": {"hidden": 32, "dim": 64},
        "cases": CASES,
        "candidates": {"diffusers": {"modes": ["plain", *modes]}},
        "modes": {"plain": {}, **modes},
        "baselines": ["diffusers[plain]"],
    }


def snakemake(
    folder: Path, *options: str, program: tuple[str, str] = ("-m", "snakemake")
) -> tuple[float, str]:
    """Call Snakemake in `folder`; seconds of wall time, and what it wrote."""
    call = [sys.executable, *program, "--snakefile", str(ROOT / "Snakefile"), *options]
    start = time.perf_counter()
    done = subprocess.run(
        [*call, "--cores", "2", "--configfile", "many.yaml"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stdout)
    return time.perf_counter() - start, done.stdout


def finish(folder: Path) -> int:
    """Make every output of the audit, empty, and let Snakemake take it for finished; the number of jobs."""
    _, plan = snakemake(folder, "--dry-run")
    outputs = re.findall(r"^    output: (.*)$", plan, re.MULTILINE)
    for line in outputs:
        for name in line.split(", "):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    snakemake(folder, "--touch", "--forceall", program=("-c", TOUCH))
    return len(outputs)


def main() -> int:
    """Print the seconds of each call; 1 where the median is over the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "many.yaml").write_text(yaml.safe_dump(audit(arguments.cells)))
        jobs = finish(folder)
        seconds = []
        for _ in range(arguments.repeats):
            wall, said = snakemake(folder)
            if "Nothing to be done" not in said:
                sys.exit(said)
            seconds.append(wall)
    median = statistics.median(seconds)
    print(f"{arguments.cells} cells, {jobs} jobs, nothing to do: {' '.join(f'{s:.2f}' for s in seconds)} s")
    print(f"median {median:.2f} s on {os.cpu_count()} cores (limit {LIMIT} s)")
    return int(median > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
