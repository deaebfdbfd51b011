"""The bit comparison against a naive one, element by element in Python integers and fractions."""

import struct
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workflow_scripts.tensors import bits
from workflow_scripts.tensors.dtypes import DTYPES
from workflow_scripts.tensors.dump import Dump
from workflow_scripts.tensors.tally import ulp_distance

FLOATS = {
    "BF16": (16, 8, 7),
    "F16": (16, 5, 10),
    "F32": (32, 8, 23),
    "F64": (64, 11, 52),
}  # width, exponent, mantissa
INTEGERS = {"I8": 8, "I16": 16, "I32": 32, "I64": 64, "U8": 8, "U16": 16, "U32": 32, "U64": 64}
CODES = {8: "B", 16: "H", 32: "I", 64: "Q"}


def value(dtype, pattern):
    """The number that a pattern stands for, as a fraction; "nan" or "inf" where it is none."""
    if dtype in INTEGERS:
        width = INTEGERS[dtype]
        negative = dtype[0] == "I" and pattern >> (width - 1)
        return Fraction(pattern - (1 << width) if negative else pattern)
    width, exponents, mantissas = FLOATS[dtype]
    sign = -1 if pattern >> (width - 1) else 1
    exponent = (pattern >> mantissas) & ((1 << exponents) - 1)
    mantissa = pattern & ((1 << mantissas) - 1)
    if exponent == (1 << exponents) - 1:
        return "nan" if mantissa else "inf"
    bias = (1 << (exponents - 1)) - 1
    whole = mantissa + (1 << mantissas) if exponent else mantissa
    return sign * whole * Fraction(2) ** (max(exponent, 1) - bias - mantissas)


def steps(dtype, a, b):
    """How many representable numbers one passes on the way from a to b."""
    top = 1 << (FLOATS[dtype][0] - 1)
    line = [-(x - top) if x >= top else x for x in (a, b)]
    return abs(line[0] - line[1])


def octave(distance):
    """Name of the histogram's class, found by walking up."""
    low, high = 1, 1
    while high < distance:
        low, high = high + 1, high * 2
    if high > 1 << 20:
        return ">2^20"
    return str(high) if low == high else f"{low}-{high}"


