"""SGLang's switch: Triton's persistent matmul for mm and addmm, or DeepGEMM where it can be imported."""

from types import ModuleType

from workflow_scripts.modes.library import LibrarySwitch, module_missing


class Sglang(LibrarySwitch):
    """`enable_batch_invariant_mode()` of SGLang."""

    name = "sglang"
    distribution = "sglang"
    modules = ("sglang.srt.batch_invariant_ops.batch_invariant_ops",)
    must_override = ("aten::mm", "aten::addmm")

    def _lacking(self, module: ModuleType) -> str | None:  # noqa: ARG002 - the base's signature
        return None

    def _deviations(self, module: ModuleType) -> list[str]:
        if hasattr(module, "ENABLE_JIT_DEEPGEMM") and module_missing("deep_gemm"):
            return [
                "DeepGEMM, which SGLang installs, is absent: the forward runs Triton's matmul in its place"
            ]
        return []
