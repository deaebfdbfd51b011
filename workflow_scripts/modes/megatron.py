"""Megatron's switch with its backends te_native and triton, from a release or from a source tree."""

import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from workflow_scripts.errors import AuditError
from workflow_scripts.modes.library import ENTRY_POINT, LibrarySwitch, module_missing, version
from workflow_scripts.modes.switch import Config


class _Megatron(LibrarySwitch):
    """`enable_batch_invariant_mode(backend=...)` of Megatron-LM's main branch; releases take no `backend`.

    Every backend imports Transformer Engine after its overrides are in place, so where that import fails the
    process is half switched.
    """

    distribution = "megatron-core"
    modules = ("megatron.core.transformer.custom_layers.batch_invariant_kernels",)
    backend: str

    def _import(self, config: Config) -> ModuleType:
        source = config.get("megatron_source")
        if source is None:
            try:
                return super()._import(config)
            except AuditError as error:
                old = ".".join(map(str, sys.version_info[:3]))
                hint = (
                    f" (newer releases need Python 3.12, this is {old})" if sys.version_info < (3, 12) else ""
                )
                raise AuditError(f"{error}{hint}") from error
        root = Path(source).resolve()
        if not (root / "megatron" / "core").is_dir():
            raise AuditError(
                f"megatron_source: {source} is not a Megatron-LM source tree (no megatron/core in it)"
            )
        if str(root) not in sys.path:
            sys.path.insert(0, str(root))
        module = super()._import(config)
        if not Path(str(module.__file__)).resolve().is_relative_to(root):
            raise AuditError(
                f"megatron was imported from {module.__file__}, not from megatron_source {source}"
            )
        return module

    def _lacking(self, module: ModuleType) -> str | None:
        if "backend" in inspect.signature(getattr(module, ENTRY_POINT)).parameters:
            backends = getattr(module, "_BATCH_INVARIANT_BACKENDS", (self.backend,))
            if self.backend not in backends:
                return f"{self._library(module)} has no backend {self.backend}; it has {', '.join(backends)}"
        elif self.backend != "triton":
            return (
                f"{self._library(module)} has no backend {self.backend}: its switch takes no `backend`. "
                "Megatron-LM's main branch has it: name a source tree as `megatron_source` in the config"
            )
        try:
            importlib.import_module("transformer_engine.pytorch.cpp_extensions")
        except Exception as error:  # noqa: BLE001 - whatever it raises, the switch would raise half-way
            return f"Megatron's switch needs Transformer Engine: {type(error).__name__}: {error}"
        return None

    def _arguments(self, module: ModuleType) -> dict[str, str]:
        takes = inspect.signature(getattr(module, ENTRY_POINT)).parameters
        return {"backend": self.backend} if "backend" in takes else {}

    def _deviations(self, module: ModuleType) -> list[str]:  # noqa: ARG002 - the base's signature
        if module_missing("transformer_engine_torch") or version("transformer_engine") is None:
            return [
                "transformer_engine is a stand-in: it has no compiled torch extension or no package metadata"
            ]
        return []

    def _library(self, module: ModuleType) -> str:
        root = Path(str(module.__file__)).resolve().parents[4]
        commit = _git(root, "rev-parse", "HEAD") if (root / ".git").exists() else None
        if commit is None:
            found = getattr(sys.modules["megatron.core"], "__version__", "without a version")
            return f"{self.distribution} {found}"
        dirty = ", with changes" if _git(root, "status", "--porcelain", "--untracked-files=no") else ""
        return f"Megatron-LM at {commit}{dirty}"


class MegatronTeNative(_Megatron):
    """Native cuBLASLt kernels, kept from split-K by an empty workspace."""

    name = "megatron_te_native"
    backend = "te_native"


class MegatronTriton(_Megatron):
    """Triton's persistent matmul for mm and addmm."""

    name = "megatron_triton"
    backend = "triton"
    must_override = ("aten::mm", "aten::addmm")


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
