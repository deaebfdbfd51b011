"""Deal out the GPUs of a machine to local jobs, by file locks. Standard library only."""

import fcntl
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

POLL_SECONDS = 0.05


def candidates(environ: Mapping[str, str], gpus: int) -> list[str]:
    """The device names that may be used: those in CUDA_VISIBLE_DEVICES, else the first `gpus` indices."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip()]
    return [str(index) for index in range(gpus)]


def take_gpu(
    environ: Mapping[str, str], gpus: int, cells_per_gpu: int, *, whole: bool = False
) -> dict[str, str]:
    """Wait for a free slot on a GPU, or for all of its slots, and return the variables that select it.

    A GPU has `cells_per_gpu` slots. The slot's lock is an open file that the process keeps through exec, so
    it is free again when the process is gone, however it ended. Where a scheduler gave this job exactly one
    GPU, or none is visible, nothing is locked.
    """
    names = candidates(environ, gpus)
    if not names or ("SLURM_JOB_ID" in environ and len(names) == 1):
        return {}
    # Inside an allocation of several GPUs the indices are the allocation's own.
    owner = f"job-{environ['SLURM_JOB_ID']}" if "SLURM_JOB_ID" in environ else os.getuid()
    folder = Path(tempfile.gettempdir()) / f"bitwise-reuse-audit-gpus-{owner}"
    folder.mkdir(mode=0o700, exist_ok=True)
    # Spread over the GPUs before sharing one. Who wants all slots takes them in order, so that no two of that
    # kind wait for each other.
    name = _first_free(
        folder, [(name, slot) for slot in range(1 if whole else cells_per_gpu) for name in names]
    )
    for slot in range(1, cells_per_gpu if whole else 1):
        _first_free(folder, [(name, slot)])
    return {"CUDA_VISIBLE_DEVICES": name}


def _first_free(folder: Path, slots: Sequence[tuple[str, int]]) -> str:
    """Wait until one of these slots is free and take it; the name of its GPU."""
    while True:
        for name, slot in slots:
            if _lock(folder / f"{name.replace('/', '_')}.{slot}.lock"):
                return name
        time.sleep(POLL_SECONDS)


def _lock(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    os.set_inheritable(descriptor, True)
    return True
