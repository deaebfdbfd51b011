"""The CUDA kernels against the published bits, the CPU reference, and themselves in other batches.

Every comparison is of bits. The kernels choose their way by T; the row counts below lie on both sides of each
change: 1, 2, 4, 8, 16, 32, 64, 128 and 256. The tiles of d_act take more rows yet.
"""

import hashlib

import pytest
import torch

from kernels.adaln_projection import adaln_projection, backward, cpu, forward
from tests.unit.fixtures.kernel_inputs import FAMILIES, problem

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("kernel")]

# First 16 hex digits of the sha256 of raw bytes on an H200: act, table, d_act, d_temb, d_weight, d_bias.
N, K = 96768, 2688
GOLDEN = {
    1: [
        *("9675b2dfea8ff3cb", "ebda998129c69ead", "d828430d08035e43"),
        *("fb8f2673941144b1", "a141019d487c0411", "b31755864b5512ce"),
    ],
    4: [
        *("fd434ae7ba4c54b1", "6eb46fa7b880716c", "f5500ef8486da64e"),
        *("3f31ded1e3fed7d2", "8a64c50e941988bb", "f314da0d253aca1e"),
    ],
    64: [
        *("3496de76b0a8beb3", "b575612d8bce277a", "a901db32d56cf554"),
        *("5225a847691f6152", "3bd991c8e72a29ca", "e149fde1f08d93b3"),
    ],
    2048: [
        *("d41a9769610b895f", "0e8ed5687134cb66", "ef3a2e76abaf3473"),
        *("db2b0f4dfe3264ea", "1e533285d2b8f1bc", "e3b2aaa33a539979"),
    ],
}
SWITCHES = [1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33, 64, 65, 96, 128, 129, 256]


def digest(tensor):
    return hashlib.sha256(tensor.cpu().view(torch.uint8).numpy()).hexdigest()[:16]


def raw(tensor, device):
    return tensor.to(device).view(torch.int16 if tensor.dtype == torch.bfloat16 else torch.int32)


def assert_same_bits(got, expected):
    for one, other in zip(got, expected, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(raw(one, other.device), raw(other, other.device))


def on_gpu(act, weight, bias, grad_table):
    act, weight, bias, grad_table = (x.cuda() for x in (act, weight, bias, grad_table))
    return [forward(act, weight, bias), *backward(grad_table, act, weight)]


def on_cpu(act, weight, bias, grad_table):
    arch = 90 if torch.cuda.get_device_capability()[0] >= 9 else 80
    table = cpu.forward(act, weight, bias, arch=arch)
    return [table, cpu.d_act(grad_table, weight), *cpu.d_weight_bias(grad_table, act)]


@pytest.fixture(scope="module")
def h3():
    """Weight, bias, temb and grad_table of the goldens, 2048 rows."""
    generator = torch.Generator().manual_seed(1)
    weight = (torch.randn(N, K, generator=generator) * K**-0.5).bfloat16()
    bias = (torch.randn(N, generator=generator) * 0.02).bfloat16()
    temb = torch.randn(2048, K, generator=torch.Generator().manual_seed(3))
    grad_table = torch.randn(2048, N, generator=torch.Generator().manual_seed(4)).bfloat16()
    return [x.cuda() for x in (weight, bias, temb, grad_table)]


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability()[0] < 9,
    reason="the table's golden bits are those of sm_90 and newer",
)
@pytest.mark.parametrize("rows", GOLDEN)
def test_golden_bits(rows, h3):
    weight, bias, temb, grad_table = h3
    temb, grad_table = temb[:rows], grad_table[:rows]
    act = torch.nn.functional.silu(temb).bfloat16()
    d_act, d_weight, d_bias = backward(grad_table, act, weight)
    d_temb = torch.ops.adaln_projection.d_temb(d_act, temb)
    results = [act, forward(act, weight, bias), d_act, d_temb, d_weight, d_bias]
    assert [digest(x) for x in results] == GOLDEN[rows]


@pytest.mark.parametrize("rows", GOLDEN)
def test_autograd_gives_the_golden_gradients(rows, h3):
    weight, bias, temb, grad_table = h3
    temb, weight, bias = (x.detach().requires_grad_() for x in (temb[:rows], weight, bias))
    adaln_projection(temb, weight, bias).backward(grad_table[:rows])
    assert [digest(x.grad) for x in (temb, weight, bias)] == GOLDEN[rows][3:]


@pytest.mark.parametrize("k", [8, 40, 88, 1000, 2696])
@pytest.mark.parametrize("rows", [1, 3, 5, 9, 17, 65, 130])
def test_odd_shapes_equal_the_cpu_reference(rows, k):
    for n in (1, 100, 133, 1730):
        inputs = problem("normal", rows, n, k)
        assert_same_bits(on_gpu(*inputs), on_cpu(*inputs))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rows", [1, 4, 7, 16, 33, 70, 150])
def test_all_kinds_of_values_equal_the_cpu_reference(rows, family):
    for n, k in ((133, 88), (1736, 104), (133, 200), (1736, 176)):
        inputs = problem(family, rows, n, k)
        assert_same_bits(on_gpu(*inputs), on_cpu(*inputs))