def cells(grid, size):
    """Which part of `grid` each of `size` indices belongs to."""
    return [i * grid // size for i in range(size)]


def naive(dtype, shape, a, b):
    """Everything that `Difference` holds, the slow way."""
    places = [i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
    values = [(value(dtype, a[i]), value(dtype, b[i])) for i in places]
    finite = [
        (i, x, y) for i, (x, y) in zip(places, values, strict=True) if {x, y}.isdisjoint({"nan", "inf"})
    ]
    gaps = [min(abs(x - y), Fraction(1.7976931348623157e308)) for _, x, y in finite]
    ulps = {}
    for i, _, _ in finite if dtype in FLOATS else []:
        if distance := steps(dtype, a[i], b[i]):
            ulps[octave(distance)] = ulps.get(octave(distance), 0) + 1
    columns = shape[-1] if shape else 1
    rows = len(a) // columns
    density = np.zeros((min(rows, 16), min(columns, 64)), int)
    for i in places:
        density[cells(len(density), rows)[i // columns], cells(density.shape[1], columns)[i % columns]] += 1
    touched = sorted({i // columns for i in places})
    return {
        "differ": len(places),
        "max_abs": max((float(gap) for gap in gaps), default=0.0),
        "first": places[0] if places else None,
        "ulps": ulps,
        "signed_zeros": sum(x == y == 0 for _, x, y in finite),
        "nans": {side: sum(pair[k] == "nan" for pair in values) for k, side in enumerate("ab")},
        "infinities": {side: sum(pair[k] == "inf" for pair in values) for k, side in enumerate("ab")},
        "rows": {"touched": len(touched), "of": rows, "first": touched[:8]},
        "columns": {"touched": len({i % columns for i in places}), "of": columns},
        "density": density.tolist(),
    }


@st.composite
def pairs(draw):
    """Two tensors of one dtype and shape, mostly alike, with the patterns that go wrong most easily."""
    dtype = draw(st.sampled_from([*FLOATS, *INTEGERS]))
    width = FLOATS[dtype][0] if dtype in FLOATS else INTEGERS[dtype]
    top = 1 << (width - 1)
    special = [0, 1, top, top + 1, top - 1, 2 * top - 1]
    if dtype in FLOATS:
        infinity = (top - 1) >> FLOATS[dtype][2] << FLOATS[dtype][2]
        special += [
            infinity,
            infinity + 1,
            infinity - 1,
            infinity | top,
            infinity + 1 | top,
            infinity - 1 | top,
        ]
    patterns = st.sampled_from(special) | st.integers(0, 2 * top - 1)
    shape = draw(st.lists(st.integers(1, 7), max_size=3).map(tuple))
    numel = int(np.prod(shape))
    a = draw(st.lists(patterns, min_size=numel, max_size=numel))
    nearby = st.integers(-9, 9).map(lambda step: step % (2 * top))
    changes = (
        st.none() | st.none() | nearby.map(lambda step: ("near", step)) | patterns.map(lambda x: ("far", x))
    )
    b = []
    for x in a:
        change = draw(changes)
        kind, number = change or ("near", 0)
        b.append((x + number) % (2 * top) if kind == "near" else number)
    return dtype, shape, a, b


def dump_of(dtype, shape, patterns):
    width = FLOATS[dtype][0] if dtype in FLOATS else INTEGERS[dtype]
    packed = struct.pack(f"<{len(patterns)}{CODES[width]}", *patterns)
    return Dump(dtype, shape, np.frombuffer(packed, np.uint8))


@settings(max_examples=300, deadline=None)
@given(pairs(), st.integers(1, 4), st.integers(1, 9))
def test_agrees_with_the_naive_comparison(pair, threads, block):
    dtype, shape, a, b = pair
    expected = naive(dtype, shape, a, b)
    found = bits.compare(dump_of(dtype, shape, a), dump_of(dtype, shape, b), threads=threads, block=block)
    assert found.equal is (expected["differ"] == 0)
    assert (found.differ, found.numel) == (expected["differ"], len(a))
    assert found.max_abs == expected["max_abs"]
    assert found == bits.compare(dump_of(dtype, shape, a), dump_of(dtype, shape, b), threads=1)
    if found.equal:
        assert found.detail is None
        return
    assert found.detail["first"]["flat"] == expected["first"]
    assert int(found.detail["first"]["a_bits"], 16) == a[expected["first"]]
    assert int(found.detail["first"]["b_bits"], 16) == b[expected["first"]]
    assert found.detail["ulps"] == (expected["ulps"] if dtype in FLOATS else None)
    same = ("nans", "infinities", "rows", "columns", "density") + (
        ("signed_zeros",) if dtype in FLOATS else ()
    )
    for name in same:
        assert found.detail[name] == expected[name], name


def test_threads_and_block_sizes_never_change_a_result():
    generator = np.random.default_rng(7)
    for shape in ((997,), (37, 29), (1, 1000), (1000, 1), (3, 5, 64)):
        a = generator.integers(0, 1 << 16, shape, dtype=np.uint16)
        b = np.where(generator.random(shape) < 0.2, a ^ np.uint16(1 << 15), a)
        sides = [Dump("BF16", shape, np.ascontiguousarray(x).reshape(-1).view(np.uint8)) for x in (a, b)]
        expected = bits.compare(*sides, threads=1)
        assert expected.differ == np.count_nonzero(a != b)
        for threads, block in product((1, 2, 3, 8), (1, 2, 13, 64, 1000, 1 << 18)):
            assert bits.compare(*sides, threads=threads, block=block) == expected


@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_distances_are_ranks_on_the_line_of_all_finite_numbers(dtype):
    """Every finite 16-bit number, sorted by value; equal values (the two zeros) share a rank."""
    patterns = np.arange(1 << 16, dtype=np.uint16)
    values = DTYPES[dtype].values(patterns)
    finite = np.isfinite(values)
    patterns, values = patterns[finite], values[finite]
    _, ranks = np.unique(values, return_inverse=True)
    generator = np.random.default_rng(3)
    for _ in range(20):
        others = generator.permutation(len(patterns))
        expected = np.abs(ranks - ranks[others])
        assert np.array_equal(ulp_distance(DTYPES[dtype], patterns, patterns[others]), expected)
