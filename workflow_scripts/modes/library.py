"""What the switches of libraries have in common: find the entry point, call it, prove that it took."""

import atexit
import contextlib
import ctypes
import importlib
import importlib.metadata
import importlib.util
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import torch

from workflow_scripts.errors import AuditError
from workflow_scripts.modes import dispatch
from workflow_scripts.modes.switch import (
    Config,
    HalfEnabledError,
    Thrown,
    torch_deviations,
)

ENTRY_POINT = "enable_batch_invariant_mode"


class LibrarySwitch(ABC):
    """A library's `enable_batch_invariant_mode`, wherever the installed release keeps it."""

    name: str
    distribution: ClassVar[str]
    modules: ClassVar[tuple[str, ...]]
    """Where releases keep the entry point, newest first."""
    must_override: tuple[str, ...] = ()
    """Operators without which a call that returned did not do its work."""

    def __init__(self) -> None:
        """A switch that has not been asked yet."""
        self._asked = False
        self._reason: str | None = None

    def unavailable(self, config: Config) -> str | None:
        """The exact reason why the switch cannot be thrown here; None when it can. Imports the library.

        Looks once: where the first import of a library failed, a second one finds half-imported parts, and
        may go through.
        """
        if not self._asked:
            self._asked, self._reason = True, self._look(config)
        return self._reason

    def _look(self, config: Config) -> str | None:
        if config["device"] != "cuda":
            return (
                f"the switch {self.name} needs a CUDA device, and this audit's device is {config['device']}"
            )
        if not torch.cuda.is_available():
            return f"no CUDA device: {self.name} would turn itself on for the CPU, or not at all"
        try:
            module = self._import(config)
        except AuditError as error:
            return str(error)
        return self._lacking(module)

    def throw(self, config: Config) -> Thrown:
        """Call the library's entry point, in a process of which `witness.before` has taken a snapshot.

        Raises:
            AuditError: unavailable; nothing was changed.
            HalfEnabledError: the call failed, or returned without having done its work.
        """
        if reason := self.unavailable(config):
            raise AuditError(reason)
        module = self._import(config)
        arguments = self._arguments(module)
        call = f"{module.__name__}.{ENTRY_POINT}({', '.join(f'{k}={v!r}' for k, v in arguments.items())})"
        own_triton_cache()
        table = dispatch.table(config["device"])
        try:
            getattr(module, ENTRY_POINT)(**arguments)
        except Exception as error:
            raise HalfEnabledError(f"{call} failed on the way: {type(error).__name__}: {error}") from error
        self._prove(module, call, dispatch.changed(table, dispatch.table(config["device"])))
        return Thrown(call, self._deviations(module) + torch_deviations(), self._library(module))

    @abstractmethod
    def _lacking(self, module: ModuleType) -> str | None:
        """Why this release cannot do it on this machine."""

    def _arguments(self, module: ModuleType) -> dict[str, str]:  # noqa: ARG002 - for subclasses
        return {}

    def _deviations(self, module: ModuleType) -> list[str]:  # noqa: ARG002 - for subclasses
        return []

    def _library(self, module: ModuleType) -> str:  # noqa: ARG002 - for subclasses
        """The library and its version, or the commit of its source tree."""
        return f"{self.distribution} {version(self.distribution) or 'without package metadata'}"

    def _prove(self, module: ModuleType, call: str, overridden: list[str]) -> None:
        """Raise HalfEnabledError unless the library says that it is on and `must_override` changed."""
        says = getattr(module, "is_batch_invariant_mode_enabled", None)
        enabled = says() if says else getattr(module, "_batch_invariant_MODE", None)
        if not enabled:
            raise HalfEnabledError(f"{call} returned, but the library does not say that the mode is on")
        missing = [operator for operator in self.must_override if operator not in overridden]
        if missing:
            raise HalfEnabledError(f"{call} returned, but did not override {', '.join(missing)}")

    def _import(self, config: Config) -> ModuleType:  # noqa: ARG002 - for subclasses
        """The first module of `modules` that exists and has the entry point.

        Raises:
            AuditError: none has, or the library is there and cannot be imported.
        """
        package = self.modules[0].partition(".")[0]
        for name in self.modules:
            try:
                module = importlib.import_module(name)
            except ModuleNotFoundError as error:
                if error.name and (name + ".").startswith(error.name + "."):
                    continue
                raise AuditError(
                    f"{package} is there, but needs a module that is not: {error.name}"
                ) from error
            except Exception as error:
                raise AuditError(
                    f"{package} is there, but cannot be imported: {type(error).__name__}: {error}"
                ) from error
            if callable(getattr(module, ENTRY_POINT, None)):
                return module
        installed = version(self.distribution)
        if installed is None and importlib.util.find_spec(package) is None:
            raise AuditError(f"{self.distribution} is not installed in this mode's environment")
        release = f"{self.distribution} {installed or '(no package metadata)'}"
        raise AuditError(f"{release} has no {ENTRY_POINT} in {' or '.join(self.modules)}")


def module_missing(name: str) -> bool:
    """True when no module of this name can be found; imports its parent packages, but not itself."""
    try:
        return importlib.util.find_spec(name) is None
    except (ImportError, ValueError):
        return True


def version(distribution: str) -> str | None:
    """Version of an installed distribution; None where it has no metadata."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(distribution)
    return None


def compiled_part(package: str, stem: str) -> str | None:
    """File name of a package's compiled module, `<stem>*.so` in its folder; None where there is none."""
    spec = importlib.util.find_spec(package)
    folders = (spec.submodule_search_locations if spec else None) or []
    found = sorted(path.name for folder in folders for path in Path(folder).glob(f"{stem}*.so"))
    return found[0] if found else None


def nvml_problem() -> str | None:
    """Why NVML, the driver's management library, cannot be used; None when it can."""
    try:
        code = ctypes.CDLL("libnvidia-ml.so.1").nvmlInit_v2()
    except OSError as error:
        return f"NVML cannot be loaded: {error}"
    return f"NVML does not start: nvmlInit returned {code}" if code else None


def own_triton_cache() -> None:
    """Give this process its own Triton cache, unless it was started with one; it goes when the process ends.

    SGLang would otherwise share one in the user's home, and other processes' kernels would be in it.
    """
    if "TRITON_CACHE_DIR" not in os.environ:
        folder = tempfile.mkdtemp(prefix="triton-cache-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        os.environ["TRITON_CACHE_DIR"] = folder
