"""The operator as torch sees it: custom ops with fake implementations and autograd.

CUDA tensors run the CUDA kernels, CPU tensors the reference; neither ever stands in for the other. SiLU and
its derivative are torch's own elementwise ops, kept inside custom ops so that a compiler can't fuse them into
other bits.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernels.adaln_projection import cpu, cuda
from kernels.adaln_projection.checks import check_shapes, check_tensors, prepared

_BF16, _F32 = torch.bfloat16, torch.float32
_DTYPES = {"act": _BF16, "weight": _BF16, "bias": _BF16, "grad_table": _BF16, "temb": _F32, "d_act": _F32}
_SHAPES = {
    "act": ("T", "K"),
    "temb": ("T", "K"),
    "d_act": ("T", "K"),
    "weight": ("N", "K"),
    "bias": ("N",),
    "grad_table": ("T", "N"),
}


def _check(**tensors: Tensor) -> None:
    check_tensors(_DTYPES, **tensors)
    check_shapes(_SHAPES, **tensors)


# As torch.library.custom_op, which imports torch._dynamo at its first call: seconds of each process.
_LIBRARY = torch.library.Library("adaln_projection", "FRAGMENT")


def _define(schema: str, fake: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Define an op by its schema and its fake implementation; what it decorates runs on every device."""
    name = schema.partition("(")[0]

    def define(kernel: Callable[..., Any]) -> Callable[..., Any]:
        _LIBRARY.define(schema, tags=[torch.Tag.pt2_compliant_tag])
        _LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")
        torch.library.register_fake(f"adaln_projection::{name}", fake, lib=_LIBRARY)
        op: Callable[..., Any] = getattr(torch.ops.adaln_projection, name).default
        return op

    return define


