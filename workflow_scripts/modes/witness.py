"""Proof of what really ran: what a switch changed, and how the process was set.

snapshot = before(device)
thrown = switch.throw(config)
witness = after(snapshot, switch.name, thrown)
with record_kernels(device) as forward: ...
witness["kernels"] = {"forward": forward.names, "backward": backward.names}
witness["triton_code"] = triton_code(...)       # after the kernels ran
"""

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from workflow_scripts.modes import dispatch
from workflow_scripts.modes.kernels import record_kernels
from workflow_scripts.modes.scrub import PLACES, is_numeric
from workflow_scripts.modes.switch import Thrown

__all__ = ["Snapshot", "after", "before", "flags", "record_kernels", "state", "triton_code"]

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
    """The process before the switch: dispatch table, flags and environment."""

    device: str
    table: dict[str, str]
    flags: dict[str, Any]
    environment: dict[str, str]


def before(device: str) -> Snapshot:
    """Take the snapshot that `after` compares with. Does not initialise CUDA. `device`: "cpu" or "cuda"."""
    return Snapshot(device, dispatch.table(device), flags(), _environment())


def after(snapshot: Snapshot, switch: str | None = None, thrown: Thrown | None = None) -> dict[str, Any]:
    """The witness, but for the kernels, which come from `record_kernels` (`kernels` is empty here).

    `switched` is null without a switch; otherwise true when the switch changed an operator, a flag or a variable.
    """
    overridden = dispatch.changed(snapshot.table, dispatch.table(snapshot.device))
    flags_now, variables = flags(), _environment()
    changed = {
        name: value for name, value in sorted(variables.items()) if snapshot.environment.get(name) != value
    }
    thrown_here = switch not in (None, "none")
    return {
        "switch": switch if thrown_here else None,
        "switched": bool(overridden or changed or flags_now != snapshot.flags) if thrown_here else None,
        "entry_point": thrown.entry_point if thrown_here and thrown else None,
        "overridden": overridden,
        "variables_set_by_switch": changed,
        "flags_before": snapshot.flags,
        "flags_after": flags_now,
        "kernels": {"forward": [], "backward": []},
        "triton_code": {},
        "state": state(),
        "optional_parts": _optional_parts(),
    }


def flags() -> dict[str, Any]:
    """torch's numerics flags as JSON scalars; one that this release has not, or refuses to read, is left out."""
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


def triton_code(kernels: Iterable[str]) -> dict[str, list[str]]:
    """Digests of the PTX that Triton compiled for these kernels, by kernel name, from the cell's own cache folder.

    Two modes may run Triton kernels of one name that compute differently (`TRITON_F32_DEFAULT`); their PTX tells. Debug
    lines, which name source paths, do not count. Empty without `TRITON_CACHE_DIR`: the shared cache has other programs'
    kernels too.
    """
    cache = os.environ.get("TRITON_CACHE_DIR")
    if not cache:
        return {}
    names = {kernel.partition(" ")[0] for kernel in kernels}
    found: dict[str, set[str]] = {}
    for path in Path(cache).glob("*/*.ptx"):
        if path.stem in names:
            code = re.sub(
                r"(?m)^\s*(?://|\.loc|\.file|\.section\s+\.debug).*$", "", path.read_text(encoding="utf-8")
            )
            found.setdefault(path.stem, set()).add(hashlib.sha256(code.encode()).hexdigest()[:16])
    return {name: sorted(digests) for name, digests in sorted(found.items())}


def _read(path: str) -> Any:
    value: Any = torch.backends
    for part in path.split("."):
        value = getattr(value, part)
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if is_numeric(name) and name not in PLACES}


def _optional_parts() -> dict[str, Any]:
    """Parts of the libraries that change numerics when they are there: version, file name or True; null where absent."""
    configurer = sys.modules.get("sglang.srt.layers.deep_gemm_wrapper.configurer")
    return {
        "deep_gemm": _version("deep_gemm", "deep-gemm", "sgl-deep-gemm"),
        "sglang_jit_deepgemm": getattr(configurer, "ENABLE_JIT_DEEPGEMM", None),
        "vllm_compiled": _compiled("vllm", "_C"),
        "transformer_engine": _version("transformer_engine", "transformer-engine"),
    }


def _version(module: str, *distributions: str) -> str | None:
    """The version of an importable module by its distribution; "unknown" when it is importable without one."""
    if importlib.util.find_spec(module) is None:
        return None
    for name in (module, *distributions):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return "unknown"


def _compiled(module: str, stem: str) -> str | None:
    spec = importlib.util.find_spec(module)
    for folder in (spec.submodule_search_locations if spec else None) or []:
        for path in sorted(Path(folder).glob(f"{stem}*.so")):
            return path.name
    return None
