"""Accuracy against float64: rounding, scores, the reference, and the document of a case."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.fixtures.small_cell import WIDTHS, run_cell
from tests.unit.fixtures.whole_reference import whole_reference
from workflow_scripts import accuracy, operators
from workflow_scripts.cell.inputs import Inputs
from workflow_scripts.errors import CorruptDumpError
from workflow_scripts.rounding import round_to

OPERATOR = operators.create("adaln_projection", hidden=1, dim=8)
SEEDS = {"weights": 1, "temb": 3, "grad": 4}
TYPES = {torch.bfloat16: (8, -133), torch.float16: (11, -24), torch.float32: (24, -149)}


def rounded_by_integers(value, significand, smallest):
    """The number nearest to `value` with so many bits, of two as near the one with an even last bit.

    In whole numbers alone: `value` is numerator / denominator, the result a multiple of 2**exponent.
    """
    numerator, denominator = abs(value).as_integer_ratio()
    exponent = max(math.frexp(value)[1] - significand, smallest)
    if exponent >= 0:
        denominator <<= exponent
    else:
        numerator <<= -exponent
    whole, rest = divmod(numerator, denominator)
    if 2 * rest > denominator or (2 * rest == denominator and whole % 2):
        whole += 1
    result = whole * Fraction(2) ** exponent
    largest = (2**significand - 1) * Fraction(2) ** ((15 if significand == 11 else 127) - significand + 1)
    return math.copysign(float(result) if result <= largest else math.inf, value)


def same_number(a, b):
    return math.copysign(1, a) == math.copysign(1, b) and a == b


@pytest.mark.parametrize("dtype", TYPES)
@given(
    value=st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False)
    | st.floats(-1e5, 1e5, width=32)
)
def test_a_value_is_rounded_once(dtype, value):
    found = round_to(torch.tensor([value], dtype=torch.float64), dtype).item()
    assert same_number(found, rounded_by_integers(value, *TYPES[dtype]))


# bfloat16 has 8 significant bits: 1 and 1 + 2^-7 are neighbours, 1 + 2^-8 lies half-way.
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1 + 2**-8, 1.0),
        (1 + 2**-8 + 2**-40, 1 + 2**-7),  # rounded to float32 first, it would be a tie and go to 1
        (1 + 3 * 2**-8, 1 + 2**-6),
        (-1 - 2**-8, -1.0),
        (2**-133 * 0.5, 0.0),
        (2**-133 * 0.75, 2**-133),
        (-0.0, -0.0),
        ((2 - 2**-8) * 2.0**127, math.inf),
        ((2 - 2**-7) * 2.0**127, (2 - 2**-7) * 2.0**127),
        (math.inf, math.inf),
        (-math.inf, -math.inf),
    ],
)
def test_rounding_to_bfloat16(value, expected):
    found = round_to(torch.tensor([value], dtype=torch.float64), torch.bfloat16).item()
    assert same_number(found, expected)


def test_nan_stays_nan():
    assert round_to(torch.tensor([math.nan], dtype=torch.float64), torch.bfloat16).isnan().all()


def scored(values, reference):
    values = torch.tensor(values, dtype=torch.bfloat16)
    reference = torch.tensor(reference, dtype=torch.float64)
    score = accuracy.Score()
    for part in (slice(0, 2), slice(2, None)):
        score.add(values[part], reference[part], round_to(reference[part], torch.bfloat16))
    return score.as_json()


def test_errors_are_of_the_largest_value():
    # Errors 0, 2^-9, 0 and 1/4; only the first two are the reference rounded (0.5 + 2^-9 is a tie, to 0.5).
    assert scored([4.0, 0.5, -1.0, 2.25], [4.0, 0.5 + 2**-9, -1.0078125, 2.0]) == {
        "max_error": 0.0625,
        "mean_error": float(f"{(2**-9 + 0.0078125 + 0.25) / 4 / 4:.6g}"),
        "correctly_rounded": 0.5,
    }


def test_the_sign_of_zero_is_no_error():
    assert scored([-0.0, 0.0, 1.0], [0.0, -0.0, 1.0]) == {
        "max_error": 0.0,
        "mean_error": 0.0,
        "correctly_rounded": 1.0,
    }


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 2])
def test_what_is_not_finite_has_no_error_and_is_not_rounded(wrong, place):
    values = [1.0, 2.0, 3.0, 4.0]
    values[place] = wrong
    assert scored(values, [1.0, 2.0, 3.0, 4.0]) == {
        "max_error": None,
        "mean_error": None,
        "correctly_rounded": 0.75,
    }


def test_a_reference_of_zeros():
    assert scored([0.0, 0.0, 0.0], [0.0, 0.0, 0.0])["max_error"] == 0.0
    assert scored([0.0, 1.0, 0.0], [0.0, 0.0, 0.0])["max_error"] is None


def loops(inputs):
    """The operator by its definition, element by element, in Python's floats."""
    temb, w, b, grad = (inputs[name].double().tolist() for name in ("temb", "w", "b", "grad"))
    rows, columns, width = range(len(temb)), range(len(w)), range(len(w[0]))
    sigmoid = [[1 / (1 + math.exp(-z)) for z in row] for row in temb]
    act = [
        [rounded_by_integers(temb[t][k] * sigmoid[t][k], *TYPES[torch.bfloat16]) for k in width] for t in rows
    ]
    slope = [
        [s * (1 + z * (1 - s)) for z, s in zip(*pair, strict=True)]
        for pair in zip(temb, sigmoid, strict=True)
    ]
    return {
        "out_0": [[sum(act[t][k] * w[n][k] for k in width) + b[n] for n in columns] for t in rows],
        "grad_temb": [
            [slope[t][k] * sum(grad[t][n] * w[n][k] for n in columns) for k in width] for t in rows
        ],
        "grad_w": [[sum(grad[t][n] * act[t][k] for t in rows) for k in width] for n in columns],
        "grad_b": [sum(grad[t][n] for t in rows) for n in columns],
    }


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("columns", [1, 7, 18, 4096])
def test_the_reference_is_the_operator_by_its_definition(rows, columns):
    inputs = OPERATOR.make_inputs(rows, SEEDS, None)
    found = whole_reference(OPERATOR, inputs, columns=columns)
    for name, expected in loops(inputs).items():
        torch.testing.assert_close(
            found[name], torch.tensor(expected, dtype=torch.float64), rtol=1e-13, atol=1e-13
        )


