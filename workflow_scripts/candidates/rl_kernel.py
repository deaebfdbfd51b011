"""rl_kernel: our deterministic kernel, on CUDA, or its exact reference on a CPU."""

import json
import os
from pathlib import Path

from torch import Tensor

from kernels import adaln_projection
from workflow_scripts.candidates import Prepared
from workflow_scripts.operators import Operator


def prepare(operator: Operator, inputs: dict[str, Tensor]) -> Prepared:
    """Bind the kernel; the library is the one that this audit built, in ADALN_KERNEL_DIR."""
    build = json.loads((Path(os.environ["ADALN_KERNEL_DIR"]) / "build.json").read_text())
    code = json.loads((Path(os.environ["ADALN_KERNEL_DIR"]) / "code.json").read_text())
    arguments = [inputs[name] for name in operator.inputs]
    return Prepared(
        forward=lambda: adaln_projection.adaln_projection(*arguments),
        leaves=dict(inputs),
        callable="kernels.adaln_projection.adaln_projection",
        kernel={"code": code, "repository": build["repository"]},
    )
