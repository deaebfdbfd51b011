"""Run a prepared candidate, forward and backward, and refuse what is not the operator's result."""

import torch
from torch import Tensor

from workflow_scripts.candidates import Prepared
from workflow_scripts.operators import Operator


def forward(operator: Operator, prepared: Prepared, grad: Tensor) -> Tensor:
    """Compute the output, with its graph.

    Args:
        operator: what the candidate computes.
        prepared: the candidate.
        grad: the output's gradient; the output must have its shape and device.

    Raises:
        TypeError, ValueError: the candidate's result is not the operator's output.
    """
    (output,) = operator.outputs(prepared.forward())
    if output.device != grad.device:
        raise ValueError(f"the output is on {output.device}; expected {grad.device}")
    if output.shape != grad.shape:
        raise ValueError(f"the output has shape {list(output.shape)}; expected {list(grad.shape)}")
    if not output.requires_grad:
        raise ValueError("the output does not depend on any input that requires a gradient")
    return output


def gradients_of(output: Tensor, leaves: list[Tensor], grad: Tensor) -> tuple[Tensor | None, ...]:
    """`torch.autograd.grad` with `allow_unused`: the call that it comes down to.

    Before it, torch imports sympy to compare two shapes: a third of the time that a small cell takes.
    """
    found: tuple[Tensor | None, ...] = torch.autograd.graph._engine_run_backward(  # noqa: SLF001 (what torch.autograd.grad calls)
        (output,), (grad,), False, False, tuple(leaves), allow_unreachable=True, accumulate_grad=False
    )
    return found


def backward(operator: Operator, prepared: Prepared, output: Tensor, grad: Tensor) -> dict[str, Tensor]:
    """Gradients of every input, by tensor id.

    Raises:
        ValueError: a gradient is missing, or is not like its input.
    """
    leaves = [prepared.leaves[name] for name in operator.inputs]
    gradients = gradients_of(output, leaves, grad)
    found = {}
    for name, leaf, gradient in zip(operator.inputs, leaves, gradients, strict=True):
        if gradient is None:
            raise ValueError(f"the gradient of {name} is None: the output does not depend on {name}")
        if (gradient.dtype, gradient.shape, gradient.device) != (leaf.dtype, leaf.shape, leaf.device):
            raise ValueError(f"the gradient of {name} is {_kind(gradient)}; expected {_kind(leaf)}")
        found[f"grad_{name}"] = gradient
    return found


def _kind(tensor: Tensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)} on {tensor.device}"
