"""The operators as torch sees them: schema, autograd, compilation, and what they refuse."""

import pytest
import torch

from kernels.adaln_projection import adaln_projection, backward, cpu, cuda, forward
from kernels.adaln_projection import ops as operators
from kernels.adaln_projection.checks import prepared

pytestmark = pytest.mark.usefixtures("cpu_kernel")

OPS = torch.ops.adaln_projection
T, N, K = 5, 70, 24


def tensors(*, requires_grad=False):
    generator = torch.Generator().manual_seed(7)
    temb = torch.randn(T, K, generator=generator)
    weight, bias = (
        torch.randn(N, K, generator=generator).bfloat16(),
        torch.randn(N, generator=generator).bfloat16(),
    )
    return [tensor.requires_grad_(requires_grad) for tensor in (temb, weight, bias)]


def gradient():
    return torch.randn(T, N, generator=torch.Generator().manual_seed(8)).bfloat16()


def activated(temb):
    return torch.nn.functional.silu(temb.detach()).bfloat16()


def call_all_ops():
    temb, weight, bias = tensors()
    act, grad_table = activated(temb), gradient()
    return {
        "forward": (act, weight, bias),
        "d_act": (grad_table, weight),
        "d_weight_bias": (grad_table, act),
        "activation": (temb,),
        "d_temb": (torch.randn(T, K), temb),
        "projection": tuple(tensors(requires_grad=True)),
    }


@pytest.mark.parametrize("name", call_all_ops())
def test_opcheck(name):
    torch.library.opcheck(getattr(OPS, name).default, call_all_ops()[name])


def test_results_have_the_promised_shapes_and_dtypes():
    temb, weight, bias = tensors()
    table = forward(activated(temb), weight, bias)
    d_act, d_weight, d_bias = backward(gradient(), activated(temb), weight)
    described = [(tuple(x.shape), x.dtype) for x in (table, d_act, d_weight, d_bias)]
    assert described == [
        ((T, N), torch.bfloat16),
        ((T, K), torch.float32),
        ((N, K), torch.bfloat16),
        ((N,), torch.bfloat16),
    ]


def test_the_table_is_near_the_float64_product():
    temb, weight, bias = tensors()
    exact = activated(temb).double() @ weight.double().T + bias.double()
    torch.testing.assert_close(adaln_projection(temb, weight, bias).double(), exact, rtol=2**-8, atol=1e-6)


def test_autograd_is_the_contract_s_backward_and_torch_s_silu_derivative():
    temb, weight, bias = tensors(requires_grad=True)
    adaln_projection(temb, weight, bias).backward(gradient())
    d_act, d_weight, d_bias = backward(gradient(), activated(temb), weight.detach())
    z = temb.detach()
    s = torch.sigmoid(z)
    assert torch.equal(temb.grad, d_act * (s * (1 + z * (1 - s))))
    assert torch.equal(weight.grad, d_weight)
    assert torch.equal(bias.grad, d_bias)


