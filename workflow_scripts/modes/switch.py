"""What a switch is: the thing a mode throws, once, before the operator runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from workflow_scripts.errors import AuditError

TORCH_PIN = "2.13.0"

Config = Mapping[str, Any]


class HalfEnabledError(AuditError):
    """A switch failed after it may have changed something.

    The process can no longer be called plain nor switched: it must write its manifest (unavailable, with this
    reason) and end at once, through `os._exit`, without running the operator.
    """


@dataclass(frozen=True)
class Thrown:
    """A switch that was thrown: the call that did it, and in what this installation is not as released."""

    entry_point: str | None
    deviations: list[str] = field(default_factory=list)
    library: str | None = None
    """Name and version of the library, or the commit of its source tree."""


class Switch(Protocol):
    """A library's way of changing how an operator is computed.

    `config` is the mode's entry in the configuration, with `device` ("cpu" or "cuda") added.
    """

    name: str

    def unavailable(self, config: Config) -> str | None:
        """The exact reason why it cannot be thrown here; None when it can. May import the library."""

    def throw(self, config: Config) -> Thrown:
        """Throw the switch. Never falls back to plain.

        Raises:
            AuditError: it cannot be thrown here, and nothing was changed.
            HalfEnabledError: it failed on the way; the process must end.
        """


def torch_deviations() -> list[str]:
    """A sentence when torch is not the pinned release; local version labels such as +cpu do not count."""
    import torch  # noqa: PLC0415 - registry and scrub must not load torch

    version = str(torch.__version__)
    if version.partition("+")[0] == TORCH_PIN:
        return []
    return [f"torch is {version}, not the pinned {TORCH_PIN}"]
