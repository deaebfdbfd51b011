"""One cell: its status, its tensors, its manifest."""

import json
import math
import os
import time
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from workflow_scripts import candidates, launch, modes, operators
from workflow_scripts.candidates import Prepared
from workflow_scripts.cell import availability, environment
from workflow_scripts.cell import run as running
from workflow_scripts.cell.host import DTYPES, NAMES, copy_and_hash, load_rows, same_bits
from workflow_scripts.cell.inputs import Inputs
from workflow_scripts.cell.poison import poisoned
from workflow_scripts.errors import AuditError
from workflow_scripts.modes import witness
from workflow_scripts.modes.scrub import read_back
from workflow_scripts.tensors import dump, manifest

HASHING_THREADS = 4
LONGEST_REASON = 300  # characters


class StorageError(AuditError):
    """An input is damaged, or a dump can't be written: the job fails and says why, whatever `on_error` is."""


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
        self.objects = objects
        self.folder = folder
        self.operator = operators.create(**spec["operator"])
        self.inputs = Inputs(self.operator, inputs, spec["case"], spec["device"])
        self.launched: dict[str, Any] = json.loads(
            os.environ.get(launch.RECORD, '{"set": {}, "scrubbed": []}')
        )
        self.seconds: dict[str, float] = {"start and imports": _process_age()}

    def run(self) -> Outcome:
        """Run, dump, write timing.json and the manifest; a candidate's exception becomes status `error`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        read = read_back(self.launched["set"])
        try:
            outcome = self._attempt()
        except StorageError:
            raise  # not the candidate's fault
        except candidates.CandidateUnavailableError as error:
            outcome = Outcome("unavailable", sentence(error))
        except modes.HalfEnabledError as error:
            outcome = Outcome("unavailable", sentence(error), end_process=True)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever a candidate raises is its status)
            traceback.print_exc()
            outcome = Outcome("error", sentence(error))
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
            # first: an import may change things too
            snapshot = witness.before(self.spec["device"], table=self.spec["switch"] is not None)
            if reason := switch.unavailable(self.spec):
                return Outcome("unavailable", reason)
            thrown = switch.throw(self.spec)
            seen = witness.after(snapshot, self.spec["switch"], thrown)
        with self._timed("inputs"), _storage():
            inputs = self.inputs.load()
            grad = inputs.pop("grad")
        with self._timed("prepare"):
            prepared = candidates.prepare(self.spec, self.operator, inputs)
        parts = self._run_all(prepared, grad)
        parts["witness"] = {**seen, "kernels": parts["witness"]}
        parts["deviations"] = [*thrown.deviations, *prepared.deviations]
        return Outcome("ok", parts=parts)

    def _run_all(self, prepared: Prepared, grad: Tensor) -> dict[str, Any]:
        """Run on the same inputs each time; the first tensors are dumped, later ones must equal them."""
        used = {**prepared.leaves, "grad": grad}
        tensors = self._first_run(prepared, grad)
        changed = set(self._restore(used))
        sizes = [math.prod(entry["shape"]) * DTYPES[entry["dtype"]].itemsize for entry in tensors.values()]
        differ: set[str] = set()
        for _ in range(self.spec["repeats"] - 1):
            with self._timed("repeats"):
                again, kernels = self._repeat(prepared, grad, sizes)
                differ.update(name for name in tensors if not self._as_dumped(name, again[name]))
                del again
            changed.update(self._restore(used))
        return {
            "callable": prepared.callable,
            "kernel": prepared.kernel,
            "tensors": tensors,
            "repeats": {"runs": self.spec["repeats"], "differ": sorted(differ)},
            "inputs_changed": sorted(changed),
            "witness": kernels,
        }

    def _first_run(self, prepared: Prepared, grad: Tensor) -> dict[str, dict[str, Any]]:
        """Dump the output before the backward, which might write into it."""
        with self._timed("first run"):
            output = running.forward(self.operator, prepared, grad)
        tensors = self._dump({"out_0": output.detach()})
        with self._timed("first run"):
            gradients = running.backward(self.operator, prepared, output, grad)
        return tensors | self._dump(gradients)

    def _repeat(
        self, prepared: Prepared, grad: Tensor, sizes: list[int]
    ) -> tuple[dict[str, Tensor], dict[str, list[str]]]:
        """Run again on poisoned memory and record which kernels run."""
        device = self.spec["device"]
        with poisoned(device, sizes):
            with witness.record_kernels(device) as forward:
                output = running.forward(self.operator, prepared, grad)
            with witness.record_kernels(device) as backward:
                gradients = running.backward(self.operator, prepared, output, grad)
        return {"out_0": output.detach(), **gradients}, {"forward": forward.names, "backward": backward.names}

    def _as_dumped(self, name: str, tensor: Tensor) -> bool:
        """Whether a later run gave the dumped bits: a candidate may hand out the same memory each time."""
        dumped = load_rows(self.folder / f"{name}.safetensors", None)
        return same_bits(tensor, dumped.to(tensor.device))

    def _restore(self, used: Mapping[str, Tensor]) -> list[str]:
        with self._timed("inputs again"), _storage():
            return self.inputs.restore(used)

    def _dump(self, tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Any]]:
        with self._timed("dumps"), _storage(), ThreadPoolExecutor(HASHING_THREADS) as pool:
            entries = pool.map(self._dump_one, tensors.keys(), tensors.values())
            return dict(zip(tensors, entries, strict=True))

    def _dump_one(self, name: str, tensor: Tensor) -> dict[str, Any]:
        dtype, shape = NAMES[tensor.dtype], tuple(tensor.shape)
        data, sha256 = copy_and_hash(tensor)
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
            "inputs": self.inputs.entries,
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

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - start


def _process_age() -> float:
    """Seconds since this process was started, launch and imports included."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def _storage() -> Iterator[None]:
    try:
        yield
    except AuditError as error:
        raise StorageError(str(error)) from error


def sentence(error: BaseException) -> str:
    """An exception in one sentence: its first line, and its type unless it is written for people."""
    line = " ".join(next(iter(str(error).strip().splitlines()), "no message").split())
    if len(line) > LONGEST_REASON:
        line = line[: LONGEST_REASON - 3] + "..."
    if isinstance(error, AuditError):
        return line
    if "leaf Variable that requires grad" in line:
        return f"the candidate changes an input in place, which autograd refuses: {line}"
    return f"{type(error).__name__}: {line}"
