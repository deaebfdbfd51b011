"""Do two tensors have the same bits, and where not?

Blocks of 2^18 elements: `memcmp` tells equal ones at the speed of memory; only the others are looked at.
Memory is bounded by the block, whatever the tensors' size.
"""

import ctypes
import math
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from workflow_scripts.tensors.dtypes import Bits, Dtype, lookup
from workflow_scripts.tensors.dump import Dump
from workflow_scripts.tensors.tally import Tally

BLOCK = 1 << 18  # elements; two of them fit a core's level-2 cache
_RELEASE = 1 << 25  # bytes of a mapped dump after which its memory is given back

_libc = ctypes.CDLL(None)  # calls through ctypes let other threads run
_libc.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


@dataclass(frozen=True)
class Difference:
    """What a comparison of two tensors found.

    `differ` counts the elements whose raw bits differ, of `numel` in the first tensor; `max_abs` is the
    greatest absolute difference in float64 over the differing pairs of finite numbers, 0.0 if there is none.
    Where `reason` is "dtype" or "shape" nothing was counted: `differ` and `max_abs` are None.

    `detail`, None unless bits differ, is a JSON object: `first` (index, flat, a, b, a_bits, b_bits), `ulps`
    (histogram of distances between differing finite floats, None for integers), `signed_zeros` (pairs of +0
    and -0, which are not in the histogram), `nans` and `infinities` (on each side, of the differing
    elements), `rows` and `columns` (touched, of; all axes but the last make the rows), `density` (counts of
    differing elements on a coarse grid).
    """

    equal: bool
    differ: int | None
    numel: int
    max_abs: float | None
    reason: str | None = None
    detail: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """The fields as a JSON object."""
        return asdict(self)


@dataclass(frozen=True)
class _Blocks:
    """A tensor's elements in order, cut into rectangles: some whole rows, or a piece of one row."""

    rows: int
    columns: int
    size: int

    @property
    def height(self) -> int:
        """Rows of a block."""
        return max(self.size // self.columns, 1)

    @property
    def pieces(self) -> int:
        """Blocks side by side in a row."""
        return -(-self.columns // self.size)

    def __len__(self) -> int:
        return -(-self.rows // self.height) * self.pieces

    def __getitem__(self, i: int) -> tuple[int, int, int]:
        """First and last (exclusive) flat index, and width, of block i."""
        band, piece = divmod(i, self.pieces)
        row, column = band * self.height, piece * self.size
        start = row * self.columns + column
        if self.pieces > 1:
            width = min(self.size, self.columns - column)
            return start, start + width, width
        return start, min(row + self.height, self.rows) * self.columns, self.columns


def compare(a: Dump, b: Dump, *, detail: bool = True, threads: int = 2, block: int = BLOCK) -> Difference:
    """Compare two tensors bit by bit; neither `threads` nor `block` (elements) changes the result."""
    for reason, x, y in (("dtype", a.dtype, b.dtype), ("shape", a.shape, b.shape)):
        if x != y:
            return Difference(equal=False, differ=None, numel=a.numel, max_abs=None, reason=reason)
    dtype, numel = lookup(a.dtype), a.numel
    if not numel:
        return Difference(equal=True, differ=0, numel=0, max_abs=0.0)
    columns = a.shape[-1] if a.shape else 1
    blocks = _Blocks(numel // columns, columns, block)
    shares = [range(i * len(blocks) // threads, (i + 1) * len(blocks) // threads) for i in range(threads)]

    def count(share: range) -> Tally:
        tally = Tally(dtype, blocks.rows, columns, detail)
        _count(tally, a, b, (blocks[i] for i in share))
        return tally

    with ThreadPoolExecutor(threads) as pool:
        total, *others = pool.map(count, shares)
    for tally in others:
        total.merge(tally)
    found = _detail(total, a, b, dtype) if detail and total.differ else None
    return Difference(not total.differ, total.differ, numel, total.max_abs, detail=found)


def _count(tally: Tally, a: Dump, b: Dump, blocks: Iterable[tuple[int, int, int]]) -> None:
    itemsize = tally.dtype.raw.itemsize
    sides = [np.ascontiguousarray(dump.data) for dump in (a, b)]
    addresses = [side.ctypes.data for side in sides]
    bits: list[Bits] = [side.view(tally.dtype.raw) for side in sides]
    kept = end = 0
    for start, stop, width in blocks:
        low, end = start * itemsize, stop * itemsize
        if _libc.memcmp(addresses[0] + low, addresses[1] + low, end - low):
            tally.add(start, width, bits[0][start:stop], bits[1][start:stop])
        if end - kept >= _RELEASE:
            a.release(kept, end)
            b.release(kept, end)
            kept = end


def _detail(tally: Tally, a: Dump, b: Dump, dtype: Dtype) -> dict[str, Any]:
    marked = tally.rows == 1 or tally.columns_touched.size
    columns = tally.differ if tally.rows == 1 else int(np.count_nonzero(tally.columns_touched))
    is_float = dtype.kind == "float"
    return {
        "first": _first(tally.first or 0, a, b, dtype),
        "ulps": tally.ulps() if is_float else None,
        "signed_zeros": tally.signed_zeros,
        "nans": dict(zip("ab", tally.nans, strict=True)),
        "infinities": dict(zip("ab", tally.infinities, strict=True)),
        "rows": {"touched": tally.rows_touched, "of": tally.rows, "first": tally.first_rows},
        "columns": {"touched": columns if marked else None, "of": tally.columns},
        "density": tally.grid.tolist(),
    }


def _first(flat: int, a: Dump, b: Dump, dtype: Dtype) -> dict[str, Any]:
    index = [int(i) for i in np.unravel_index(flat, a.shape)]
    pair = {side: dump.data.view(dtype.raw)[flat : flat + 1] for side, dump in (("a", a), ("b", b))}
    values = {side: _as_json(dtype.values(bits)[0].item()) for side, bits in pair.items()}
    texts = {f"{side}_bits": f"{int(bits[0]):#0{dtype.width // 4 + 2}x}" for side, bits in pair.items()}
    return {"index": index, "flat": flat, **values, **texts}


def _as_json(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
