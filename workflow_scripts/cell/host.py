"""Between torch tensors and the raw bytes that are hashed, stored and compared."""

import hashlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workflow_scripts.errors import CorruptDumpError
from workflow_scripts.tensors import dump
from workflow_scripts.tensors.digest import sha256_of

PIECE = 1 << 25
"""Bytes copied from a GPU at a time."""

DTYPES = {
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "F32": torch.float32,
    "F64": torch.float64,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def buffer_of(tensor: Tensor) -> NDArray[np.uint8]:
    """The logical contiguous bytes of a tensor, on the host, as uint8 [nbytes]; a copy only where needed."""
    array: NDArray[np.uint8] = tensor.detach().contiguous().cpu().flatten().view(torch.uint8).numpy()
    return array


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same dtype, shape and raw bits, NaN payloads and signs of zero too."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    bits = _BITS[a.element_size()]
    return torch.equal(a.contiguous().view(bits), b.contiguous().view(bits))


def copy_and_hash(tensor: Tensor) -> tuple[NDArray[np.uint8], str]:
    """The logical contiguous bytes of a tensor on the host, uint8 [nbytes], and their SHA-256 as hex.

    From a GPU they arrive in pieces in pinned memory; a piece is hashed while the next ones are on their way.
    """
    if not tensor.is_cuda:
        data = buffer_of(tensor)
        return data, sha256_of(data)
    source = tensor.detach().contiguous().flatten().view(torch.uint8)
    host = torch.empty(source.shape, dtype=torch.uint8, pin_memory=True)
    arrived: list[tuple[int, torch.cuda.Event]] = []
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for start in range(0, source.numel(), PIECE):
            host[start : start + PIECE].copy_(source[start : start + PIECE], non_blocking=True)
            arrived.append((start, stream.record_event()))
    data, digest = host.numpy(), hashlib.sha256()
    for start, event in arrived:
        event.synchronize()
        digest.update(data[start : start + PIECE].data)
    return data, digest.hexdigest()


def load_rows(path: Path, rows: int | None) -> Tensor:
    """A dumped tensor, or its first rows, as a private copy-on-write mapping.

    What a candidate writes into it reaches neither the file nor another process.

    Raises:
        CorruptDumpError: the file is not a dump, or has fewer rows.
    """
    opened = dump.open_dump(path)
    shape = list(opened.shape)
    if rows is not None:
        if not shape or shape[0] < rows:
            raise CorruptDumpError(f"{path}: has shape {shape}, fewer than {rows} rows")
        shape[0] = rows
    if opened.dtype not in DTYPES:
        raise CorruptDumpError(f"{path}: has dtype {opened.dtype}; expected one of {', '.join(DTYPES)}")
    dtype = DTYPES[opened.dtype]
    count = int(np.prod(shape, dtype=np.int64))
    private = np.memmap(path, dtype=np.uint8, mode="c", offset=opened.offset, shape=(count * dtype.itemsize,))
    return torch.from_numpy(private).view(dtype).view(shape)