def _forward_fake(act: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    _check(act=act, weight=weight, bias=bias)
    return act.new_empty((act.shape[0], weight.shape[0]))


@_define("forward(Tensor act, Tensor weight, Tensor bias) -> Tensor", _forward_fake)
def _forward(act: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    _check(act=act, weight=weight, bias=bias)
    if act.is_cuda:
        return cuda.forward(prepared(act), prepared(weight), prepared(bias))
    return cpu.forward(prepared(act), prepared(weight), prepared(bias))


def _d_act_fake(grad_table: Tensor, weight: Tensor) -> Tensor:
    _check(grad_table=grad_table, weight=weight)
    return grad_table.new_empty((grad_table.shape[0], weight.shape[1]), dtype=_F32)


@_define("d_act(Tensor grad_table, Tensor weight) -> Tensor", _d_act_fake)
def _d_act(grad_table: Tensor, weight: Tensor) -> Tensor:
    _check(grad_table=grad_table, weight=weight)
    if weight.is_cuda:
        return cuda.d_act(prepared(grad_table), prepared(weight))
    return cpu.d_act(prepared(grad_table), prepared(weight))


def _d_weight_bias_fake(grad_table: Tensor, act: Tensor) -> tuple[Tensor, Tensor]:
    _check(grad_table=grad_table, act=act)
    n, k = grad_table.shape[1], act.shape[1]
    return grad_table.new_empty((n, k)), grad_table.new_empty((n,))


@_define("d_weight_bias(Tensor grad_table, Tensor act) -> (Tensor, Tensor)", _d_weight_bias_fake)
def _d_weight_bias(grad_table: Tensor, act: Tensor) -> tuple[Tensor, Tensor]:
    _check(grad_table=grad_table, act=act)
    if act.is_cuda:
        return cuda.d_weight_bias(prepared(grad_table), prepared(act))
    return cpu.d_weight_bias(prepared(grad_table), prepared(act))


def _activation_fake(temb: Tensor) -> Tensor:
    _check(temb=temb)
    return torch.empty_like(temb, dtype=_BF16)


@_define("activation(Tensor temb) -> Tensor", _activation_fake)
def _activation(temb: Tensor) -> Tensor:
    _check(temb=temb)
    return torch.nn.functional.silu(temb).to(_BF16)


def _d_temb_fake(d_act: Tensor, temb: Tensor) -> Tensor:
    _check(d_act=d_act, temb=temb)
    return torch.empty_like(d_act)


@_define("d_temb(Tensor d_act, Tensor temb) -> Tensor", _d_temb_fake)
def _d_temb(d_act: Tensor, temb: Tensor) -> Tensor:
    _check(d_act=d_act, temb=temb)
    sigmoid = torch.sigmoid(temb)
    return d_act * (sigmoid * (1 + temb * (1 - sigmoid)))


def _projection_fake(temb: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    _check(temb=temb, weight=weight, bias=bias)
    return weight.new_empty((temb.shape[0], weight.shape[0]))


@_define("projection(Tensor temb, Tensor weight, Tensor bias) -> Tensor", _projection_fake)
def _projection(temb: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    _check(temb=temb, weight=weight, bias=bias)
    return forward(_activation(temb), weight, bias)


def _save_for_backward(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:  # noqa: ARG001
    temb, weight, _ = inputs
    ctx.save_for_backward(temb, weight)


def _projection_backward(ctx: Any, grad_table: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    temb, weight = ctx.saved_tensors
    needs_temb, needs_weight, needs_bias = ctx.needs_input_grad
    d_temb = _d_temb(_d_act(grad_table, weight), temb) if needs_temb else None
    if not (needs_weight or needs_bias):
        return d_temb, None, None
    d_weight, d_bias = _d_weight_bias(grad_table, _activation(temb))
    return d_temb, d_weight if needs_weight else None, d_bias if needs_bias else None


def _no_backward(ctx: Any, *gradients: Tensor) -> None:
    raise NotImplementedError(
        "a part of the AdaLN projection has no gradient of its own: use adaln_projection."
    )


for _part in ("forward", "d_act", "d_weight_bias", "activation", "d_temb"):
    torch.library.register_autograd(f"adaln_projection::{_part}", _no_backward, lib=_LIBRARY)
torch.library.register_autograd(
    "adaln_projection::projection", _projection_backward, setup_context=_save_for_backward, lib=_LIBRARY
)


def forward(act: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The table, act @ weight.T + bias, by the contract's sums.

    Args:
        act: bf16 [T, K], K a multiple of 8.
        weight: bf16 [N, K].
        bias: bf16 [N].

    Returns:
        bf16 [T, N]. Not differentiable: see `backward` and `adaln_projection`.

    Raises:
        TypeError: a wrong dtype.
        ValueError: shapes that disagree, an empty tensor, K not a multiple of 8, several devices.
        RuntimeError: a GPU older than compute capability 8.0.
        AuditError: the library is not built.
    """
    table: Tensor = _forward(act, weight, bias)
    return table


def backward(grad_table: Tensor, act: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of `forward`, by the contract's ordered chains.

    Args:
        grad_table: bf16 [T, N].
        act: bf16 [T, K].
        weight: bf16 [N, K].

    Returns:
        d_act float32 [T, K], d_weight bf16 [N, K], d_bias bf16 [N].

    Raises:
        As `forward`.
    """
    _check(grad_table=grad_table, act=act, weight=weight)
    d_weight, d_bias = _d_weight_bias(grad_table, act)
    return _d_act(grad_table, weight), d_weight, d_bias


def adaln_projection(temb: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The AdaLN table, silu(temb) @ weight.T + bias, differentiable in all three.

    silu runs in float32 and is rounded once to bf16. The gradient of temb is
    d_act * (s * (1 + temb * (1 - s))) with s = sigmoid(temb), in float32.

    Args:
        temb: float32 [T, K], K a multiple of 8.
        weight: bf16 [N, K].
        bias: bf16 [N].

    Returns:
        bf16 [T, N].

    Raises:
        As `forward`.
    """
    table: Tensor = _projection(temb, weight, bias)
    return table
