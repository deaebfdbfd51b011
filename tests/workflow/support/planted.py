"""Candidates that go wrong in one way, as files for the folder `callables`."""

EXPRESSION = """\
import torch.nn.functional as F


def table(temb, w, b):
    return F.linear(F.silu(temb).to(w.dtype), w, b)
"""

# Holds the GPU's lock while its process lives, so that a second process on the GPU fails; notes the GPU.
ON_GPU = """\
import fcntl
import os
from pathlib import Path

from expression import table

gpu = os.environ["CUDA_VISIBLE_DEVICES"]
lock = Path(__file__).with_name(f"gpu-{gpu}.lock").open("w")
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
with Path(__file__).with_name("gpus.txt").open("a") as file:
    file.write(f"{gpu}\\n")
"""

FAILS_ONCE = """\
from pathlib import Path

from expression import table as sound

tried = Path(__file__).with_suffix(".tried")


def table(temb, w, b):
    if not tried.exists():
        tried.touch()
        raise RuntimeError("planted: fails at its first attempt")
    return sound(temb, w, b)
"""

FAILS = """\
def table(temb, w, b):
    raise RuntimeError("planted: fails always")
"""

WAITS_ONCE = """\
import time
from pathlib import Path

from expression import table as sound

tried = Path(__file__).with_suffix(".tried")


def table(temb, w, b):
    if not tried.exists():
        tried.touch()
        time.sleep(600)
    return sound(temb, w, b)
"""

WAITS_FOR_LEAVE = """\
import time
from pathlib import Path

from expression import table as sound

here = Path(__file__).parent


def table(temb, w, b):
    (here / "waiting").touch()
    while not (here / "leave").exists():
        time.sleep(0.05)
    return sound(temb, w, b)
"""

HUNGRY = """\
import time

from expression import table

held = bytearray(b"x") * 2**30
time.sleep(5)  # SLURM looks once a second
"""
