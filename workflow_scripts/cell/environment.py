"""What a cell ran on, read in the cell itself."""

import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

LIBRARIES = (
    "torch", "triton", "diffusers", "vllm", "flashinfer-python", "sglang", "liger-kernel",
    "transformer_engine", "megatron-core",
)  # fmt: skip
INSTRUCTION_SETS = (
    "avx2", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16",
    "amx_tile", "amx_bf16", "asimd", "bf16", "sve",
)  # fmt: skip


def library_version(name: str) -> str | None:
    """Version of an installed distribution without its local part; None where it is absent."""
    try:
        return metadata.version(name).partition("+")[0]
    except metadata.PackageNotFoundError:
        return None


def cpu_flags() -> set[str]:
    """Instruction sets that the CPU reports, as named in /proc/cpuinfo."""
    text = Path("/proc/cpuinfo").read_text(errors="replace")
    lines = [line for line in text.splitlines() if line.startswith(("flags", "Features"))]
    return set(lines[0].partition(":")[2].split()) if lines else set()


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _driver() -> str | None:
    version = Path("/proc/driver/nvidia/version")
    if version.exists():
        words = version.read_text().split()
        return next((w for w in words if w.count(".") >= 1 and w.replace(".", "").isdigit()), None)
    return None


def _gpu() -> dict[str, Any]:
    if not torch.cuda.is_available():
        return {"gpu": None, "capability": None, "multiprocessors": None, "mig": None, "driver": None}
    device = torch.cuda.get_device_properties(0)
    return {
        "gpu": device.name,
        "capability": [device.major, device.minor],
        "multiprocessors": device.multi_processor_count,
        "mig": "MIG" in device.name,
        "driver": _driver(),
    }


def _tf32() -> bool:
    """Whether matrix products on a GPU may use TF32; `allow_tf32` raises once the newer flag was set."""
    return str(torch.backends.cuda.matmul.fp32_precision) == "tf32"


def describe(device: str) -> dict[str, Any]:
    """The environment of this process as the manifest records it. On a CPU the GPU's fields are null."""
    on_gpu = device == "cuda"
    flags = cpu_flags()
    gpu = _gpu() if on_gpu else dict.fromkeys(("gpu", "capability", "multiprocessors", "mig", "driver"))
    return {
        "device": device,
        **gpu,
        "torch": torch.__version__,
        "cuda": torch.version.cuda if on_gpu else None,
        "triton": library_version("triton"),
        "python": platform.python_version(),
        "tf32": _tf32(),
        "cpu": _cpu_name(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "instruction_sets": [name for name in INSTRUCTION_SETS if name in flags],
        "threads": torch.get_num_threads(),
        "libraries": {name: library_version(name) for name in LIBRARIES},
    }
