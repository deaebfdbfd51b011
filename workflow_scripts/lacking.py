"""What this machine lacks of what a cell needs, so that `unavailable` is believed only where it is true.

A cell that found no GPU on a login node must be made again on a node with one; a cell that ran on a GPU must
not be made again because somebody looks at its results on a login node.
"""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

GPUS = Path("/proc/driver/nvidia/gpus")
CPU_INFO = Path("/proc/cpuinfo")
REASONS = ("no CUDA device", "the CPU lacks ")
"""How the reasons begin that another machine may not have (workflow_scripts/cell/availability.py)."""


def lacking_here(device: str, instruction_sets: Sequence[str], manifest: str | Path) -> list[str]:
    """What the cell needs and this machine lacks; nothing where the recorded cell was not stopped by that.

    A parameter of the cell's job: a value other than the recorded one makes the cell stale.

    Args:
        device: "cpu" or "cuda".
        instruction_sets: CPU flags that the mode needs.
        manifest: the cell's manifest, which need not exist.
    """
    flags, has_gpu = _machine()
    lacking = ["CUDA device"] if device == "cuda" and not has_gpu else []
    lacking += [name for name in instruction_sets if name not in flags]
    return lacking if lacking and _stopped_by_the_machine(Path(manifest)) else []


@cache
def _machine() -> tuple[frozenset[str], bool]:
    has_gpu = GPUS.is_dir() and any(GPUS.iterdir())
    return frozenset(CPU_INFO.read_text(errors="replace").split()), has_gpu


def _stopped_by_the_machine(manifest: Path) -> bool:
    """Whether it is recorded that the cell found no device, or nothing is recorded yet."""
    try:
        recorded = json.loads(manifest.read_text(encoding="utf-8"))
        return recorded["status"] == "unavailable" and str(recorded["reason"]).startswith(REASONS)
    except (OSError, ValueError, TypeError, KeyError):
        return True
