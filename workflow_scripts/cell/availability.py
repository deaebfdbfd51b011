"""Whether a cell can run here at all: device, instruction sets, libraries."""

from collections.abc import Mapping
from typing import Any

import torch

from workflow_scripts.cell.environment import cpu_flags, library_version


def missing(spec: Mapping[str, Any]) -> str | None:
    """The reason why this cell cannot run on this machine, in one sentence; None where it can."""
    if spec["device"] == "cuda" and not torch.cuda.is_available():
        built = torch.version.cuda
        return (
            "no CUDA device" if built else f"no CUDA device (torch {torch.__version__} is built without CUDA)"
        )
    lacking = [name for name in spec["needs"]["instruction_sets"] if name not in cpu_flags()]
    if lacking:
        return f"the CPU lacks {', '.join(lacking)}"
    absent = [name for name in spec["needs"]["libraries"] if library_version(name) is None]
    if absent:
        return f"not installed in the mode's environment: {', '.join(absent)}"
    return None
