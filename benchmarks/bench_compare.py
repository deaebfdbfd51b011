"""Speed of the comparison: MB/s a tensor for equal, slightly different and wholly different bits.

Run from the root of the repository: python -m benchmarks.bench_compare [--megabytes 400] [--threads 2]
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from workflow_scripts.tensors import bits, digest, dump

COLUMNS = 96768  # of MiniMax-H3's table


def best_of(runs: int, a: Path, b: Path, threads: int, *, detail: bool) -> float:
    """Seconds of the fastest of some comparisons of two dumps in the page cache."""
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        bits.compare(dump.open_dump(a), dump.open_dump(b), threads=threads, detail=detail)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main() -> None:
    """Make the tensors, time the comparisons, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=400, help="size of a tensor")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    rows = max(arguments.megabytes * 10**6 // (2 * COLUMNS), 1)
    generator = np.random.default_rng(0)
    a = generator.integers(0x3F00, 0x4100, (rows, COLUMNS), dtype=np.uint16)  # BF16 between 0.5 and 8
    few = a ^ (generator.random(a.shape, dtype=np.float32) < 3e-4)
    others = {"equal": a, "0.03 % differ": few, "all differ": a ^ np.uint16(1)}
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder, "a"), Path(folder, "b")
        dump.write(first, "a", a, "BF16", a.shape)
        start = time.perf_counter()
        digest.sha256_of_dump(dump.open_dump(first))
        print(f"{'sha256, one thread':20} {a.nbytes / 1e6 / (time.perf_counter() - start):8.0f} MB/s")
        for name, b in others.items():
            dump.write(second, "b", b, "BF16", b.shape)
            for detail in (False, True):
                seconds = best_of(arguments.runs, first, second, arguments.threads, detail=detail)
                label = name + (", detail" if detail else "")
                print(f"{label:20} {a.nbytes / 1e6 / seconds:8.0f} MB/s")


if __name__ == "__main__":
    main()
