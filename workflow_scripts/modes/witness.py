"""Proof of what really ran: what a switch changed, and how the process was set.

snapshot = before(device)
thrown = switch.throw(config)
witness = after(snapshot, switch.name, thrown)
with record_kernels(device) as forward: ...
witness["kernels"] = {"forward": forward.names, "backward": backward.names}
"""

import contextlib
import os
import sys
from dataclasses import dataclass
from typing import Any

import torch

from workflow_scripts.errors import AuditError
from workflow_scripts.modes import dispatch
from workflow_scripts.modes.kernels import record_kernels
from workflow_scripts.modes.library import compiled_part, module_missing, version
from workflow_scripts.modes.scrub import PLACES, is_numeric
from workflow_scripts.modes.switch import Thrown

__all__ = ["Snapshot", "after", "before", "flags", "record_kernels", "state"]

_FLAGS = (
    "fp32_precision",
    "cuda.matmul.allow_tf32",
    "cuda.matmul.fp32_precision",
    "cuda.matmul.allow_bf16_reduced_precision_reduction",
    "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda.matmul.allow_fp16_accumulation",
    "cudnn.enabled",
    "cudnn.allow_tf32",
    "cudnn.benchmark",
    "cudnn.deterministic",
    "mkldnn.enabled",
    "mkldnn.deterministic",
    "mkldnn.fp32_precision",
    "mkldnn.matmul.fp32_precision",
)


@dataclass(frozen=True)
class Snapshot:
    """The process before the switch: dispatch table (None: not read), flags and environment."""

    device: str
    table: dict[str, str] | None
    flags: dict[str, Any]
    environment: dict[str, str]


def before(device: str, *, table: bool = True) -> Snapshot:
    """Take the snapshot that `after` compares with, before the library is imported.

    Does not initialise CUDA. The library itself may do so, when it is imported or switched on: then it has
    seen the variables that the process was started with. `device`: "cpu" or "cuda". `table`: whether to read
    the dispatch table, which takes a quarter of a second; without a switch nothing is there to change it.

    Raises:
        AuditError: CUDA runs already, so that cuBLAS may have read its variables and chosen its workspace.
    """
    if _cuda_runs():
        raise AuditError(
            "CUDA was initialised before the mode's switch was thrown, so libraries have read their "
            "variables already: throw the switch first, and create no CUDA tensor before it"
        )
    return Snapshot(device, dispatch.table(device) if table else None, flags(), _environment())


def _cuda_runs() -> bool:
    return bool(torch.cuda.is_initialized())


def after(snapshot: Snapshot, switch: str | None = None, thrown: Thrown | None = None) -> dict[str, Any]:
    """The witness, but for the kernels, which come from `record_kernels` (`kernels` is empty here).

    `switched` is null without a switch, else whether it changed an operator, a flag or a variable.
    """
    overridden = []
    if snapshot.table is not None:
        overridden = dispatch.changed(snapshot.table, dispatch.table(snapshot.device))
    flags_now, variables = flags(), _environment()
    changed = {
        name: value for name, value in sorted(variables.items()) if snapshot.environment.get(name) != value
    }
    thrown_here = switch not in (None, "none")
    return {
        "switch": switch if thrown_here else None,
        "switched": bool(overridden or changed or flags_now != snapshot.flags) if thrown_here else None,
        "entry_point": thrown.entry_point if thrown else None,
        "library": thrown.library if thrown else None,
        "overridden": overridden,
        "variables_set_by_switch": changed,
        "flags_before": snapshot.flags,
        "flags_after": flags_now,
        "kernels": {"forward": [], "backward": []},
        "state": state(),
        "optional_parts": _optional_parts(),
    }


def flags() -> dict[str, Any]:
    """The numerics flags of torch as JSON scalars; without those that this release cannot read."""
    found: dict[str, Any] = {}
    for path in _FLAGS:
        with contextlib.suppress(AttributeError, RuntimeError):
            found[path] = _read(path)
    found["cuda.preferred_blas_library"] = (
        str(torch.backends.cuda.preferred_blas_library()).rpartition(".")[2].lower()
    )
    found["float32_matmul_precision"] = torch.get_float32_matmul_precision()
    found["deterministic_algorithms"] = torch.are_deterministic_algorithms_enabled()
    return found


def state() -> dict[str, Any]:
    """What the process really uses, whatever its variables say: threads, and ATen's vector instructions."""
    return {
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


def _read(path: str) -> Any:
    value: Any = torch.backends
    for part in path.split("."):
        value = getattr(value, part)
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if is_numeric(name) and name not in PLACES}


def _optional_parts() -> dict[str, Any]:
    """Parts of libraries that change numerics: version, file name or true; null where absent."""
    configurer = sys.modules.get("sglang.srt.layers.deep_gemm_wrapper.configurer")
    deep_gemm = None if module_missing("deep_gemm") else version("sgl-deep-gemm") or version("deep_gemm")
    return {
        "deep_gemm": deep_gemm,
        "sglang_jit_deepgemm": getattr(configurer, "ENABLE_JIT_DEEPGEMM", None),
        "transformer_engine": version("transformer_engine"),
        "vllm_compiled": compiled_part("vllm", "_C"),
    }
