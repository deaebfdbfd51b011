"""Cases of the bit comparison, each with values worked out by hand."""

import json
import math

import numpy as np
import pytest

from workflow_scripts.errors import AuditError
from workflow_scripts.tensors import bits
from workflow_scripts.tensors.dump import Dump, raw_bytes

WIDTHS = {"BF16": np.uint16, "F16": np.uint16, "F32": np.uint32, "F64": np.uint64}


def tensor(dtype, *patterns, shape=None):
    """A tensor of a float's bit patterns."""
    array = np.array(patterns, WIDTHS[dtype])
    return Dump(dtype, shape or array.shape, raw_bytes(array))


def numbers(dtype, array):
    array = np.asarray(array)
    return Dump(dtype, array.shape, raw_bytes(array))


def counts(found):
    return found.equal, found.differ, found.max_abs


@pytest.mark.parametrize(
    ("dtype", "negative_zero"),
    [("BF16", 0x8000), ("F16", 0x8000), ("F32", 0x8000_0000), ("F64", 0x8000_0000_0000_0000)],
)
def test_zeros_of_two_signs_differ_and_are_counted_apart(dtype, negative_zero):
    found = bits.compare(tensor(dtype, 0, 0), tensor(dtype, 0, negative_zero))
    assert counts(found) == (False, 1, 0.0)
    assert found.detail["signed_zeros"] == 1
    assert found.detail["ulps"] == {}
    assert math.copysign(1, found.detail["first"]["b"]) == -1


def test_a_nan_equals_itself_only_with_the_same_payload():
    same = bits.compare(tensor("BF16", 0x7FC0), tensor("BF16", 0x7FC0))
    assert counts(same) == (True, 0, 0.0)
    assert same.detail is None
    other = bits.compare(tensor("BF16", 0x7FC0), tensor("BF16", 0x7FC1))
    assert counts(other) == (False, 1, 0.0)
    assert other.detail["nans"] == {"a": 1, "b": 1}
    assert other.detail["first"] == {
        "index": [0],
        "flat": 0,
        "a": "nan",
        "b": "nan",
        "a_bits": "0x7fc0",
        "b_bits": "0x7fc1",
    }


def test_infinity_equals_infinity_and_is_counted_where_it_differs():
    assert counts(bits.compare(tensor("BF16", 0x7F80), tensor("BF16", 0x7F80))) == (True, 0, 0.0)
    # inf against -inf, 1 against inf, a NaN against 2, and 1 against 3: only the last is a pair of numbers
    a = tensor("BF16", 0x7F80, 0x3F80, 0xFFFF, 0x3F80)
    b = tensor("BF16", 0xFF80, 0x7F80, 0x4000, 0x4040)
    found = bits.compare(a, b)
    assert counts(found) == (False, 4, 2.0)
    assert found.detail["infinities"] == {"a": 1, "b": 2}
    assert found.detail["nans"] == {"a": 1, "b": 0}
    assert found.detail["first"]["a"] == "inf"
    assert found.detail["first"]["b"] == "-inf"
    json.dumps(found.as_json(), allow_nan=False)


def test_the_greatest_difference_is_taken_in_float64():
    a, b = tensor("BF16", 0x7F62), tensor("BF16", 0xFF62)  # 0x7f62 is 226/128 * 2^127, about 3.004e38
    assert bits.compare(a, b).max_abs == 2 * 226 / 128 * 2.0**127
    one = numbers("F32", np.float32([1.0]))
    tiny = numbers("F32", np.float32([-(2.0**-40)]))
    assert bits.compare(one, tiny).max_abs == 1 + 2.0**-40  # 1.0 in float32


def test_a_difference_beyond_float64_stays_strict_json():
    found = bits.compare(numbers("F64", [1.7e308]), numbers("F64", [-1.7e308]))
    assert found.max_abs == 1.7976931348623157e308
    json.dumps(found.as_json(), allow_nan=False)


