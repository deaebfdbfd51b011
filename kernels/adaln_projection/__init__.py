"""The AdaLN projection with bits fixed by contract: CUDA kernels, and the CPU reference that they equal.

The arithmetic is in CONTRACT.md.
Build the libraries first: `python -P -m kernels.adaln_projection.build --help`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernels.adaln_projection.ops import adaln_projection, backward, forward

__all__ = ["adaln_projection", "backward", "forward"]


def __getattr__(name: str) -> Any:  # so that building the libraries needs no torch
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kernels.adaln_projection import ops  # noqa: PLC0415

    return getattr(ops, name)