def numpy_accuracy(inputs, dumped):
    """Errors of dumped tensors, by numpy in float64 and by integers."""
    temb, w, b, grad = (inputs[name].double().numpy() for name in ("temb", "w", "b", "grad"))
    sigmoid = 1 / (1 + np.exp(-temb))
    bits = TYPES[torch.bfloat16]
    act = np.vectorize(lambda value: rounded_by_integers(value, *bits))(temb * sigmoid)
    reference = {
        "out_0": np.einsum("tk,nk->tn", act, w) + b,
        "grad_temb": np.einsum("tn,nk->tk", grad, w) * sigmoid * (1 + temb * (1 - sigmoid)),
        "grad_w": np.einsum("tn,tk->nk", grad, act),
        "grad_b": np.einsum("tn->n", grad),
    }
    found = {}
    for name, expected in reference.items():
        bits = TYPES[dumped[name].dtype]
        values = dumped[name].double().numpy()
        rounded = np.vectorize(lambda value, bits=bits: rounded_by_integers(value, *bits))(expected)
        error = np.abs(values - expected) / np.abs(expected).max()
        share = np.count_nonzero(values == rounded) / values.size
        found[name] = {"max_error": error.max(), "mean_error": error.mean(), "correctly_rounded": share}
    return found


@pytest.fixture
def case(tmp_path, monkeypatch):
    """The inputs and the finished cell of a small case; a function that computes its accuracy."""
    cell = run_cell(tmp_path, monkeypatch, "behaving:expression")
    path = next(tmp_path.glob("cells/*/4/manifest.json"))
    operator = operators.create("adaln_projection", **WIDTHS)
    inputs = Inputs(operator, tmp_path / "inputs" / "inputs.json", 4, "cpu")
    return operator, inputs, cell, path


def test_accuracy_agrees_with_numpy(case):
    operator, inputs, cell, path = case
    document = accuracy.accuracy(operator, inputs, [path], "cpu", "small.yaml")
    assert document["case"] == 4
    (entry,) = document["implementations"].values()
    assert (entry["status"], entry["reason"]) == ("measured", None)
    dumped = {name: accuracy.load_rows(path.parent / f"{name}.safetensors", None) for name in cell["tensors"]}
    expected = numpy_accuracy(inputs.load(), dumped)
    assert entry["tensors"].keys() == expected.keys() == {"out_0", "grad_temb", "grad_w", "grad_b"}
    for name, found in entry["tensors"].items():
        assert found["correctly_rounded"] == expected[name]["correctly_rounded"]
        assert found["max_error"] == pytest.approx(expected[name]["max_error"], rel=1e-5)
        assert found["mean_error"] == pytest.approx(expected[name]["mean_error"], rel=1e-5)
        assert 0 < found["max_error"] < 2**-7


def test_a_cell_that_did_not_run_says_why(case, tmp_path, monkeypatch):
    operator, inputs, _, path = case
    lacking = {"libraries": ["no_such_library"], "instruction_sets": []}
    other = tmp_path / "other"
    other.mkdir()
    (other / "inputs").symlink_to(tmp_path / "inputs")
    run_cell(other, monkeypatch, "behaving:expression", implementation="absent", needs=lacking)
    absent = next(other.glob("cells/*/4/manifest.json"))
    document = accuracy.accuracy(operator, inputs, [path, absent], "cpu", "small.yaml")
    assert document["implementations"]["absent"] == {
        "status": "not measured",
        "reason": "unavailable: not installed in the mode's environment: no_such_library",
        "tensors": {},
    }
    assert document["implementations"]["candidate"]["status"] == "measured"


def test_a_damaged_dump_is_named(case):
    operator, inputs, _, path = case
    dump = path.parent / "grad_w.safetensors"
    content = bytearray(dump.read_bytes())
    content[-1] ^= 1
    dump.write_bytes(content)
    with pytest.raises(
        CorruptDumpError, match=rf"{dump}: corrupt.*--configfile small.yaml --forcerun {path}"
    ):
        accuracy.accuracy(operator, inputs, [path], "cpu", "small.yaml")


def test_other_inputs_are_not_scored(case):
    operator, inputs, _, path = case
    inputs.entries = json.loads(json.dumps(inputs.entries).replace('"w"', '"v"'))
    (entry,) = accuracy.accuracy(operator, inputs, [path], "cpu", "small.yaml")["implementations"].values()
    assert entry["reason"] == "it was given other inputs than those of this audit"
