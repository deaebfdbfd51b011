"""One cell: its status, its tensors, its manifest."""

import json
import os
import time
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from workflow_scripts import candidates, launch, modes, operators
from workflow_scripts.candidates import Prepared
from workflow_scripts.cell import availability, environment
from workflow_scripts.cell import run as running
from workflow_scripts.cell.host import NAMES, buffer_of, load_rows
from workflow_scripts.cell.poison import poisoned
from workflow_scripts.modes import witness
from workflow_scripts.modes.scrub import read_back
from workflow_scripts.operators import Operator
from workflow_scripts.tensors import dump, manifest
from workflow_scripts.tensors.digest import sha256_of

HASHING_THREADS = 4


@dataclass
class Outcome:
    """What became of the cell."""

    status: str
    reason: str | None = None
    end_process: bool = False
    parts: dict[str, Any] = field(default_factory=dict)
    """The manifest's keys that only a cell that ran has."""


class Cell:
    """Runs one implementation on one case and writes its manifest, last."""

    def __init__(self, spec: Mapping[str, Any], inputs: Path, objects: Path, folder: Path) -> None:
        """`spec` is Audit.cell(); `inputs` the inputs.json beside the dumped inputs."""
        self.spec = spec
        self.inputs = inputs
        self.objects = objects
        self.folder = folder
        self.operator: Operator = operators.create(**spec["operator"])
        self.launched: dict[str, Any] = json.loads(os.environ.get(launch.RECORD, '{"set": {}, "scrubbed": []}'))
        self.seconds: dict[str, float] = {}

    def run(self) -> Outcome:
        """Run, dump, write timing.json and the manifest; a candidate's exception becomes status `error`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        read = read_back(self.launched["set"])
        try:
            outcome = self._attempt()
        except modes.HalfEnabledError as error:
            outcome = Outcome("unavailable", _first_line(error), end_process=True)
        except Exception as error:  # noqa: BLE001 (whatever a candidate raises is its status)
            traceback.print_exc()
            outcome = Outcome("error", f"{type(error).__name__}: {_first_line(error)}")
        if outcome.status != "ok":
            self._write_empty_dumps()
        timing = {"seconds": {name: round(s, 4) for name, s in self.seconds.items()}}
        (self.folder / "timing.json").write_text(json.dumps(timing, indent=2) + "\n")
        manifest.write(self.folder / "manifest.json", self._manifest(outcome, read))
        return outcome

    def _attempt(self) -> Outcome:
        if reason := availability.missing(self.spec):
            return Outcome("unavailable", reason)
        switch = modes.get(self.spec["switch"])
        with self._timed("switch"):
            snapshot = witness.before(self.spec["device"])  # first: an import may change things too
            if reason := switch.unavailable(self.spec):
                return Outcome("unavailable", reason)
            thrown = switch.throw(self.spec)
            seen = witness.after(snapshot, self.spec["switch"], thrown)
        with self._timed("inputs"):
            inputs = self._load_inputs()
            grad = inputs.pop("grad")
            prepared = self._prepare(inputs)
        parts = self._run_and_dump(prepared, grad, seen)
        parts["inputs_changed"] = self._changed_inputs({**prepared.leaves, "grad": grad})
        parts["deviations"] = [*thrown.deviations, *prepared.deviations]
        return Outcome("ok", parts=parts)

    def _run_and_dump(self, prepared: Prepared, grad: Tensor, seen: dict[str, Any]) -> dict[str, Any]:
        with self._timed("first run"):
            first = running.forward(self.operator, prepared)
            running.backward(self.operator, prepared, first, grad)
            self._synchronize()
        with self._timed("dumps"):
            tensors = self._dump(first.tensors)
        differ: set[str] = set()
        for _ in range(self.spec["repeats"] - 1):
            with self._timed("repeats"):
                again, kernels = self._repeat(prepared, grad, first.tensors)
                differ.update(running.differing(first.tensors, again.tensors))
        return {
            "callable": prepared.callable,
            "kernel": prepared.kernel,
            "tensors": tensors,
            "repeats": {"runs": self.spec["repeats"], "differ": sorted(differ)},
            "witness": {**seen, "kernels": kernels},
        }

    def _repeat(
        self, prepared: Prepared, grad: Tensor, like: Mapping[str, Tensor]
    ) -> tuple[running.Outputs, dict[str, list[str]]]:
        """Run again on poisoned memory and record which kernels run."""
        with poisoned(like.values()):
            with witness.record_kernels(self.spec["device"]) as forward:
                again = running.forward(self.operator, prepared)
                self._synchronize()
            with witness.record_kernels(self.spec["device"]) as backward:
                running.backward(self.operator, prepared, again, grad)
                self._synchronize()
        return again, {"forward": forward.names, "backward": backward.names}

    def _prepare(self, inputs: dict[str, Tensor]) -> Prepared:
        for tensor in inputs.values():
            tensor.requires_grad_()
        if self.spec["callable"]:
            return candidates.from_callable(self.spec["callable"], self.operator, inputs)
        prepared: Prepared = candidates.find(self.spec["candidate"]).prepare(self.operator, inputs)
        return prepared

    def _load_inputs(self) -> dict[str, Tensor]:
        return {name: self._load(name).to(self.spec["device"]) for name in self.operator.shapes(1)}

    def _load(self, name: str) -> Tensor:
        rows = self.spec["case"] if name in self.operator.row_inputs else None
        return load_rows(self.inputs.parent / f"{name}.safetensors", rows)

    def _changed_inputs(self, used: Mapping[str, Tensor]) -> list[str]:
        with self._timed("inputs again"):
            return sorted(
                name
                for name, tensor in used.items()
                if not running.same_bits(tensor.detach(), self._load(name).to(tensor.device))
            )

    def _dump(self, tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Any]]:
        with ThreadPoolExecutor(HASHING_THREADS) as pool:
            entries = pool.map(self._dump_one, tensors.keys(), tensors.values())
            return dict(zip(tensors, entries, strict=True))

    def _dump_one(self, name: str, tensor: Tensor) -> dict[str, Any]:
        dtype, shape = NAMES[tensor.dtype], tuple(tensor.shape)
        data = buffer_of(tensor)
        sha256 = sha256_of(data)
        file = f"{name}.safetensors"
        dump.store(self.objects, self.folder / file, data, dtype, shape, sha256)
        return {
            "dtype": dtype,
            "shape": list(shape),
            "strides": list(tensor.stride()),
            "sha256": sha256,
            "file": file,
        }

    def _write_empty_dumps(self) -> None:
        """The workflow expects a file per tensor; without tensors nobody can mistake them for results."""
        for name in self.operator.tensor_ids:
            dump.write_empty(self.folder / f"{name}.safetensors")

    def _manifest(self, outcome: Outcome, read: dict[str, str]) -> dict[str, Any]:
        parts = outcome.parts
        return {
            "schema": manifest.SCHEMA,
            **{key: self.spec[key] for key in ("implementation", "candidate", "mode", "case")},
            "operator": self.spec["operator"]["name"],
            "status": outcome.status,
            "reason": outcome.reason,
            "source": self._source(),
            "callable": parts.get("callable"),
            "environment": environment.describe(self.spec["device"]),
            "variables": {**self.launched, "read_back": read},
            "inputs": json.loads(self.inputs.read_text())["cases"][str(self.spec["case"])],
            "inputs_changed": parts.get("inputs_changed", []),
            "tensors": parts.get("tensors", {}),
            "repeats": parts.get("repeats"),
            "witness": parts.get("witness"),
            "kernel": parts.get("kernel"),
            "deviations": parts.get("deviations", []),
        }

    def _source(self) -> str:
        source = self.spec["source"] or self.spec["callable"]
        if source is None:
            source = candidates.SOURCES[self.spec["candidate"]]
        return source if self.spec["mode"] is None else f"{source} [{self.spec['mode']}]"

    def _synchronize(self) -> None:
        if self.spec["device"] == "cuda":
            torch.cuda.synchronize()

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - start


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "") or "no message"
