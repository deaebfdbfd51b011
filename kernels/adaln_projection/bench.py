"""Times the CUDA kernels: python -P -m kernels.adaln_projection.bench [--rows 1 4 64 2048] [--json FILE].

The golden bits come first: a kernel that gives others is not timed. Then each operation is timed in the same
way and run: this kernel, plain torch in bf16 (cuBLAS), and float32 SGEMM (TF32 off). A call is captured in a
CUDA graph, and replayed after a read of 256 MiB has emptied the L2 cache of its operands; the figure is the
median over the replays by CUDA events. The floor is the larger of two times: the bytes of the weight at the
bandwidth of a device copy measured in this run, and the multiply-adds at the chip's peak.
"""

import argparse
import hashlib
import json
import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from kernels.adaln_projection import build, ops
from kernels.adaln_projection.library import default_directory
from workflow_scripts.errors import AuditError, run_main

N, K = 96768, 2688  # MiniMax-H3
GOLDEN = {  # table, d_act, d_weight, d_bias on sm_90: the first 16 hex digits of sha256
    1: ("ebda998129c69ead", "d828430d08035e43", "a141019d487c0411", "b31755864b5512ce"),
    4: ("6eb46fa7b880716c", "f5500ef8486da64e", "8a64c50e941988bb", "f314da0d253aca1e"),
    64: ("b575612d8bce277a", "a901db32d56cf554", "3bd991c8e72a29ca", "e149fde1f08d93b3"),
    2048: ("0e8ed5687134cb66", "ef3a2e76abaf3473", "1e533285d2b8f1bc", "e3b2aaa33a539979"),
}
FLUSH_BYTES = 256 * 2**20
# Per multiprocessor and cycle of an H100 or H200: bf16 tensor core and float32 multiply-adds.
TENSOR_RATE, FLOAT32_RATE, CLOCK_HZ = 2048, 128, 1.98e9

Call = Callable[[], Any]


class Problem:
    """Inputs of the golden bits for `rows` rows, on the GPU."""

    def __init__(self, rows: int, weight: Tensor, bias: Tensor) -> None:
        """Draws temb and grad_table; `weight` and `bias` are those of `parameters`."""
        temb = torch.randn(max(GOLDEN), K, generator=torch.Generator().manual_seed(3))[:rows]
        grad_table = torch.randn(rows, N, generator=torch.Generator().manual_seed(4))
        self.act = functional.silu(temb.cuda()).bfloat16()
        self.grad_table = grad_table.bfloat16().cuda()
        self.weight, self.bias = weight, bias

    def kernel(self) -> dict[str, Call]:
        """This kernel's calls."""
        gradients = torch.ops.adaln_projection
        return {
            "forward": lambda: ops.forward(self.act, self.weight, self.bias),
            "d_act": lambda: gradients.d_act(self.grad_table, self.weight),
            "d_weight": lambda: gradients.d_weight_bias(self.grad_table, self.act),
        }

    def torch(self, dtype: torch.dtype) -> dict[str, Call]:
        """The same operations by torch's matrix products in `dtype`."""
        act, grad_table, weight, bias = (
            x.to(dtype) for x in (self.act, self.grad_table, self.weight, self.bias)
        )
        return {
            "forward": lambda: functional.linear(act, weight, bias),
            "d_act": lambda: grad_table @ weight,
            "d_weight": lambda: (grad_table.T @ act, grad_table.sum(0)),
        }


def parameters() -> tuple[Tensor, Tensor]:
    """Weight and bias of the golden bits, on the GPU."""
    generator = torch.Generator().manual_seed(1)
    weight = (torch.randn(N, K, generator=generator) * K**-0.5).bfloat16()
    return weight.cuda(), (torch.randn(N, generator=generator) * 0.02).bfloat16().cuda()


def in_turn(calls: list[Call]) -> Call:
    """One call that makes all of `calls`."""
    return lambda: [call() for call in calls]


