"""What is counted where bits differ: how many, how far apart, and where."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from workflow_scripts.tensors.dtypes import Bits, Dtype, Values

GRID = (16, 64)  # rows and columns of the density map, at the most
FIRST_ROWS = 8
FINEST_COLUMNS = 1 << 24  # with more columns the touched ones are not marked: that would take the memory
_PIECE = 1 << 14  # elements whose values are looked at together: temporaries stay in the cache and the heap
_GREATEST = float(np.finfo(np.float64).max)
_OCTAVES = 20  # of the ulp histogram, beyond which all is one class

Mask = np.ndarray[Any, np.dtype[np.bool_]]


def ulp_distance(dtype: Dtype, a: Bits, b: Bits) -> Bits:
    """Steps from a to b on the ordered line of a dtype's finite values, on which +0 and -0 are one point.

    A float's bits are a sign and a magnitude, and magnitudes are ordered as integers: on one side of zero
    the distance is the difference of magnitudes, across it their sum. It fits the unsigned integer of that
    width. For integers it is |a - b|.
    """
    top = a.dtype.type(1 << (dtype.width - 1))
    if dtype.kind == "float":
        across = (a ^ b) >= top
        a, b = a & ~top, b & ~top
        low, high = np.minimum(a, b), np.maximum(a, b)
        steps: Bits = high - low + across * (low + low)
        return steps
    if dtype.kind == "signed":
        a, b = a ^ top, b ^ top
    return np.maximum(a, b) - np.minimum(a, b)


def greatest_difference(a: Values, b: Values) -> float:
    """Greatest |a - b| of finite floats: float64, rounded once, and held below its infinity."""
    with np.errstate(over="ignore"):
        gap = np.subtract(a, b, dtype=np.float64)
    return min(float(np.abs(gap, out=gap).max()), _GREATEST)


@dataclass
class Tally:
    """Counts over blocks of a pair of tensors, seen as `rows` by `columns` elements; see `Difference`."""

    dtype: Dtype
    rows: int
    columns: int
    detail: bool
    differ: int = 0
    first: int | None = None
    max_abs: float = 0.0
    octaves: list[int] = field(default_factory=lambda: [0] * (_OCTAVES + 2))
    signed_zeros: int = 0
    nans: list[int] = field(default_factory=lambda: [0, 0])
    infinities: list[int] = field(default_factory=lambda: [0, 0])
    rows_touched: int = 0
    first_rows: list[int] = field(default_factory=list)
    last_row: int = -1

    def __post_init__(self) -> None:
        """Make room for the marks of where bits differ."""
        down, across = min(self.rows, GRID[0]), min(self.columns, GRID[1])
        self.grid = np.zeros((down, across), np.int64)
        self.tops = [-(-i * self.rows // down) for i in range(down + 1)]
        self.lefts = np.array([-(-j * self.columns // across) for j in range(across)])
        marked = self.detail and self.rows > 1 and self.columns <= FINEST_COLUMNS
        self.columns_touched = np.zeros(self.columns if marked else 0, np.bool_)

    def add(self, start: int, width: int, a: Bits, b: Bits) -> None:
        """Count a block from flat index `start`: some whole rows, or `width` elements of one row."""
        mask = a != b
        count = int(np.count_nonzero(mask))
        if not count:
            return
        self.differ += count
        if self.first is None:
            self.first = start + int(mask.argmax())
        if self.detail:
            self._place(start, mask.reshape(-1, width))
        if count < mask.size:
            where = np.flatnonzero(mask)
            a, b = a[where], b[where]
        for piece in range(0, a.size, _PIECE):
            self._measure(a[piece : piece + _PIECE], b[piece : piece + _PIECE])

    def _place(self, start: int, mask: Mask) -> None:
        row, column = divmod(start, self.columns)
        touched = (row + np.flatnonzero(mask.any(axis=1))).tolist()
        self._touch(touched, len(touched))
        if self.columns_touched.size:
            self.columns_touched[column : column + mask.shape[1]] |= mask.any(axis=0)
        self._shade(row, column, mask)

    def _touch(self, first: list[int], count: int) -> None:
        """Count rows, given in order; a wide row comes in several blocks and counts once."""
        self.rows_touched += count - (first[0] == self.last_row)
        if len(self.first_rows) < FIRST_ROWS:
            self.first_rows += [row for row in first if row != self.last_row]
            del self.first_rows[FIRST_ROWS:]
        self.last_row = first[-1]

    def _shade(self, row: int, column: int, mask: Mask) -> None:
        """Add to the density map: element (r, c) is of cell (r * down // rows, c * across // columns)."""
        (down, across), (height, width) = self.grid.shape, mask.shape
        left, right = (x * across // self.columns for x in (column, column + width - 1))
        starts = np.maximum(self.lefts[left : right + 1] - column, 0)
        for i in range(row * down // self.rows, (row + height - 1) * down // self.rows + 1):
            band = mask[max(self.tops[i] - row, 0) : self.tops[i + 1] - row]
            counts = band.sum(axis=0, dtype=np.uint32) if len(band) > 1 else band[0]
            self.grid[i, left : right + 1] += np.add.reduceat(counts, starts, dtype=np.int64)

    def _measure(self, a: Bits, b: Bits) -> None:
        infinity = self.dtype.infinity
        if infinity is not None:
            a, b = self._finite(a, b, infinity)
        if not a.size:
            return
        steps = ulp_distance(self.dtype, a, b)
        if infinity is None:
            self.max_abs = max(self.max_abs, float(steps.max()))
            return
        self.max_abs = max(self.max_abs, greatest_difference(self.dtype.values(a), self.dtype.values(b)))
        if self.detail:
            self._octaves(steps)

    def _finite(self, a: Bits, b: Bits, infinity: int) -> tuple[Bits, Bits]:
        """Count NaNs and infinities; the pairs in which both are finite."""
        limit = a.dtype.type(infinity)
        sign = a.dtype.type(1 << (self.dtype.width - 1))
        sizes = a & ~sign, b & ~sign
        if max(size.max() for size in sizes) < limit:
            return a, b
        for side, size in enumerate(sizes):
            self.nans[side] += int(np.count_nonzero(size > limit))
            self.infinities[side] += int(np.count_nonzero(size == limit))
        where = np.flatnonzero((sizes[0] < limit) & (sizes[1] < limit))
        return a[where], b[where]

    def _octaves(self, steps: Bits) -> None:
        """Histogram of distances: 0 (a pair of signed zeros), 1, 2, 3-4, 5-8, ..., all beyond the last."""
        beyond = int(np.count_nonzero(steps))
        self.signed_zeros += steps.size - beyond
        last = min(_OCTAVES, self.dtype.width - 1)
        for k in range(last + 1):
            further = int(np.count_nonzero(steps > steps.dtype.type(1 << k)))
            self.octaves[k] += beyond - further
            beyond = further
            if not beyond:
                return
        self.octaves[last + 1] += beyond

    def merge(self, other: "Tally") -> None:
        """Add the counts of the blocks that follow."""
        self.differ += other.differ
        if self.first is None:
            self.first = other.first
        self.max_abs = max(self.max_abs, other.max_abs)
        self.octaves = [x + y for x, y in zip(self.octaves, other.octaves, strict=True)]
        self.signed_zeros += other.signed_zeros
        self.nans = [x + y for x, y in zip(self.nans, other.nans, strict=True)]
        self.infinities = [x + y for x, y in zip(self.infinities, other.infinities, strict=True)]
        self.columns_touched |= other.columns_touched
        self.grid += other.grid
        if other.rows_touched:
            last = other.last_row
            self._touch(other.first_rows, other.rows_touched)
            self.last_row = last

    def ulps(self) -> dict[str, int]:
        """The histogram's classes that are not empty: {"1": n, "2": n, "3-4": n, ..., ">2^20": n}."""
        names = ["1", "2", *(f"{2 ** (k - 1) + 1}-{2**k}" for k in range(2, _OCTAVES + 1)), f">2^{_OCTAVES}"]
        return {name: count for name, count in zip(names, self.octaves, strict=True) if count}
