"""Between torch tensors and the raw bytes that are hashed, stored and compared."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workflow_scripts.tensors import dump

DTYPES = {
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "F32": torch.float32,
    "F64": torch.float64,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def buffer_of(tensor: Tensor) -> NDArray[np.uint8]:
    """The logical contiguous bytes of a tensor, on the host, as uint8 [nbytes]; no copy where it is so already."""
    array: NDArray[np.uint8] = tensor.detach().contiguous().cpu().flatten().view(torch.uint8).numpy()
    return array


def load_rows(path: Path, rows: int | None) -> Tensor:
    """A dumped tensor, or its first rows, as a private copy-on-write mapping.

    What a candidate writes into it reaches neither the file nor another process.
    """
    opened = dump.open_dump(path)
    shape = list(opened.shape)
    if rows is not None:
        shape[0] = rows
    dtype = DTYPES[opened.dtype]
    count = int(np.prod(shape, dtype=np.int64))
    private = np.memmap(path, dtype=np.uint8, mode="c", offset=opened.offset, shape=(count * dtype.itemsize,))
    return torch.from_numpy(private).view(dtype).view(shape)
