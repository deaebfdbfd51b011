"""vLLM's switch. It cannot be turned off again, and without CUDA it would enable itself for the CPU."""

import importlib
from types import ModuleType

import torch

from workflow_scripts.modes.library import LibrarySwitch, compiled_part, nvml_problem

# The release's compiled module registers well over a hundred operators; a stand-in has a few.
_FEWEST_OPERATORS = 20


class Vllm(LibrarySwitch):
    """`enable_batch_invariant_mode()` of vLLM: `determinism` since 0.30, `layers` before."""

    name = "vllm"
    distribution = "vllm"
    modules = (
        "vllm.model_executor.determinism.batch_invariant",
        "vllm.model_executor.layers.batch_invariant",
    )

    def _lacking(self, module: ModuleType) -> str | None:  # noqa: ARG002 - the base's signature
        platform = importlib.import_module("vllm.platforms").current_platform
        if not platform.is_cuda():
            cause = nvml_problem() or "it asks NVML, and needs its own package metadata"
            return f"vLLM finds no CUDA platform here, and would enable itself for the CPU ({cause})"
        capability = platform.get_device_capability()
        if capability is not None and capability[0] == 8:
            return (
                f"compute capability {capability[0]}.{capability[1]}: vLLM replaces aten::linear there by a "
                "kernel that has no backward, so no gradient can be had"
            )
        return None

    def _deviations(self, module: ModuleType) -> list[str]:  # noqa: ARG002 - the base's signature
        operators = sum(name.startswith("_C::") for name in torch._C._dispatch_get_all_op_names())  # noqa: SLF001
        found = compiled_part("vllm", "_C")
        if found is None:
            return ["vLLM's compiled module is absent or a stand-in written in Python"]
        if operators < _FEWEST_OPERATORS:
            return [f"vLLM's compiled module {found} is a stand-in: it registers {operators} operators"]
        return []
