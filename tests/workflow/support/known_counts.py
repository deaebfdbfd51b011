"""How many elements of each tensor differ from those of plain, measured with torch 2.13 and two threads."""

from dataclasses import dataclass

TENSORS = ("out_0", "grad_temb", "grad_w", "grad_b")
AMX = frozenset({"avx512_bf16", "amx_bf16"})
NO_AMX = frozenset({"avx512_bf16"})


@dataclass(frozen=True)
class KnownCounts:
    """By mode: counts for each of TENSORS, one a case; rows of 4 (table, temb) that differ at 256."""

    differ: dict[str, tuple[list[int], ...]]
    rows_of_4: dict[str, tuple[int, int]]
    full_width: dict[str, tuple[list[int], ...]]


def _same(cases: int = 4) -> list[int]:
    return [0] * cases


# An Intel Xeon with AVX512-BF16 and AMX: oneDNN's default are AMX tiles.
XEON = KnownCounts(
    differ={
        "one_thread": (_same(), [0, 0, 5, 45], _same(), _same()),
        "onednn_avx512_bf16": ([1, 17, 247, 954], [0, 1, 22, 68], [0, 2, 580, 1429], _same()),
        "onednn_avx512": ([1, 15, 252, 921], [1, 1, 15, 71], [0, 2, 580, 1429], _same()),
        "aten_default": (_same(), [149, 650, 10018, 40432], _same(), _same()),
        "no_mkldnn": ([1, 11, 170, 671], [0, 2, 31, 122], [0, 2, 580, 1437], _same()),
    },
    rows_of_4={
        "plain": (2, 1),
        "one_thread": (2, 1),
        "onednn_avx512_bf16": (0, 0),
        "onednn_avx512": (0, 0),
        "aten_default": (2, 1),
        "no_mkldnn": (0, 0),
    },
    full_width={
        "one_thread": (_same(3), [0, 0, 59], _same(3), _same(3)),
        "onednn_avx512_bf16": ([19, 128, 1734], [0, 6, 90], [0, 81, 9012], _same(3)),
        "onednn_avx512": ([20, 115, 1605], [6, 5, 71], [0, 81, 9012], _same(3)),
    },
)

# An AMD EPYC (family 25, model 17; avx512_bf16, no AMX), 2 cores: oneDNN's default is AVX512-BF16 itself.
EPYC = KnownCounts(
    differ={
        "one_thread": (_same(), _same(), _same(), _same()),
        "onednn_avx512_bf16": (_same(), _same(), _same(), _same()),
        "onednn_avx512": ([2, 11, 193, 730], [1, 0, 15, 73], _same(), _same()),
        "aten_default": (_same(), [149, 650, 10019, 40434], _same(), _same()),
        "no_mkldnn": ([0, 15, 235, 931], [0, 3, 39, 137], [0, 2, 112, 499], _same()),
    },
    rows_of_4={
        "plain": (0, 0),
        "one_thread": (0, 0),
        "onednn_avx512_bf16": (0, 0),
        "onednn_avx512": (0, 0),
        "aten_default": (0, 0),
        "no_mkldnn": (0, 0),
    },
    full_width={},
)

KNOWN = {AMX: XEON, NO_AMX: EPYC}