def test_another_dtype_is_a_difference_whatever_the_values():
    ones = numbers("F32", np.ones(4, np.float32))
    found = bits.compare(ones, tensor("BF16", *[0x3F80] * 4))
    assert (found.equal, found.differ, found.numel, found.max_abs, found.reason) == (
        False,
        None,
        4,
        None,
        "dtype",
    )


def test_another_shape_is_a_difference_whatever_the_bytes():
    found = bits.compare(tensor("BF16", 1, 2, shape=(2, 1)), tensor("BF16", 1, 2, shape=(1, 2)))
    assert (found.equal, found.differ, found.max_abs, found.reason) == (False, None, None, "shape")


def test_a_bias_added_after_rounding_is_one_ulp_off():
    # 1 + 2^-8 lies between the BF16 neighbours 1 and 1 + 2^-7 and rounds to the even one, 1. The bias 2^-8
    # added before that rounding gives 1 + 2^-7 (0x3f81); added after it, 1 + 2^-8 and again 1 (0x3f80).
    torch = pytest.importorskip("torch")
    total, bias = torch.tensor([1 + 2.0**-8]), torch.tensor([2.0**-8])
    before = (total + bias).bfloat16()
    after = total.bfloat16() + bias.bfloat16()
    a, b = (Dump("BF16", (1,), raw_bytes(x.view(torch.int16).numpy())) for x in (before, after))
    found = bits.compare(a, b)
    assert counts(found) == (False, 1, 2.0**-7)
    assert found.detail["ulps"] == {"1": 1}
    assert (found.detail["first"]["a_bits"], found.detail["first"]["b_bits"]) == ("0x3f81", "0x3f80")


def test_a_bias_added_after_rounding_moves_many_numbers_by_about_an_ulp():
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)
    total = torch.randn(64, 512, generator=generator)
    bias = torch.randn(512, generator=generator).bfloat16()
    before, after = (total + bias).bfloat16(), total.bfloat16() + bias
    found = bits.compare(*(numbers("BF16", x.view(torch.int16).numpy()) for x in (before, after)))
    steps = (before.view(torch.int16).int() - after.view(torch.int16).int()).abs()
    assert found.differ == (steps != 0).sum().item() > 1000
    assert found.detail["ulps"]["1"] == (steps == 1).sum().item() > 0.75 * found.differ


@pytest.mark.parametrize(
    ("a", "b", "steps"),
    [
        (0x3F80, 0x3F81, "1"),
        (0x0001, 0x8001, "2"),  # the smallest numbers of either sign, zero between them
        (0x0000, 0x8001, "1"),
        (0x8000, 0x0001, "1"),
        (0x3F80, 0x3F83, "3-4"),
        (0x3F80, 0x3F84, "3-4"),
        (0x3F80, 0x3F85, "5-8"),
        (0x3F80, 0xBF80, "16385-32768"),  # 1 and -1: 2 x 0x3f80 = 32512 steps
        (0x7F7F, 0xFF7F, "32769-65536"),  # the greatest of either sign: 65278
    ],
)
def test_steps_between_bf16_numbers(a, b, steps):
    for x, y in ((a, b), (b, a), (a ^ 0x8000, b ^ 0x8000)):
        assert bits.compare(tensor("BF16", x), tensor("BF16", y)).detail["ulps"] == {steps: 1}


def test_steps_between_wider_floats():
    for dtype, width in (("F32", 32), ("F64", 64)):
        edge = [(1 << 20, "524289-1048576"), ((1 << 20) + 1, ">2^20"), ((1 << (width - 1)) | 5, "5-8")]
        for pattern, steps in edge:
            found = bits.compare(tensor(dtype, 0), tensor(dtype, pattern))
            assert found.detail["ulps"] == {steps: 1}
    greatest = 0x7FEF_FFFF_FFFF_FFFF
    assert bits.compare(tensor("F64", greatest), tensor("F64", greatest | 1 << 63)).detail["ulps"] == {
        ">2^20": 1
    }


