"""Finding, checking and loading the built libraries."""

import ctypes
import functools
import hashlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from kernels.adaln_projection.machine_code import code_digest
from workflow_scripts.errors import AuditError

Change = Literal["nothing", "comments", "program"]
PACKAGE = Path(__file__).resolve().parent
SOURCES = {"cpu": ("*.cpp", "reference*.h"), "cuda": ("*.cu", "*.cuh", "abi.h")}
FILES = {"cpu": "libadaln_cpu.so", "cuda": "libadaln_cuda.so"}

_POINTER, _SIZE, _INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
_SIZES = [_SIZE, _SIZE, _SIZE]
_SIGNATURES: dict[str, dict[str, tuple[Any, list[Any]]]] = {
    "cpu": {
        "adaln_cpu_forward": (_INT, [_POINTER] * 4 + _SIZES + [_INT] * 3),
        "adaln_cpu_backward": (_INT, [_POINTER] * 6 + _SIZES + [_INT] * 2),
    },
    "cuda": {
        "adaln_cuda_forward_scratch_bytes": (_SIZE, _SIZES),
        "adaln_cuda_forward": (_INT, [_POINTER] * 5 + _SIZES + [_POINTER]),
        "adaln_cuda_d_act": (_INT, [_POINTER] * 3 + _SIZES + [_POINTER]),
        "adaln_cuda_d_weight_bias": (_INT, [_POINTER] * 4 + _SIZES + [_POINTER]),
        "adaln_cuda_error": (ctypes.c_char_p, [_INT]),
    },
}


def source_digest(target: str, package: Path = PACKAGE) -> str:
    """sha256 (hex) of the names and contents of a target's source files."""
    return _digest({path.name: path.read_bytes() for path in sources(target, package)})


def program_digest(target: str, package: Path = PACKAGE) -> str:
    """As source_digest, of the sources without their comments and without the lengths of their blanks."""
    programs = {path.name: _LEFT_OUT.sub(_kept, path.read_bytes()) for path in sources(target, package)}
    return _digest({name: b" ".join(program.split()) for name, program in programs.items()})


def what_changed(directory: Path, targets: Iterable[str], package: Path = PACKAGE) -> Change:
    """How the sources differ from those of the libraries in `directory`: in the program if there are none.

    "comments" is a forecast, which the next build's code digest confirms.
    """
    try:
        built = build_record(directory)["libraries"]
        edited = [t for t in targets if source_digest(t, package) != built[t]["source_digest"]]
        same_program = [program_digest(t, package) == built[t]["program_digest"] for t in edited]
    except (AuditError, ValueError, LookupError, TypeError):
        return "program"
    if not all(same_program):
        return "program"
    return "comments" if edited else "nothing"


_LEFT_OUT = re.compile(rb"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'""", re.DOTALL)
"""Comments, and what only looks like one: strings and characters, which are kept."""


def _kept(match: re.Match[bytes]) -> bytes:
    return b" " if match[0].startswith(b"/") else match[0]


def sources(target: str, package: Path = PACKAGE) -> list[Path]:
    """A target's source files."""
    return sorted({path for pattern in SOURCES[target] for path in package.glob(pattern)})


def _digest(contents: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, content in contents.items():
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def default_directory() -> Path:
    """Where the libraries are: $ADALN_KERNEL_DIR, or else build/ beside the sources."""
    return Path(os.environ.get("ADALN_KERNEL_DIR") or PACKAGE / "build")


def build_record(directory: Path) -> dict[str, Any]:
    """What build.json says of the libraries in `directory`.

    Raises:
        AuditError: there is none.
    """
    path = directory / "build.json"
    try:
        record: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        raise AuditError(f"the kernel is not built: there is no {path}. {_how_to_build(directory)}") from None
    return record


def missing_compiler(target: str, directory: Path | None = None) -> str | None:
    """Why the library of a target could not be built where the others were; None when it was.

    Raises:
        AuditError: nothing is built.
    """
    reason: str | None = build_record(directory or default_directory()).get("missing", {}).get(target)
    return reason


def load(target: str, directory: Path | None = None) -> ctypes.CDLL:
    """The library of a target, "cpu" or "cuda", with its functions' signatures set.

    Raises:
        AuditError: it is not built, is not the one that build.json describes, or is older than its sources.
    """
    return _load(target, (directory or default_directory()).resolve())


@functools.cache
def _load(target: str, directory: Path) -> ctypes.CDLL:
    if reason := missing_compiler(target, directory):
        raise AuditError(f"the {target} kernel is not built: {reason}")
    recorded = build_record(directory)["libraries"][target]
    path = directory / FILES[target]
    if recorded is None or not path.exists():
        raise AuditError(f"the {target} kernel is not built: there is no {path}. {_how_to_build(directory)}")
    if code_digest(path, target) != recorded["code_digest"]:
        raise AuditError(f"{path} is not the library that build.json describes. {_how_to_build(directory)}")
    if program_digest(target) != recorded["program_digest"]:  # a comment changes no bit
        raise AuditError(f"{path} is older than the sources in {PACKAGE}. {_how_to_build(directory)}")
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise AuditError(f"{path} can't be loaded here: {error}. {_how_to_build(directory)}") from None
    for name, (result, arguments) in _SIGNATURES[target].items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _how_to_build(directory: Path) -> str:
    command = f"python -P -m kernels.adaln_projection.build --out {directory} --targets cpu|cuda|both"
    return f"Build it, from the root of the repository, with: {command}"
