"""Poison memory that is about to be handed out, so that an unwritten part of an output shows."""

import ctypes
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

BYTE = 0xFF
"""Every floating-point type reads it as NaN."""

_EMPTY = (
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.empty_strided.default,
    torch.ops.aten.empty_permuted.default,
    torch.ops.aten.empty_like.default,
    torch.ops.aten.new_empty.default,
    torch.ops.aten.new_empty_strided.default,
)
_SMALL_SEGMENT = (1 << 20, 1 << 20)
"""Two blocks that fill one of the 2 MiB segments from which the CUDA allocator serves small tensors."""


class _PoisonEmpty(TorchDispatchMode):
    """Fills what `torch.empty` and its kin return on a CPU; by memset, so that no operator is recorded."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _EMPTY and result.device.type == "cpu" and result.numel():
            storage = result.untyped_storage()
            ctypes.memset(storage.data_ptr(), BYTE, storage.nbytes())
        return result


@contextmanager
def poisoned(device: str, sizes: Iterable[int]) -> Iterator[None]:
    """Fill new memory with 0xFF bytes, within this context, where the candidate's allocation can be reached.

    Args:
        device: "cpu" or "cuda".
        sizes: bytes of the tensors that the candidate is about to allocate again. On CUDA all free blocks
            are given back to the driver, then blocks of these sizes are filled and freed: the caching
            allocator hands them out next.
    """
    if device == "cuda":
        torch.cuda.empty_cache()
        blocks = [torch.empty(n, dtype=torch.uint8, device=device) for n in (*sizes, *_SMALL_SEGMENT)]
        for block in blocks:
            block.fill_(BYTE)
        blocks.clear()
        yield
    else:
        with _PoisonEmpty():
            yield
