"""Small pictures of a difference: where it lies, how far it goes, which bits it touches."""

import math

from workflow_scripts.report.words import Json

LEVELS = 4
# Widths of sign, exponent and mantissa.
FIELDS = {"F16": (1, 5, 10), "BF16": (1, 8, 7), "F32": (1, 8, 23), "F64": (1, 11, 52)}
# Shares of differing elements, in percent, at which the matrix takes its next colour.
SHADES = (0.01, 0.1, 1.0, 10.0)


def density(grid: list[list[int]]) -> list[Json]:
    """A grid of counts as SVG paths, one a level of darkness, each cell a unit square.

    Levels are even steps of the logarithm of the count, so that a single element is still seen.

    Returns:
        {"level": 1 to `LEVELS`, "path": the `d` of an SVG path}; cells without differences are left out.
    """
    most = max((max(band) for band in grid if band), default=0)
    paths = dict.fromkeys(range(1, LEVELS + 1), "")
    for y, band in enumerate(grid):
        x = 0
        while x < len(band):
            level, start = _level(band[x], most), x
            while x < len(band) and _level(band[x], most) == level:
                x += 1
            if level:
                paths[level] += f"M{start} {y}h{x - start}v1h-{x - start}z"
    return [{"level": level, "path": path} for level, path in paths.items() if path]


def _level(count: int, most: int) -> int:
    return math.ceil(LEVELS * math.log1p(count) / math.log1p(most)) if count else 0


def shade(differ: int, numel: int) -> int:
    """Step of the matrix's colour scale: 0 for equal, 1 to 5 for growing shares."""
    percent = 100 * differ / numel if numel else 0.0
    return 1 + sum(percent > bound for bound in SHADES) if differ else 0


def bars(counts: Json) -> list[Json]:
    """A histogram as rows {"name", "count", "share"}; the share, of the largest count, is in percent."""
    most = max(counts.values(), default=0)
    return [{"name": name, "count": count, "share": 100 * count / most} for name, count in counts.items()]


def bit_rows(first: Json, dtype: str) -> list[list[Json]]:
    """Both bit patterns of the first difference, as fields of bits.

    Returns:
        One list for each side, of fields {"name", "bits"}; a bit is {"bit": "0" or "1", "other": bool}.
    """
    digits = (len(first["a_bits"]) - 2) * 4
    names = ("sign", "exponent", "mantissa") if dtype in FIELDS else ("bits",)
    widths = FIELDS.get(dtype, (digits,))
    patterns = [f"{int(first[side], 16):0{digits}b}" for side in ("a_bits", "b_bits")]
    return [_fields(pattern, patterns, names, widths) for pattern in patterns]


def _fields(pattern: str, both: list[str], names: tuple[str, ...], widths: tuple[int, ...]) -> list[Json]:
    fields, start = [], 0
    for name, width in zip(names, widths, strict=True):
        span = range(start, start + width)
        bits = [{"bit": pattern[i], "other": both[0][i] != both[1][i]} for i in span]
        fields.append({"name": name, "bits": bits})
        start += width
    return fields