def test_integers_have_differences_but_no_ulps():
    found = bits.compare(numbers("I64", [-(2**63), 5]), numbers("I64", [2**63 - 1, 5]))
    assert counts(found) == (False, 1, float(2**64 - 1))
    assert found.detail["ulps"] is None
    assert found.detail["first"]["a"] == -(2**63)
    assert bits.compare(numbers("U8", np.uint8([0])), numbers("U8", np.uint8([255]))).max_abs == 255.0
    assert bits.compare(numbers("I8", np.int8([-1])), numbers("I8", np.int8([1]))).max_abs == 2.0
    assert bits.compare(numbers("BOOL", [True]), numbers("BOOL", [False])).differ == 1


def test_where_bits_differ():
    a = np.zeros((5, 3, 4), np.float32)
    b = a.copy()
    b[1, 2, 3] = b[4, 0, 0] = b[4, 0, 3] = 1.0
    found = bits.compare(numbers("F32", a), numbers("F32", b)).detail
    assert found["first"]["index"] == [1, 2, 3]
    assert found["first"]["flat"] == 1 * 12 + 2 * 4 + 3
    assert found["rows"] == {"touched": 2, "of": 15, "first": [5, 12]}
    assert found["columns"] == {"touched": 2, "of": 4}
    assert np.argwhere(found["density"]).tolist() == [[5, 3], [12, 0], [12, 3]]


def test_only_the_first_rows_are_listed():
    a = np.zeros((20, 2), np.float32)
    found = bits.compare(numbers("F32", a), numbers("F32", a + 1)).detail
    assert found["rows"] == {"touched": 20, "of": 20, "first": [0, 1, 2, 3, 4, 5, 6, 7]}


def test_the_density_map_is_coarse_and_complete():
    a = np.zeros((33, 100), np.float32)
    found = np.array(bits.compare(numbers("F32", a), numbers("F32", a + 1)).detail["density"])
    assert found.shape == (16, 64)
    assert found.sum() == 3300
    # cell (0, 0) holds the rows with 16 r < 33 and the columns with 64 c < 100: three rows and two columns
    assert found[0, 0] == 6


def test_touched_columns_are_not_marked_where_that_would_take_the_memory():
    a, b = np.zeros((2, (1 << 24) + 1), np.uint8), np.zeros((2, (1 << 24) + 1), np.uint8)
    b[1, 5] = 1
    found = bits.compare(numbers("U8", a), numbers("U8", b)).detail
    assert found["columns"] == {"touched": None, "of": (1 << 24) + 1}
    assert found["rows"] == {"touched": 1, "of": 2, "first": [1]}


def test_scalars_and_tensors_without_elements():
    assert bits.compare(numbers("F64", 1.0), numbers("F64", 1.0)).equal
    found = bits.compare(numbers("F64", 1.0), numbers("F64", 2.0))
    assert found.detail["first"]["index"] == []
    assert counts(bits.compare(numbers("F64", np.zeros((0, 3))), numbers("F64", np.zeros((0, 3))))) == (
        True,
        0,
        0.0,
    )
    shapes = numbers("F64", np.zeros((0, 3))), numbers("F64", np.zeros((3, 0)))
    assert bits.compare(*shapes).reason == "shape"


def test_without_detail_the_counts_are_the_same():
    a, b = tensor("BF16", 1, 2, 0x3F80), tensor("BF16", 1, 3, 0x4000)
    plain, detailed = bits.compare(a, b, detail=False), bits.compare(a, b)
    assert counts(plain) == counts(detailed) == (False, 2, 1.0)
    assert plain.detail is None


def test_a_dtype_that_is_not_known_is_refused():
    with pytest.raises(AuditError, match="F8_E4M3"):
        Dump("F8_E4M3", (1,), raw_bytes(b"a"))


def test_memory_beyond_a_tensor_is_never_read():
    whole = tensor("BF16", 1, 2, 3, shape=(3, 1))
    assert bits.compare(whole.first_rows(2), tensor("BF16", 1, 2, shape=(2, 1))).equal
    with pytest.raises(AuditError, match=r"BF16 \[4, 1\] takes 8 bytes, 6 were given"):
        whole.first_rows(4)