@pytest.mark.parametrize("n", [999, 1736])
def test_a_row_s_bits_do_not_depend_on_its_batch(n):
    act, weight, bias, grad_table = (x.cuda() for x in problem("spread", 257, n, 2688))

    def rows(chosen):
        a, g = act[chosen], grad_table[chosen]
        return forward(a, weight, bias), backward(g, a, weight)[0]

    table, d_act = rows(slice(None))
    for t in range(257):
        assert_same_bits(rows(slice(t, t + 1)), (table[t : t + 1], d_act[t : t + 1]))
    assert_same_bits(rows(torch.arange(256, -1, -1)), (table.flip(0), d_act.flip(0)))
    for size in SWITCHES:
        for first in (0, 257 - size):
            part = slice(first, first + size)
            assert_same_bits(rows(part), (table[part], d_act[part]))


@pytest.mark.parametrize("rows", [2048, 2100, 4000])
def test_the_bits_of_a_row_among_thousands_are_those_of_it_among_few(rows):
    for n in (999, 1736):
        _, weight, _, grad_table = (x.cuda() for x in problem("spread", rows, n, 2688))
        d_act = operators().d_act
        many = d_act(grad_table, weight)
        for first in range(0, rows, 64):
            part = slice(first, first + 64)
            assert_same_bits([d_act(grad_table[part].contiguous(), weight)], [many[part]])


@pytest.mark.parametrize("family", FAMILIES)
def test_all_kinds_of_values_in_tens_of_thousands_of_rows_equal_the_cpu_reference(family):
    for n, k in ((133, 200), (200, 168)):
        _, weight, _, grad_table = problem(family, 17_000, n, k)
        got = operators().d_act(grad_table.cuda(), weight.cuda())
        assert_same_bits([got], [cpu.d_act(grad_table, weight)])


@pytest.mark.parametrize("rows", SWITCHES)
def test_the_way_chosen_by_the_row_count_does_not_show_in_the_weight_s_gradient(rows):
    act, weight, _, grad_table = problem("spread", rows, 333, 200)
    got = backward(grad_table.cuda(), act.cuda(), weight.cuda())[1:]
    assert_same_bits(got, cpu.d_weight_bias(grad_table, act))


@pytest.mark.parametrize("rows", [1, 4, 64, 257])
def test_a_hundred_repeats_give_the_same_bits(rows):
    inputs = [x.cuda() for x in problem("spread", rows, 5376, 2688)]
    first = on_gpu(*inputs)
    for _ in range(100):
        assert_same_bits(on_gpu(*inputs), first)


@pytest.mark.parametrize("rows", [1, 4, 10, 70])
def test_a_cuda_graph_replays_the_same_bits(rows):
    old, new = problem("normal", rows, 300, 96), problem("spread", rows, 300, 96, seed=1)
    inputs = [x.cuda() for x in old]
    on_gpu(*inputs)  # what is loaded on first use must be there before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = on_gpu(*inputs)
    for values in (old, new):
        for tensor, value in zip(inputs, values, strict=True):
            tensor.copy_(value)
        graph.replay()
        assert_same_bits(results, on_cpu(*values))


def test_another_stream_gives_the_same_bits():
    inputs = problem("normal", 20, 300, 96)
    with torch.cuda.stream(torch.cuda.Stream()):
        results = on_gpu(*inputs)
        assert_same_bits(results, on_cpu(*inputs))


def operators():
    return torch.ops.adaln_projection


def differentiable(rows):
    act, weight, bias, grad_table = problem("normal", rows, 300, 96)
    parameters = [x.cuda().requires_grad_() for x in (act.float(), weight, bias)]
    return parameters, grad_table.cuda()


def test_opcheck():
    (temb, weight, bias), grad_table = differentiable(5)
    act = torch.nn.functional.silu(temb.detach()).bfloat16()
    plain_weight, plain_bias = weight.detach(), bias.detach()
    torch.library.opcheck(operators().forward.default, (act, plain_weight, plain_bias))
    torch.library.opcheck(operators().d_act.default, (grad_table, plain_weight))
    torch.library.opcheck(operators().d_weight_bias.default, (grad_table, act))
    torch.library.opcheck(operators().projection.default, (temb, weight, bias))


def test_torch_compile_keeps_every_bit():
    def gradients(function):
        parameters, grad_table = differentiable(5)
        table = function(*parameters)
        table.backward(grad_table)
        return [table.detach(), *(x.grad for x in parameters)]

    assert_same_bits(gradients(torch.compile(adaln_projection, fullgraph=True)), gradients(adaln_projection))


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 8, 16, 20, 33, 70, 130, 260, 17_000])
def test_small_problem_for_the_sanitizer(rows):
    """Runs each kernel once: compute-sanitizer --tool memcheck|racecheck python -m pytest -k sanitizer."""
    for n, k in ((77, 40), (264, 104), (77, 176), (264, 200)) if rows < 1000 else ((77, 176), (40, 200)):
        inputs = problem("normal", rows, n, k)
        assert_same_bits(on_gpu(*inputs), on_cpu(*inputs))
