"""diffusers' AdaLN projection: the released module where it is installed, its expression elsewhere."""

from typing import Any

import torch
from torch import Tensor, nn

from workflow_scripts.candidates import Prepared
from workflow_scripts.operators import Operator
from workflow_scripts.operators.adaln_projection import AdalnProjection

MODULE = "diffusers.models.transformers.transformer_minimax_h3"
EXPRESSION = "expression: F.linear(F.silu(temb).to(w.dtype), w, b)"


def _released_class() -> Any | None:
    """The class of diffusers 0.40 and newer; None where diffusers is missing or older."""
    try:
        from diffusers.models.transformers import transformer_minimax_h3  # noqa: PLC0415
    except ImportError:
        return None
    return transformer_minimax_h3.MiniMaxH3AdaLayerNormModulation


def prepare(operator: Operator, inputs: dict[str, Tensor]) -> Prepared:
    """Bind the module, on its own parameters, or else the expression."""
    released = _released_class()
    if released is None or not isinstance(operator, AdalnProjection):
        arguments = [inputs[name] for name in operator.inputs]
        return Prepared(lambda: operator.expression(*arguments), dict(inputs), EXPRESSION)
    with torch.device("meta"):  # its own parameters are replaced, so none are made
        module = released(operator.dim, operator.hidden)
    module.linear.weight = nn.Parameter(inputs["w"].detach())
    module.linear.bias = nn.Parameter(inputs["b"].detach())
    leaves = {"temb": inputs["temb"], "w": module.linear.weight, "b": module.linear.bias}
    return Prepared(lambda: module(inputs["temb"]), leaves, f"{MODULE}.{released.__name__}")
