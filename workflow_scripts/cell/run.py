"""Run a prepared candidate forward and backward, and look at what it did."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from workflow_scripts.candidates import Prepared
from workflow_scripts.operators import Operator

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass
class Outputs:
    """One run: the outputs with their graph, and after `backward` all tensors by id."""

    outputs: tuple[Tensor, ...]
    tensors: dict[str, Tensor]


def forward(operator: Operator, prepared: Prepared) -> Outputs:
    """Compute the outputs.

    Raises:
        TypeError, ValueError: the candidate's result is not the operator's outputs.
    """
    outputs = operator.outputs(prepared.forward())
    return Outputs(outputs, {f"out_{i}": output.detach() for i, output in enumerate(outputs)})


def backward(operator: Operator, prepared: Prepared, run: Outputs, grad: Tensor) -> None:
    """Compute the gradients of every leaf and add them to the run's tensors.

    Raises:
        ValueError: a gradient is missing.
    """
    leaves = [prepared.leaves[name] for name in operator.inputs]
    if not run.outputs[0].requires_grad:
        raise ValueError("the output does not depend on any input that requires a gradient")
    gradients = torch.autograd.grad(run.outputs[0], leaves, grad, allow_unused=True)
    run.outputs = ()
    for name, leaf, gradient in zip(operator.inputs, leaves, gradients, strict=True):
        if gradient is None:
            raise ValueError(f"the gradient of {name} is None")
        if gradient.shape != leaf.shape or gradient.dtype != leaf.dtype:
            raise ValueError(
                f"the gradient of {name} is {gradient.dtype} {list(gradient.shape)}; "
                f"expected {leaf.dtype} {list(leaf.shape)}"
            )
        run.tensors[f"grad_{name}"] = gradient


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors of one dtype and shape have the same raw bits, NaN payloads and signs of zero too."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    bits = _BITS[a.element_size()]
    return torch.equal(a.contiguous().view(bits), b.contiguous().view(bits))


def differing(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> list[str]:
    """Ids of the tensors whose bits are not the same in both, sorted."""
    return sorted(name for name in a.keys() | b.keys() if not (name in a and name in b and same_bits(a[name], b[name])))