def check_bits(problem: Problem, rows: int) -> None:
    """Raises AuditError unless the kernel gives the golden bits."""
    calls = problem.kernel()
    results = [calls["forward"](), calls["d_act"](), *calls["d_weight"]()]
    got = [hashlib.sha256(x.cpu().view(torch.uint8).numpy()).hexdigest()[:16] for x in results]
    for name, one, golden in zip(
        ("table", "d_act", "d_weight", "d_bias"), got, GOLDEN.get(rows, got), strict=True
    ):
        if one != golden:
            raise AuditError(f"{name} at T = {rows} has digest {one}, not {golden}: nothing is timed.")


def median_us(call: Call, flush: Tensor) -> float:
    """Median time of `call` in microseconds, by replays of a CUDA graph after emptying the L2 cache."""
    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    times: list[float] = []
    while len(times) < 5 or (len(times) < 30 and sum(times) < 3e5):
        flush.max()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return statistics.median(times[2:])


def floors_us(rows: int, bytes_per_us: float) -> dict[str, float]:
    """The times, in microseconds, that no version can beat by much."""
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    streamed, multiply_adds = N * K * 2 / bytes_per_us, rows * N * K / processors / CLOCK_HZ * 1e6
    backward = max(streamed, multiply_adds / FLOAT32_RATE)
    return {
        "forward": max(streamed, multiply_adds / TENSOR_RATE),
        "d_act": backward,
        "d_weight": backward,
        "all": max(streamed, multiply_adds / TENSOR_RATE) + 2 * backward,
    }


def run(rows_list: list[int]) -> dict[str, Any]:
    """Checks and times every row count; returns what the JSON holds."""
    torch.backends.cuda.matmul.allow_tf32 = False
    weight, bias = parameters()
    flush = torch.zeros(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
    copy = torch.empty_like(weight)
    copy_us = median_us(lambda: copy.copy_(weight), flush)
    bytes_per_us = 2 * N * K * 2 / copy_us
    results: list[dict[str, Any]] = []
    for rows in rows_list:
        problem = Problem(rows, weight, bias)
        check_bits(problem, rows)
        floors = floors_us(rows, bytes_per_us)
        for source, calls in (
            ("kernel", problem.kernel()),
            ("cublas", problem.torch(torch.bfloat16)),
            ("sgemm", problem.torch(torch.float32)),
        ):
            for operation, call in {**calls, "all": in_turn(list(calls.values()))}.items():
                result = {"rows": rows, "operation": operation, "source": source}
                results.append(result | {"us": median_us(call, flush), "floor_us": floors[operation]})
            torch.cuda.empty_cache()
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "shape": {"N": N, "K": K},
        "copy_us": copy_us,
        "copy_gb_per_s": bytes_per_us / 1e3,
        "kernel": json.loads((default_directory() / "build.json").read_text()),
        "results": results,
    }


def table(record: dict[str, Any]) -> str:
    """The figures as a Markdown table."""
    times = {(r["rows"], r["operation"], r["source"]): r["us"] for r in record["results"]}
    lines = [
        f"{record['device']}, torch {record['torch']}; copy {record['copy_gb_per_s']:.0f} GB/s; medians, us",
        "",
        "| T | operation | kernel | cuBLAS | SGEMM | kernel / cuBLAS | floor | kernel / floor |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in record["results"]:
        if r["source"] != "kernel":
            continue
        cublas, sgemm = (times[r["rows"], r["operation"], source] for source in ("cublas", "sgemm"))
        cells = (r["rows"], r["operation"], f"{r['us']:.1f}", f"{cublas:.1f}", f"{sgemm:.1f}")
        ratios = (f"{r['us'] / cublas:.2f}", f"{r['floor_us']:.0f}", f"{r['us'] / r['floor_us']:.2f}")
        lines.append("| " + " | ".join(map(str, cells + ratios)) + " |")
    return "\n".join(lines)


def main() -> int:
    """Entry point of `make bench-kernel`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=sorted(GOLDEN), help="row counts to time")
    parser.add_argument("--json", type=Path, default=Path("results/bench/kernel.json"), help="file to write")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise AuditError("there is no CUDA device here: the benchmark times the CUDA kernels.")
    if "ADALN_KERNEL_DIR" not in os.environ:
        build.build(default_directory(), ["cpu", "cuda"])
    record = run(arguments.rows)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    print(table(record))
    return 0


if __name__ == "__main__":
    run_main(main)
