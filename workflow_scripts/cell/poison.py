"""Poison memory that is about to be handed out, so that an unwritten part of an output shows."""

import ctypes
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

BYTE = 0xFF
"""Every floating-point type reads it as NaN."""

_EMPTY = (
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.empty_strided.default,
    torch.ops.aten.empty_like.default,
    torch.ops.aten.new_empty.default,
    torch.ops.aten.new_empty_strided.default,
)


class _PoisonEmpty(TorchDispatchMode):
    """Fills what `torch.empty` and its kin return on a CPU. memset, so that no operator is recorded for it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _EMPTY and result.device.type == "cpu" and result.numel():
            storage = result.untyped_storage()
            ctypes.memset(storage.data_ptr(), BYTE, storage.nbytes())
        return result


@contextmanager
def poisoned(like: Iterable[Tensor]) -> Iterator[None]:
    """Within this context, new memory is filled with 0xFF bytes where the candidate's allocation can be reached.

    Args:
        like: tensors whose sizes the candidate is about to allocate again. On CUDA, blocks of these sizes are
            filled and given back to the caching allocator, which hands them out next.
    """
    blocks = [torch.empty_like(tensor) for tensor in like if tensor.is_cuda]
    for block in blocks:
        block.view(torch.uint8).fill_(BYTE)
    blocks.clear()
    with _PoisonEmpty():
        yield
