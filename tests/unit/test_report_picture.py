"""Pictures and words of one difference."""

import pytest

from workflow_scripts.report.diagnosis import facts, headline
from workflow_scripts.report.picture import bars, bit_rows, density, shade
from workflow_scripts.report.words import listing, places, rows, share


def found(differ, numel=40, **detail):
    """A comparison of tensors of 4 rows and 10 columns."""
    base = {
        "first": {},
        "ulps": {},
        "signed_zeros": 0,
        "nans": {"a": 0, "b": 0},
        "infinities": {"a": 0, "b": 0},
        "rows": {"touched": 2, "of": 4, "first": [0, 3]},
        "columns": {"touched": 3, "of": 10},
        "density": [],
    }
    measures = {"equal": differ == 0, "differ": differ, "numel": numel, "max_abs": 0.5, "reason": None}
    return measures | {"detail": base | detail if differ else None}


@pytest.mark.parametrize(
    ("comparison", "words"),
    [
        (found(0), "equal, bit for bit"),
        (found(0) | {"equal": False, "reason": "dtype"}, "another dtype: the elements were not compared"),
        (found(0) | {"equal": False, "reason": "shape"}, "another shape: the elements were not compared"),
        (found(3, signed_zeros=3), "signed zeros only: +0 on one side, -0 on the other"),
        (found(3, nans={"a": 3, "b": 3}), "NaN payloads only: NaN on both sides, with other bits"),
        (found(3, nans={"a": 3, "b": 0}), "differs in some elements"),
        (found(3, ulps={"1": 3}), "differs by one unit in the last place"),
        (found(3, ulps={"1": 2, "5-8": 1}), "differs by at most 8 units in the last place"),
        (found(3, ulps={">2^20": 3}), "differs by more than 2^20 units in the last place at the farthest"),
        (found(3, ulps={"1": 2}, signed_zeros=1), "differs in some elements"),
        (found(10, rows={"touched": 1, "of": 4, "first": [2]}), "differs in a whole row (2)"),
        (found(20, ulps={"1": 20}), "differs in whole rows (0 and 3), by one unit in the last place"),
        (found(4, columns={"touched": 1, "of": 10}), "differs in a whole column"),
        (found(40), "differs in every element"),
    ],
)
def test_headline_names_the_thing(comparison, words):
    assert headline(comparison) == words


def test_facts_count_everything_that_differs():
    comparison = found(7, ulps={"1": 4}, signed_zeros=1, nans={"a": 1, "b": 0}, infinities={"a": 0, "b": 1})
    assert facts(comparison) == [
        "7 of 40 elements differ (17.5 %)",
        "in 2 of 4 rows: 0 and 3",
        "in 3 of 10 columns",
        "largest absolute difference 0.5",
        "1 pairs of +0 and -0",
        "NaNs among them: 1 in a, 0 in b",
        "infinities among them: 0 in a, 1 in b",
    ]
    assert facts(found(0)) == []


def test_density_draws_every_cell_once_at_its_level():
    # levels are steps of log(1 + n) / log(1 + 15) = log2(1 + n) / 4, rounded up
    assert density([[0, 1, 1], [15, 3, 0]]) == [
        {"level": 1, "path": "M1 0h2v1h-2z"},
        {"level": 2, "path": "M1 1h1v1h-1z"},
        {"level": 4, "path": "M0 1h1v1h-1z"},
    ]
    assert density([[0, 0]]) == density([]) == []


@pytest.mark.parametrize(
    ("differ", "numel", "step"),
    [
        (0, 100, 0),
        (1, 10**9, 1),
        (1, 10**4, 1),
        (2, 10**4, 2),
        (1, 100, 3),
        (10, 100, 4),
        (11, 100, 5),
        (0, 0, 0),
    ],
)
def test_shade(differ, numel, step):
    assert shade(differ, numel) == step


def test_bars_are_drawn_to_the_largest():
    assert bars({"1": 50, "2": 5}) == [
        {"name": "1", "count": 50, "share": 100.0},
        {"name": "2", "count": 5, "share": 10.0},
    ]


def test_bits_are_split_into_fields_and_those_that_differ_marked():
    # 1.0 and -1.5 in bfloat16: sign and the highest bit of the mantissa differ
    sides = bit_rows({"a_bits": "0x3f80", "b_bits": "0xbfc0"}, "BF16")
    text = [["".join(bit["bit"] for bit in field["bits"]) for field in side] for side in sides]
    assert text == [["0", "01111111", "0000000"], ["1", "01111111", "1000000"]]
    marked = [[bit["other"] for field in side for bit in field["bits"]] for side in sides]
    assert marked[0] == marked[1] == [i in (0, 9) for i in range(16)]


def test_bits_of_an_integer_are_one_field():
    sides = bit_rows({"a_bits": "0x00", "b_bits": "0x01"}, "U8")
    assert [field["name"] for field in sides[0]] == ["bits"]


@pytest.mark.parametrize(
    ("differ", "numel", "words"),
    [
        (0, 5, "0 %"),
        (5, 5, "100 %"),
        (127, 96768, "0.13 %"),
        (9999, 10000, "> 99.9 %"),
        (1, 198180864, "< 0.0001 %"),
        (317419, 198180864, "0.16 %"),
        (1, 4, "25 %"),
        (12345, 100000, "12.3 %"),
    ],
)
def test_share_is_never_rounded_to_nothing_or_everything(differ, numel, words):
    assert share(differ, numel) == words


def test_words():
    assert listing([]) == ""
    assert listing(["a"]) == "a"
    assert listing(["a", "b"]) == "a and b"
    assert listing(["a", "b", "c"]) == "a, b and c"
    assert rows([1]) == "1 row"
    assert rows([1, 4]) == "1 and 4 rows"
    held = {"1": ["out_0"], "4": ["out_0", "grad_w"]}
    assert places(held, [1, 4]) == "out[0] at every case; grads.w at 4 rows"
