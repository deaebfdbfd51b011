"""Which environment variables can move a bit, and how a process is kept free of those that nobody asked for.

Standard library only, so that any interpreter may import it before anything else.
"""

import difflib
import os
from collections.abc import Mapping
from pathlib import Path

from workflow_scripts.errors import AuditError

PREFIXES = {
    "CUBLAS": "cuBLAS and cuBLASLt: workspace sizes decide which kernels may run, split-K among them",
    "NVIDIA_TF32": "TF32 for every CUDA library of the process",
    "CUDNN_": "cuDNN: choice of kernels",
    "NVTE_": "Transformer Engine: kernels and precision",
    "TRITON_": "Triton: F32 dot precision, compiler options",
    "TORCH": "PyTorch, TorchInductor, TorchDynamo: cuBLASLt preference, TF32 override, oneDNN thresholds",
    "PYTORCH_": "PyTorch: allocator and build options",
    "ATEN_": "ATen: vector instruction set on a CPU",
    "VLLM_": "vLLM: batch invariance and kernel choice",
    "SGL": "SGLang (SGLANG_*, SGL_*): DeepGEMM, batch-invariant operators",
    "DG_": "DeepGEMM: compiler options",
    "FLASHINFER_": "FlashInfer: kernel choice",
    "ONEDNN_": "oneDNN: instruction set, implicit downconversion",
    "DNNL_": "oneDNN, by its older name",
    "MKL_": "MKL: threads, conditional numerical reproducibility",
    "OMP_": "OpenMP: a sum over threads depends on their number",
    "GOMP_": "GNU's OpenMP runtime",
    "KMP_": "Intel's and LLVM's OpenMP runtime, deterministic reduction among others",
    "OPENBLAS_": "OpenBLAS: threads, core type",
    "NPY_": "NumPy: vector instruction sets",
}
NAMES = {
    "CUDA_FORCE_PTX_JIT": "machine code compiled by the driver instead of the library's own",
    "CUDA_DISABLE_PTX_JIT": "as CUDA_FORCE_PTX_JIT",
    "GLIBC_TUNABLES": "the C library's choice of exp, tanh and the like by instruction set",
    "LD_PRELOAD": "a preloaded library may replace a BLAS, an OpenMP runtime or the C library's mathematics",
}
# CUDA_VISIBLE_DEVICES, LD_LIBRARY_PATH and the rest of the environment stay: they say where things are, and
# the manifest records what was found there. These have a prefix of the above, but say no more than that.
PLACES = frozenset(
    {"TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "DG_JIT_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE"}
)
KNOWN = (
    "ATEN_CPU_CAPABILITY",
    "CUBLASLT_WORKSPACE_SIZE",
    "CUBLAS_WORKSPACE_CONFIG",
    "DNNL_DEFAULT_FPMATH_MODE",
    "DNNL_MAX_CPU_ISA",
    "KMP_DETERMINISTIC_REDUCTION",
    "MKL_CBWR",
    "MKL_NUM_THREADS",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_NUM_THREADS",
    "PYTORCH_CUDA_ALLOC_CONF",
    "SGLANG_ENABLE_JIT_DEEPGEMM",
    "SGL_ENABLE_JIT_DEEPGEMM",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_BLAS_PREFER_CUBLASLT",
    "TRITON_F32_DEFAULT",
    "VLLM_BATCH_INVARIANT",
)


def is_numeric(name: str) -> bool:
    """True when a variable of this name can change a result's bits (`PREFIXES`, `NAMES`)."""
    return name in NAMES or name.startswith(tuple(PREFIXES))


def scrub(environ: Mapping[str, str], variables: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The environment that a cell's process starts with, and the names that were removed to make it.

    Every variable that can change a bit is removed, then the mode's own `variables` are set. A name that the
    mode sets itself counts as removed too when the caller's environment had it.
    """
    scrubbed = sorted(name for name in environ if is_numeric(name))
    kept = {name: value for name, value in environ.items() if not is_numeric(name)}
    return kept | dict(variables), scrubbed


def read_back(variables: Mapping[str, str]) -> dict[str, str]:
    """The mode's variables as this process was started with them.

    Libraries read their variables once, often while they are loaded, so what counts is the environment at the
    process's start (`/proc/self/environ`; `os.environ` where there is no such file).

    Raises:
        AuditError: a variable is missing, has another value or was set after the start; or one that can
            change a bit is there though the mode does not name it.
    """
    start = _environment_at_start()
    for name, value in variables.items():
        for seen, where in ((start.get(name), "when the process started"), (os.environ.get(name), "now")):
            if seen != value:
                raise AuditError(
                    f"the mode sets {name}={value}, but {where} it is {_shown(seen)}; a variable must be set "
                    "before Python starts: start the cell through its rule or workflow_scripts.launch"
                )
    strays = sorted(
        name for name in start if is_numeric(name) and name not in variables and name not in PLACES
    )
    if strays:
        raise AuditError(
            f"{', '.join(strays)} can change bits and reached the cell's process, but the mode does not set "
            "it: start the cell through its rule, which removes such variables"
        )
    return {name: start[name] for name in sorted(variables)}


def variable_problem(name: str) -> str | None:
    """Why a mode's variable of this name can do nothing, with the names that were likely meant; or None."""
    known = [*KNOWN, *NAMES, *PLACES]
    if name in known:
        return None
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.92 if is_numeric(name) else 0.6)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    if not is_numeric(name):
        return (
            f"{name} is not a variable that changes bits{hint or '.'} A mode's variables begin with one of "
            f"{', '.join(PREFIXES)} or are one of {', '.join(NAMES)}"
        )
    return f"{name} looks like a misspelling{hint}" if close else None


def _environment_at_start() -> dict[str, str]:
    try:
        raw = Path("/proc/self/environ").read_bytes()
    except OSError:
        return dict(os.environ)
    entries = (entry.partition(b"=") for entry in raw.split(b"\0") if entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in entries}


def _shown(value: str | None) -> str:
    return "not set" if value is None else repr(value)
