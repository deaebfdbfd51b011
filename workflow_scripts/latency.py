"""Time one implementation on one case, in its mode's own process: forward, and forward with backward.

What is timed is the candidate as it is called in training: the forward pass with autograd recording, and the
backward pass down to the gradients of every input. Memory and caches are as the run before left them.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workflow_scripts import candidates, modes, operators
from workflow_scripts.candidates import Prepared
from workflow_scripts.cell import availability
from workflow_scripts.cell.cell import sentence
from workflow_scripts.cell.environment import describe
from workflow_scripts.cell.inputs import Inputs
from workflow_scripts.errors import AuditError, run_main
from workflow_scripts.launch import remove_own_caches
from workflow_scripts.operators import Operator
from workflow_scripts.tensors import manifest
from workflow_scripts.tensors.atomic import write_text

SCHEMA = "bitwise-reuse-audit/latency/1"
CLOCKS = {"cuda": "CUDA events", "cpu": "wall clock"}
FEWEST = 3
"""Measured runs, however long they take."""
PARTS = ("forward", "forward_backward")

Json = dict[str, Any]


def latency(spec: Mapping[str, Any], cell: Json, inputs: Path, settings: Mapping[str, Any]) -> Json:
    """The document latency/<implementation>/<case>.json.

    Args:
        spec: Audit.cell().
        cell: manifest of the audit's cell; one that is not ok is not measured.
        inputs: the inputs.json beside the dumped inputs.
        settings: the configuration's `latency`.

    Raises:
        AuditError: the inputs are damaged, or the candidate raised.
    """
    document = {"schema": SCHEMA, "implementation": spec["implementation"], "case": spec["case"]}
    reason = f"{cell['status']}: {cell['reason']}" if cell["status"] != "ok" else availability.missing(spec)
    switch = modes.get(spec["switch"])
    if reason := reason or switch.unavailable(spec):
        unmeasured = dict.fromkeys(("clock", "machine", "threads", *PARTS))
        return document | {"status": "not measured", "reason": reason} | unmeasured
    switch.throw(spec)
    operator = operators.create(**spec["operator"])
    tensors = Inputs(operator, inputs, spec["case"], spec["device"]).load()
    grad = tensors.pop("grad")
    runs = passes(operator, candidates.prepare(spec, operator, tensors), grad)
    clock = cuda_times if spec["device"] == "cuda" else wall_times
    environment = describe(spec["device"])
    return document | {
        "status": "measured",
        "reason": None,
        "clock": CLOCKS[spec["device"]],
        "machine": environment["gpu"] or environment["cpu"],
        "threads": environment["threads"],
        **{part: spread(*clock(run, **settings)) for part, run in runs.items()},
    }


def passes(operator: Operator, prepared: Prepared, grad: Tensor) -> dict[str, Callable[[], object]]:
    """What is timed. Putting a result's chunks together is the audit's work, so it is kept out of both."""
    leaves = [prepared.leaves[name] for name in operator.inputs]

    def tensors() -> list[Tensor]:
        result = prepared.forward()
        return [result] if isinstance(result, Tensor) else list(result)

    parts = [part.detach().requires_grad_() for part in tensors()]
    (output,) = operator.outputs(parts if len(parts) > 1 else parts[0])
    grads = torch.autograd.grad(output, parts, grad)
    return {
        "forward": prepared.forward,
        "forward_backward": lambda: torch.autograd.grad(tensors(), leaves, grads),
    }


def cuda_times(
    run: Callable[[], object], warmup: int, repeats: int, seconds: float
) -> tuple[int, list[float]]:
    """Number of warm-ups, and microseconds of each of `repeats` runs between two CUDA events of the stream.

    Runs are queued without waiting, so that a long one hides the cost of launching the next and a short one
    does not. `seconds` is for a CPU.
    """
    del seconds
    for _ in range(warmup):
        run()
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    torch.cuda.synchronize()
    for start, stop in pairs:
        start.record()
        run()
        stop.record()
    torch.cuda.synchronize()
    return warmup, [1e3 * start.elapsed_time(stop) for start, stop in pairs]


def wall_times(
    run: Callable[[], object], warmup: int, repeats: int, seconds: float
) -> tuple[int, list[float]]:
    """Number of warm-ups, and microseconds of each measured run by the wall clock.

    Warm-ups end after `seconds`, and measured runs too once there are `FEWEST`.
    """
    warmups = _timed(run, warmup, 1, seconds)
    return len(warmups), _timed(run, repeats, FEWEST, seconds)


def _timed(run: Callable[[], object], most: int, fewest: int, seconds: float) -> list[float]:
    end = time.perf_counter() + seconds
    times: list[float] = []
    while len(times) < most and (len(times) < fewest or time.perf_counter() < end):
        start = time.perf_counter()
        run()
        times.append(1e6 * (time.perf_counter() - start))
    return times


def spread(warmup: int, times: list[float]) -> Json:
    """Numbers of runs, and their minimum, 10th percentile, median and 90th percentile in microseconds.

    A percentile that falls between two runs is interpolated linearly.
    """
    quantiles = np.quantile(times, (0, 0.1, 0.5, 0.9))
    named = zip(("min", "p10", "median", "p90"), quantiles, strict=True)
    return {"warmup": warmup, "runs": len(times), **{name: round(float(value), 3) for name, value in named}}


def main() -> int:
    """Entry point of rule latency."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", type=json.loads, required=True, help="JSON: what decides the cell's bits")
    parser.add_argument("--settings", type=json.loads, required=True, help="JSON: warmup, repeats, seconds")
    parser.add_argument("--manifest", type=Path, required=True, help="of the audit's cell")
    parser.add_argument("--inputs", type=Path, required=True, help="inputs.json")
    parser.add_argument("--configfile", default="CONFIG", help="named in the command that remakes a cell")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    cell = manifest.read(arguments.manifest, arguments.configfile)
    try:
        document = latency(arguments.spec, cell, arguments.inputs, arguments.settings)
    except AuditError:
        raise
    except Exception as error:
        where = f"{arguments.spec['implementation']} on {arguments.spec['case']} rows"
        raise AuditError(f"{where} ran in the audit but not here: {sentence(error)}") from error
    finally:
        remove_own_caches()
    write_text(arguments.output, json.dumps(document, indent=2, allow_nan=False) + "\n")
    return 0


if __name__ == "__main__":
    run_main(main)