def test_gradients_are_near_those_of_float64():
    inputs = tensors(requires_grad=True)
    adaln_projection(*inputs).backward(gradient())
    temb, weight, bias = (tensor.detach().double().requires_grad_() for tensor in inputs)
    (torch.nn.functional.silu(temb) @ weight.T + bias).backward(gradient().double())
    torch.testing.assert_close(inputs[0].grad.double(), temb.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(inputs[1].grad.double(), weight.grad, rtol=2**-6, atol=2**-5)
    torch.testing.assert_close(inputs[2].grad.double(), bias.grad, rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize(
    ("wanted", "skipped"), [("temb", "d_weight_bias"), ("weight", "d_act"), ("bias", "d_act")]
)
def test_a_gradient_that_nobody_wants_is_not_computed(wanted, skipped, monkeypatch):
    def refuse(*_):
        raise AssertionError(f"{skipped} was computed")

    monkeypatch.setattr(operators, f"_{skipped}", refuse)
    inputs = dict(zip(("temb", "weight", "bias"), tensors(), strict=True))
    inputs[wanted].requires_grad_()
    adaln_projection(**inputs).backward(gradient())
    assert [name for name, tensor in inputs.items() if tensor.grad is not None] == [wanted]


def test_compiled_gives_the_same_bits():
    compiled = torch.compile(adaln_projection, backend="aot_eager", fullgraph=True)
    eager, traced = tensors(requires_grad=True), tensors(requires_grad=True)
    tables = [adaln_projection(*eager), compiled(*traced)]
    assert torch.equal(*tables)
    for table in tables:
        table.backward(gradient())
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(eager, traced, strict=True))


def test_non_contiguous_inputs_are_taken():
    temb, weight, bias = tensors()
    act, grad_table = activated(temb), gradient()
    expected = [forward(act, weight, bias), *backward(grad_table, act, weight)]
    act, weight, grad_table = (x.T.contiguous().T for x in (act, weight, grad_table))
    got = [forward(act, weight, bias), *backward(grad_table, act, weight)]
    assert all(map(torch.equal, expected, got))


def test_an_expanded_gradient_is_taken():
    inputs = tensors(requires_grad=True)
    adaln_projection(*inputs).sum().backward()
    assert torch.equal(inputs[2].grad, torch.full((N,), float(T)).bfloat16())


def test_only_misaligned_cuda_tensors_are_copied():
    class OnCuda:
        is_cuda = True

        def __init__(self, pointer):
            self.pointer = pointer

        def contiguous(self):
            return self

        def data_ptr(self):
            return self.pointer

        def clone(self):
            return "a copy"

    aligned = OnCuda(256)
    assert prepared(aligned) is aligned
    assert prepared(OnCuda(258)) == "a copy"


def test_an_old_gpu_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    with (
        pytest.raises(RuntimeError, match=r"8\.0 or newer.*cuda:1 is a Tesla T4, 7\.5"),
        cuda._launching(torch.device("cuda", 1)),
    ):
        pass


@pytest.mark.parametrize("name", ["forward", "d_act", "d_weight_bias", "activation", "d_temb"])
def test_a_part_is_not_differentiable_by_itself(name):
    inputs = [tensor.detach().requires_grad_() for tensor in call_all_ops()[name]]
    output = getattr(OPS, name)(*inputs)
    with pytest.raises(NotImplementedError, match="use adaln_projection"):
        (output if isinstance(output, torch.Tensor) else output[0]).sum().backward()


def zeros(*shape, dtype=torch.bfloat16, device="cpu"):
    return torch.zeros(shape, dtype=dtype, device=device)


F32, META = torch.float32, "meta"
REFUSED = {
    "bf16 temb": (
        adaln_projection,
        [zeros(T, K), zeros(N, K), zeros(N)],
        TypeError,
        "temb must be torch.float32",
    ),
    "f32 weight": (
        adaln_projection,
        [zeros(T, K, dtype=F32), zeros(N, K, dtype=F32), zeros(N)],
        TypeError,
        "weight",
    ),
    "f32 act": (
        forward,
        [zeros(T, K, dtype=F32), zeros(N, K), zeros(N)],
        TypeError,
        "act must be torch.bfloat16",
    ),
    "f32 bias": (
        forward,
        [zeros(T, K), zeros(N, K), zeros(N, dtype=F32)],
        TypeError,
        "bias must be torch.bfloat16",
    ),
    "f32 grad": (
        backward,
        [zeros(T, N, dtype=F32), zeros(T, K), zeros(N, K)],
        TypeError,
        "grad_table must be",
    ),
    "no rows": (
        adaln_projection,
        [zeros(0, K, dtype=F32), zeros(N, K), zeros(N)],
        ValueError,
        "temb is empty",
    ),
    "no columns": (forward, [zeros(T, K), zeros(0, K), zeros(0)], ValueError, "weight is empty"),
    "K of 0": (forward, [zeros(T, 0), zeros(N, 0), zeros(N)], ValueError, "act is empty"),
    "K of 12": (forward, [zeros(T, 12), zeros(N, 12), zeros(N)], ValueError, "multiple of 8, got 12"),
    "K of 12, back": (
        backward,
        [zeros(T, N), zeros(T, 12), zeros(N, 12)],
        ValueError,
        "multiple of 8, got 12",
    ),
    "two K": (forward, [zeros(T, 16), zeros(N, 8), zeros(N)], ValueError, "K is 16 in act and 8 in weight"),
    "two N": (forward, [zeros(T, K), zeros(N, K), zeros(9)], ValueError, "N is 70 in weight and 9 in bias"),
    "two T": (
        backward,
        [zeros(4, N), zeros(T, K), zeros(N, K)],
        ValueError,
        "T is 4 in grad_table and 5 in act",
    ),
    "a vector": (
        forward,
        [zeros(K), zeros(N, K), zeros(N)],
        ValueError,
        r"act must have shape \[T, K\], got \[24\]",
    ),
    "a cube": (forward, [zeros(1, T, K), zeros(N, K), zeros(N)], ValueError, r"got \[1, 5, 24\]"),
    "two devices": (forward, [zeros(T, K), zeros(N, K, device=META), zeros(N)], ValueError, "weight on meta"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused(case):
    function, arguments, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        function(*arguments)


def test_the_reference_runs_on_torch_s_number_of_threads(monkeypatch):
    seen = []

    class Library:
        def adaln_cpu_forward(self, *arguments):
            seen.append(arguments[-2])
            return 0

    monkeypatch.setattr(cpu, "load", lambda target: Library())
    monkeypatch.setattr(torch, "get_num_threads", lambda: 11)
    cpu.forward(zeros(T, K), zeros(N, K), zeros(N))
    assert seen == [11]
