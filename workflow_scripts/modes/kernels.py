"""The kernels that really ran: the profiler's on a GPU; aten operators, oneDNN and MKL on a CPU."""

import contextlib
import ctypes
import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

# torch.profiler.profile wraps this one, and imports torch._dynamo: seconds of each process.
from torch.autograd.profiler import profile

from workflow_scripts.modes.kernel_names import shorten

# Operators that only describe or allocate; they compute nothing, and how many there are says nothing.
_PLUMBING = frozenset(
    f"aten::{name}"
    for name in (
        *("as_strided", "contiguous", "detach", "detach_", "empty", "empty_like", "empty_strided", "expand"),
        *(
            "flatten",
            "linear",
            "matmul",
            "permute",
            "reshape",
            "resize_",
            "resolve_conj",
            "resolve_neg",
            "result_type",
        ),
        *("select", "slice", "split", "squeeze", "t", "to", "transpose", "unsqueeze", "view"),
    )
)
_ONEDNN = re.compile(r"^onednn_verbose,.*?\bexec,[^,]+,([^,]+),([^,]+),", re.MULTILINE)
_MKL = re.compile(r"^MKL_VERBOSE (\w+)\(.*?(CNR:\S+)", re.MULTILINE)
_DEBUG = re.compile(r"^\s*(?://|\.loc|\.file|\$L__tmp\d+:)[^\n]*\n", re.MULTILINE)
_VERBOSE = re.compile(r"^(?:onednn_verbose|MKL_VERBOSE)[^\n]*\n?", re.MULTILINE)


class Record:
    """The names seen by one `record_kernels`; empty until it has ended."""

    names: list[str]

    def __init__(self) -> None:
        self.names = []


@contextlib.contextmanager
def record_kernels(device: str) -> Iterator[Record]:
    """Record the names of the kernels that run inside, sorted, each once, without addresses or times.

    Use one context around the forward call and another around the backward call. The first profiler pass of a
    process costs a second or so: record a run that is made anyway, such as the repetition.
    """
    record = Record()
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler writes its progress to stderr otherwise
    if device == "cuda":
        torch.cuda.synchronize()
        with profile(use_kineto=True, use_device="cuda") as profiler:
            yield record
            torch.cuda.synchronize()
        code = triton_code(os.environ.get("TRITON_CACHE_DIR"))
        record.names = sorted({_launch(event, code) for event in _events(profiler, "kernel")})
        return
    with (
        _captured_stdout() as text,
        _verbose_libraries(),
        profile(use_kineto=True) as profiler,
    ):
        yield record
    operators = {event["name"] for event in _events(profiler, "cpu_op")}
    arithmetic = {name for name in operators if "::" in name and "autograd::" not in name} - _PLUMBING
    record.names = sorted(arithmetic | library_kernels("".join(text)))


def library_kernels(verbose: str) -> set[str]:
    """What verbose lines name: `onednn matmul brg_matmul:avx512_core_bf16`, `mkl SGEMM CNR:OFF`."""
    found = {f"onednn {primitive} {implementation}" for primitive, implementation in _ONEDNN.findall(verbose)}
    return found | {f"mkl {function} {mode}" for function, mode in _MKL.findall(verbose)}


def triton_code(cache: str | None) -> dict[str, str]:
    """A digest, by kernel name, of the PTX of all kernels of that name in a Triton cache folder.

    Two modes may run Triton kernels of one name that compute differently (`TRITON_F32_DEFAULT`): their PTX
    tells. Debug lines do not count, as they name source paths. Without a folder of the process's own there is
    no digest: the shared cache holds other programs' kernels.
    """
    digests: dict[str, set[str]] = {}
    for path in Path(cache).glob("*/*.ptx") if cache else ():
        code = _DEBUG.sub("", path.read_text(encoding="utf-8").partition("\t.section\t.debug")[0])
        digests.setdefault(path.stem, set()).add(hashlib.sha256(code.encode()).hexdigest())
    return {
        name: hashlib.sha256("".join(sorted(of)).encode()).hexdigest()[:8] for name, of in digests.items()
    }


def _launch(event: dict[str, Any], code: dict[str, str]) -> str:
    """A kernel's short name, its PTX if it is Triton's, and its grid, which tells split-K factors apart."""
    name = shorten(event["name"])
    ptx = f" ptx {code[name]}" if name in code else ""
    grid = "x".join(str(size) for size in event.get("args", {}).get("grid", []))
    return f"{name}{ptx} grid {grid}" if grid else name + ptx


def _events(profiler: profile, category: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text(encoding="utf-8", errors="replace"))["traceEvents"]
    return [event for event in events if event.get("cat") == category]


@contextlib.contextmanager
def _verbose_libraries() -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        if torch.backends.mkldnn.is_available():
            stack.enter_context(torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON))
        if torch.backends.mkl.is_available():
            stack.enter_context(torch.backends.mkl.verbose(torch.backends.mkl.VERBOSE_ON))
        yield


@contextlib.contextmanager
def _captured_stdout() -> Iterator[list[str]]:
    """Collect what C code writes to file descriptor 1; what is no verbose line is written once it is over."""
    text: list[str] = []
    libc = ctypes.CDLL(None)
    sys.stdout.flush()
    libc.fflush(None)
    saved = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            yield text
        finally:
            sys.stdout.flush()
            libc.fflush(None)
            os.dup2(saved, 1)
            os.close(saved)
            file.seek(0)
            text.append(file.read().decode(errors="replace"))
            os.write(1, _VERBOSE.sub("", text[0]).encode())
