"""What the raw bits of each safetensors dtype mean."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from workflow_scripts.errors import AuditError

Bits = np.ndarray[Any, np.dtype[np.unsignedinteger[Any]]]
Values = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Dtype:
    """A dtype by its safetensors name.

    `raw` is the unsigned integer of the same width, `infinity` the bits of +inf (None for integers);
    a float's bits above it, sign aside, are NaNs.
    """

    name: str
    kind: Literal["float", "signed", "unsigned"]
    raw: np.dtype[np.unsignedinteger[Any]]
    infinity: int | None = None

    @property
    def width(self) -> int:
        """Number of bits."""
        return 8 * self.raw.itemsize

    def values(self, bits: Bits) -> Values:
        """The numbers that raw bits stand for, exactly: floats of 16 bits as float32, others as they are."""
        if self.name == "BF16":
            return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
        if self.name == "F16":
            return bits.view(np.float16).astype(np.float32)
        code = {"float": "f", "signed": "i", "unsigned": "u"}[self.kind]
        return bits.view(f"{code}{self.raw.itemsize}")


_DTYPES = (
    Dtype("F64", "float", np.dtype(np.uint64), 0x7FF0_0000_0000_0000),
    Dtype("F32", "float", np.dtype(np.uint32), 0x7F80_0000),
    Dtype("F16", "float", np.dtype(np.uint16), 0x7C00),
    Dtype("BF16", "float", np.dtype(np.uint16), 0x7F80),
    Dtype("I64", "signed", np.dtype(np.uint64)),
    Dtype("I32", "signed", np.dtype(np.uint32)),
    Dtype("I16", "signed", np.dtype(np.uint16)),
    Dtype("I8", "signed", np.dtype(np.uint8)),
    Dtype("U64", "unsigned", np.dtype(np.uint64)),
    Dtype("U32", "unsigned", np.dtype(np.uint32)),
    Dtype("U16", "unsigned", np.dtype(np.uint16)),
    Dtype("U8", "unsigned", np.dtype(np.uint8)),
    Dtype("BOOL", "unsigned", np.dtype(np.uint8)),
)
DTYPES = {dtype.name: dtype for dtype in _DTYPES}


def lookup(name: str) -> Dtype:
    """The dtype of a safetensors name; AuditError names the known ones otherwise."""
    if name not in DTYPES:
        raise AuditError(f"dtype {name!r} can't be compared; known are {', '.join(DTYPES)}")
    return DTYPES[name]
