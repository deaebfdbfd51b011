"""Registry of operators: what is computed.

Each operator is two modules: its layout (names, shapes and rows of its tensors; torch-free, since the
workflow needs it before any job) and its computation (inputs, provider's expression, float64 reference).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor

LAYOUTS = {"adaln_projection": "workflow_scripts.operators.adaln_layout"}
MODULES = {"adaln_projection": "workflow_scripts.operators.adaln_projection"}


@dataclass(frozen=True)
class Part:
    """A part of a float64 reference: `values` are those of `tensor[index]`."""

    tensor: str
    index: tuple[slice, ...]
    values: "Tensor"


class Layout(Protocol):
    """Names, shapes and rows of an operator's tensors at given widths."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs, in the order of a candidate's arguments; each has a gradient."""

    @property
    def row_inputs(self) -> tuple[str, ...]:
        """Inputs (and `grad`) whose first axis is the rows."""

    @property
    def row_tensors(self) -> tuple[str, ...]:
        """Ids of the outputs and gradients whose first axis is the rows."""

    @property
    def tensor_ids(self) -> tuple[str, ...]:
        """Ids of all tensors that a cell dumps: outputs first, then gradients."""

    def shapes(self, rows: int) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Dtype (as safetensors names it) and shape of each input and of `grad`."""


class Operator(Layout, Protocol):
    """An operator that can be computed."""

    def make_inputs(
        self, rows: int, seeds: Mapping[str, int], weights: "Mapping[str, Tensor] | None"
    ) -> "dict[str, Tensor]":
        """Inputs and `grad`, made on the CPU; `weights` replaces the made ones."""

    def outputs(self, result: Any) -> "tuple[Tensor, ...]":
        """The outputs in a candidate's result; TypeError or ValueError where one is missing or misshapen."""

    def expression(self, *inputs: "Tensor") -> "Tensor":
        """The provider's expression, op for op."""

    def reference(self, inputs: "Mapping[str, Tensor]") -> Iterator[Part]:
        """Outputs and gradients in float64, in parts that fit in memory, on the inputs' device."""


def layout(name: str, **widths: int) -> Layout:
    """The layout of the operator of that name at these widths; imports no torch."""
    found: Layout = import_module(LAYOUTS[name]).create(**widths)
    return found


def create(name: str, **widths: int) -> Operator:
    """The operator of that name at these widths."""
    found: Operator = import_module(MODULES[name]).create(**widths)
    return found
