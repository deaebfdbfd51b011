"""The CPU reference against the contract in exact fractions, and against itself in all ways to run it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.adaln_projection import cpu
from tests.unit.fixtures import kernel_model as model
from tests.unit.fixtures.kernel_inputs import FAMILIES, bits, from_bits, problem

pytestmark = pytest.mark.usefixtures("cpu_kernel")

INSTRUCTION_SETS = {
    "baseline": cpu.BASELINE,
    "avx2": cpu.AVX2,
    "avx512": cpu.AVX512,
    "integers": cpu.INTEGERS,
}


def same_bits(a, b):
    size = torch.int16 if a.dtype == torch.bfloat16 else torch.int32
    return a.dtype == b.dtype and torch.equal(a.view(size), b.view(size))


def revealing_bias(act, weight, arch):
    """Cancels row 0 of the table, so that bits of the float32 sum show which rounding to bf16 would hide."""
    return -cpu.forward(act[:1], weight, torch.zeros(len(weight), dtype=torch.bfloat16), arch=arch)[0]


@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize("k", [8, 40, 88])
@pytest.mark.parametrize("family", FAMILIES)
def test_forward_equals_the_exact_model(family, k, arch):
    act, weight, bias, _ = problem(family, 3, 19, k)
    bias[::2] = revealing_bias(act, weight, arch)[::2]
    expected = model.forward(bits(act), bits(weight), bits(bias), arch)
    assert bits(cpu.forward(act, weight, bias, arch=arch)) == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_backward_equals_the_exact_model(family):
    act, weight, _, grad_table = problem(family, 7, 133, 8)  # two chunks of 64 and one of 5
    d_act, d_weight, d_bias = model.backward(bits(grad_table), bits(act), bits(weight))
    assert bits(cpu.d_act(grad_table, weight)) == d_act
    got_weight, got_bias = cpu.d_weight_bias(grad_table, act)
    assert bits(got_weight) == d_weight
    assert bits(got_bias) == d_bias


PATTERNS = st.lists(st.integers(0, 2**16 - 1), min_size=49, max_size=49)


@given(patterns=PATTERNS, arch=st.sampled_from([80, 90]))
@settings(max_examples=200, deadline=None)
def test_any_24_products_sum_as_in_the_exact_model(patterns, arch):
    values = from_bits(torch.tensor(patterns))
    act, weight, bias = values[:24].view(1, 24), values[24:48].view(1, 24), values[48:]
    expected = model.forward(bits(act), bits(weight), bits(bias), arch)
    assert bits(cpu.forward(act.clone(), weight.clone(), bias.clone(), arch=arch)) == expected


SLOTS = [0, 1, 8, 9, 16, 17, 24, 25, 2, 3, 10, 11, 18, 19, 26, 27]


def product_sum(pairs, arch, beside=(0.0, 0.0)):
    """A table of one element: products in slots 0.. of the first group, and one in the second group."""
    act, weight = torch.zeros(1, 32, dtype=torch.bfloat16), torch.zeros(1, 32, dtype=torch.bfloat16)
    for k, (a, w) in [*zip(SLOTS, pairs, strict=False), (4, beside)]:
        act[0, k], weight[0, k] = a, w
    return cpu.forward(act, weight, torch.zeros(1, dtype=torch.bfloat16), arch=arch).item()


def test_terms_are_truncated_below_the_largest_by_the_chip_s_number_of_bits():
    # Beside 1 and -1, which cancel, the grid is 2^-25 on sm_90 and 2^-24 on sm_80: less than that is dropped.
    ones = [(1.0, 1.0), (-1.0, 1.0)]
    assert product_sum([*ones, (2.0**-25, 1.0)], 90) == 2.0**-25
    assert product_sum([*ones, (2.0**-26, 1.0)], 90) == 0.0
    assert product_sum([*ones, (2.0**-24, 1.0)], 80) == 2.0**-24
    assert product_sum([*ones, (2.0**-25, 1.0)], 80) == 0.0


def test_on_sm_80_the_second_eight_slots_are_added_to_the_first_eight_s_rounded_sum():
    # 1 and 2^-24 in the first step: the sum, 1 + 2^-24, is truncated to 1 before -1 comes in the second step.
    first = [(1.0, 1.0), (2.0**-24, 1.0), *[(0.0, 0.0)] * 6]
    assert product_sum([*first, (-1.0, 1.0)], 80) == 0.0
    assert product_sum([*first, (-1.0, 1.0)], 90) == 2.0**-24


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("arch", [80, 90])
def test_the_sum_is_truncated_and_not_rounded(arch, sign):
    # 2 + 2^-7 is a tie between two bf16 and goes to 2; the next float32, 2^-22 further, goes to 2 + 2^-6.
    terms = [1.0, 1.0, 2.0**-7]
    three_quarters = [(term, sign) for term in [*terms, *[2.0**-24] * 3]]
    whole = [(term, sign) for term in [*terms, *[2.0**-24] * 4]]
    assert product_sum(three_quarters, arch) == sign * 2.0
    assert product_sum(whole, arch) == sign * (2.0 + 2.0**-6)


@pytest.mark.parametrize(
    ("arch", "units"),
    [
        # sm_90's finest grid is 2^-158: 512 units of it are 2^-149, the smallest float32.
        (90, [33.0] * 15 + [17.0]),  # 512; a grid twice as coarse drops the odd units
        (90, [32.5] * 15 + [24.5]),  # 15 * 32 + 24 = 504; a finer grid would see 512
        # sm_80's is 2^-156, where 128 units are 2^-149; in either of its two steps.
        (80, [17.0] * 7 + [9.0]),
        (80, [17.5] * 7 + [8.5]),
        (80, [0.0] * 8 + [17.0] * 7 + [9.0]),
        (80, [0.0] * 8 + [17.5] * 7 + [8.5]),
    ],
)
def test_the_grid_is_never_finer_than_the_chip_s_lowest(arch, units):
    # Beside half the smallest bf16, a tie that goes to 0, one more bit of float32 makes the whole of it.
    grid = {90: 2.0**-158, 80: 2.0**-156}[arch]
    pairs = [(unit * grid * 2.0**100, 2.0**-100) for unit in units]
    reached = sum(map(int, units)) * grid >= 2.0**-149
    assert product_sum(pairs, arch, beside=(2.0**-100, 2.0**-34)) == (2.0**-133 if reached else 0.0)


def test_a_zero_sum_of_negative_zeros_is_positive():
    zeros = torch.full((1, 8), -0.0, dtype=torch.bfloat16)
    ones, bias = torch.ones(1, 8, dtype=torch.bfloat16), torch.full((1,), -0.0, dtype=torch.bfloat16)
    assert bits(cpu.forward(zeros, ones, bias)) == [[0x0000]]


def test_every_nan_is_the_gpu_s():
    act, weight = torch.full((1, 8), -torch.nan).bfloat16(), torch.ones(1, 8).bfloat16()
    bias, grad_table = torch.zeros(1).bfloat16(), from_bits(torch.tensor([[0xFFC1 - 2**16]]))
    assert bits(cpu.forward(act, weight, bias)) == [[0x7FFF]]
    assert bits(cpu.d_act(grad_table, weight)) == [[0x7FFFFFFF] * 8]
    d_weight, d_bias = cpu.d_weight_bias(grad_table, weight)
    assert bits(d_weight) == [[0x7FFF] * 8]
    assert bits(d_bias) == [0x7FFF]


def test_the_first_chunk_of_d_act_is_kept_as_it_is():
    # A chain may end in -0 (an underflow); adding it to +0 would lose the sign.
    tiny = torch.full((1, 1), -(2.0**-100)).bfloat16()
    assert bits(cpu.d_act(tiny, torch.full((1, 8), 2.0**-100).bfloat16())) == [[0x80000000] * 8]


@pytest.mark.parametrize("name", INSTRUCTION_SETS)
@pytest.mark.parametrize("family", FAMILIES)
def test_no_instruction_set_and_no_thread_count_changes_a_bit(family, name):
    act, weight, bias, grad_table = problem(family, 13, 301, 200)
    isa = INSTRUCTION_SETS[name]
    try:
        cpu.forward(act[:1], weight[:1], bias[:1], isa=isa)
    except RuntimeError as error:
        pytest.skip(str(error))
    results = [
        [
            *(cpu.forward(act, weight, bias, arch=arch, threads=threads, isa=which) for arch in (80, 90)),
            cpu.d_act(grad_table, weight, threads=threads, isa=which),
            *cpu.d_weight_bias(grad_table, act, threads=threads, isa=which),
        ]
        for which, threads in ((cpu.BASELINE, 1), (isa, 1), (isa, 3), (isa, 64))
    ]
    for other in results[1:]:
        assert all(map(same_bits, results[0], other))


def test_the_shortcut_gives_the_integers_bits_at_h3_s_width():
    act, weight, _, _ = problem("spread", 4, 200, 2688)
    for arch in (80, 90):
        bias = revealing_bias(act, weight, arch)
        fast = cpu.forward(act, weight, bias, arch=arch)
        assert same_bits(fast, cpu.forward(act, weight, bias, arch=arch, isa=cpu.INTEGERS))


def test_rows_do_not_depend_on_one_another():
    act, weight, bias, grad_table = problem("spread", 9, 150, 104)
    table, d_act = cpu.forward(act, weight, bias), cpu.d_act(grad_table, weight)
    for t in range(9):
        assert same_bits(cpu.forward(act[t : t + 1], weight, bias), table[t : t + 1])
        assert same_bits(cpu.d_act(grad_table[t : t + 1], weight), d_act[t : t + 1])


def test_subnormals_are_kept_though_the_caller_flushes_them():
    tiny, one = torch.full((1, 8), 2.0**-133).bfloat16(), torch.ones(1, 8).bfloat16()
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor can't flush subnormals")
    try:
        table = cpu.forward(tiny, one, torch.zeros(1).bfloat16())
        d_act = cpu.d_act(one[:, :1].contiguous(), tiny)
        d_weight, _ = cpu.d_weight_bias(one[:, :1].contiguous(), tiny)
    finally:
        torch.set_flush_denormal(False)
    assert bits(table) == [[0x0008]]  # 8 * 2^-133
    assert bits(d_act) == [[2**16] * 8]  # 2^-133 in units of 2^-149
    assert bits(d_weight) == [[0x0001] * 8]


def test_an_unknown_architecture_is_refused():
    with pytest.raises(RuntimeError, match="bad argument"):
        cpu.forward(*problem("normal", 1, 1, 8)[:3], arch=70)
