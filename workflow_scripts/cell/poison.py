"""Poison memory that is about to be handed out, so that an unwritten part of an output shows.

Not by a dispatch mode around `torch.empty`: under one, torch.compile runs eagerly, so that other kernels run
and are recorded than in the first run.
"""

import ctypes
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

BYTE = 0xFE
"""Reads as -1.7e38 in bf16 and float32, as -1e4 in float16, as -6e303 in float64."""

_M_PERTURB = -6
"""mallopt(3): malloc fills what it hands out with the complement of this byte; 0 turns that off."""
_SMALL_SEGMENT = (1 << 20, 1 << 20)
"""Two blocks that fill one of the 2 MiB segments from which the CUDA allocator serves small tensors."""


@contextmanager
def poisoned(device: str, sizes: Iterable[int]) -> Iterator[None]:
    """Fill new memory with `BYTE`, in this context, where the candidate's allocation can be reached.

    On a CPU that is all that glibc's malloc hands out, tensors of torch and numpy among it.

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
    _perturb(BYTE ^ 0xFF)
    try:
        yield
    finally:
        _perturb(0)


def _perturb(byte: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # only glibc has it
    if mallopt is not None:
        mallopt(_M_PERTURB, byte)
