"""Registry of candidates: who computes the operator.

A candidate prepares a forward function on given tensors. Any importable function of the operator's inputs can
be one, by `callable: package.module:attribute`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from workflow_scripts.errors import AuditError

if TYPE_CHECKING:
    from torch import Tensor

    from workflow_scripts.operators import Operator

MODULES = {
    "diffusers": "workflow_scripts.candidates.diffusers",
    "rl_kernel": "workflow_scripts.candidates.rl_kernel",
}


SOURCES = {
    "diffusers": "diffusers AdaLN projection, BF16 F.linear",
    "rl_kernel": "rl_kernel deterministic AdaLN projection, contract h3-det-linear-bf16-mma-v1",
}
"""What the report gives as the source of a built-in candidate."""


class CandidateUnavailableError(AuditError):
    """The candidate cannot run on this machine; the cell is `unavailable`, with this reason."""


@dataclass(frozen=True)
class Prepared:
    """A candidate bound to its inputs."""

    forward: Callable[[], Any]
    """Computes the outputs, differentiable with respect to `leaves`."""
    leaves: "dict[str, Tensor]"
    """The tensors whose gradients are asked for, by input name."""
    callable: str
    """What really runs, in words."""
    kernel: dict[str, Any] | None = None
    """Code digests and repository of a kernel that was built for this audit."""
    deviations: list[str] = field(default_factory=list)
    """In which ways what runs is not the released thing."""


class Candidate(Protocol):
    """What a candidate's module offers."""

    def prepare(self, operator: "Operator", inputs: "dict[str, Tensor]") -> Prepared:
        """Bind the candidate to inputs that require gradients."""


def find(name: str) -> Any:
    """The module of a built-in candidate."""
    return import_module(MODULES[name])


def prepare(spec: Mapping[str, Any], operator: "Operator", inputs: "dict[str, Tensor]") -> Prepared:
    """Bind the candidate of a cell to its inputs, which are made to require gradients.

    Raises:
        ImportError: as by `from_callable`.
    """
    for tensor in inputs.values():
        tensor.requires_grad_()
    if spec["callable"]:
        return from_callable(spec["callable"], operator, inputs)
    prepared: Prepared = find(spec["candidate"]).prepare(operator, inputs)
    return prepared


def from_callable(spec: str, operator: "Operator", inputs: "dict[str, Tensor]") -> Prepared:
    """Bind the function at `package.module:attribute`.

    Raises:
        ImportError: the module or the attribute cannot be had; the message says which.
    """
    module_name, _, attribute = spec.partition(":")
    function: Any = import_module(module_name)
    for part in attribute.split("."):
        if not hasattr(function, part):
            raise ImportError(f"{module_name} has no attribute {attribute!r}")
        function = getattr(function, part)
    arguments = [inputs[name] for name in operator.inputs]
    return Prepared(forward=lambda: function(*arguments), leaves=dict(inputs), callable=spec)
