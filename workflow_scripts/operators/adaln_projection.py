"""MiniMax-H3's AdaLN projection: `table = silu(temb).to(bf16) @ W.T + b`.

temb f32 [T, K], W bf16 [N, K], b bf16 [N], table bf16 [T, N], with N = 18 H (six parameters for each of three
modalities). Source: `MiniMaxH3AdaLayerNormModulation` of diffusers 0.40 and newer.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from workflow_scripts.operators import Part
from workflow_scripts.operators.adaln_layout import MODALITIES, PARAMETERS, AdalnLayout
from workflow_scripts.rounding import round_to


def _normal(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class AdalnProjection(AdalnLayout):
    """The operator at one pair of widths."""

    def make_inputs(
        self, rows: int, seeds: Mapping[str, int], weights: Mapping[str, Tensor] | None
    ) -> dict[str, Tensor]:
        """Inputs temb f32 [rows, K], w bf16 [N, K], b bf16 [N] and grad bf16 [rows, N], from CPU generators.

        W is normal with variance 1/K, b normal with deviation 0.02 from the same generator; temb and grad are
        standard normal, each from a generator of its own.
        """
        with ThreadPoolExecutor() as pool:  # one generator runs on one core
            temb = pool.submit(_normal, (rows, self.dim), seeds["temb"])
            grad = pool.submit(lambda: _normal((rows, self.columns), seeds["grad"]).bfloat16())
            drawn = dict(weights) if weights is not None else self._weights(seeds["weights"])
            return {"temb": temb.result(), "w": drawn["w"], "b": drawn["b"], "grad": grad.result()}

    def _weights(self, seed: int) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        w = torch.randn(self.columns, self.dim, generator=generator).mul_(self.dim**-0.5).bfloat16()
        b = (torch.randn(self.columns, generator=generator) * 0.02).bfloat16()
        return {"w": w, "b": b}

    def outputs(self, result: Any) -> tuple[Tensor, ...]:
        """The table in a candidate's result: the table itself, or diffusers' six chunks of it.

        A chunk is bf16 [3 T, H]: a row for each modality of each row of the table.

        Raises:
            TypeError: the result is neither a tensor nor six tensors, or is not bf16.
            ValueError: a chunk is missing, or a shape is wrong.
        """
        if isinstance(result, Tensor):
            _check_bf16("the table", result)
            if result.ndim != 2 or result.shape[1] != self.columns:
                raise ValueError(f"the table has shape {list(result.shape)}; expected [rows, {self.columns}]")
            return (result,)
        if not isinstance(result, tuple | list):
            raise TypeError(f"the result is {type(result).__name__}; expected the table or its six chunks")
        if len(result) != PARAMETERS:
            raise ValueError(f"the result has {len(result)} chunks; expected {PARAMETERS}")
        for index, chunk in enumerate(result):
            _check_bf16(f"chunk {index}", chunk)
            rows = result[0].shape[0] if chunk.ndim else 0
            if list(chunk.shape) != [rows, self.hidden] or rows % MODALITIES:
                expected = f"[{MODALITIES} x rows, {self.hidden}]"
                raise ValueError(f"chunk {index} has shape {list(chunk.shape)}; expected {expected}")
        return (torch.cat(tuple(result), dim=-1).view(-1, self.columns),)

    def expression(self, *inputs: Tensor) -> Tensor:
        """The expression of diffusers: silu in f32, one rounding to bf16, F.linear."""
        temb, w, b = inputs
        return functional.linear(functional.silu(temb).to(w.dtype), w, b)

    def reference(self, inputs: Mapping[str, Tensor], columns: int = 4096) -> Iterator[Part]:
        """Outputs and gradients in float64, in parts of so many columns of the table.

        act, rounded once to bf16, is part of the operator; the rounding's derivative is taken as 1.
        """
        z = inputs["temb"].double()
        sigmoid = torch.sigmoid(z)
        act = round_to(z * sigmoid, torch.bfloat16)
        d_act = torch.zeros_like(z)
        for start in range(0, self.columns, columns):
            part = slice(start, start + columns)
            w, b, grad = (
                inputs["w"][part].double(),
                inputs["b"][part].double(),
                inputs["grad"][:, part].double(),
            )
            d_act.addmm_(grad, w)
            yield Part("out_0", (slice(None), part), torch.addmm(b, act, w.T))
            yield Part("grad_w", (part,), grad.T @ act)
            yield Part("grad_b", (part,), grad.sum(dim=0))
        yield Part("grad_temb", (), d_act * (sigmoid * (1 + z * (1 - sigmoid))))


def _check_bf16(what: str, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{what} is {type(value).__name__}; expected a tensor")
    if value.dtype != torch.bfloat16:
        raise TypeError(f"{what} is {value.dtype}; expected torch.bfloat16")


def create(hidden: int, dim: int) -> AdalnProjection:
    """The operator for hidden width H and timestep embedding width K."""
    return AdalnProjection(hidden=hidden, dim=dim)
