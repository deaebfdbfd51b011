"""rl_kernel: our deterministic kernel, on CUDA, or its exact reference on a CPU."""

from torch import Tensor

from kernels import adaln_projection
from kernels.adaln_projection import library
from workflow_scripts.candidates import CandidateUnavailableError, Prepared
from workflow_scripts.operators import Operator


def prepare(operator: Operator, inputs: dict[str, Tensor]) -> Prepared:
    """Bind the kernel; the library is the one that this audit built, in ADALN_KERNEL_DIR.

    Raises:
        AuditError: it is not built; CandidateUnavailableError where its compiler was missing.
    """
    device = inputs[operator.inputs[0]].device.type
    if reason := library.missing_compiler(device):
        raise CandidateUnavailableError(f"the kernel is not built for {device}: {reason}")
    built = library.build_record(library.default_directory())
    code = {target: found and found["code_digest"] for target, found in built["libraries"].items()}
    arguments = [inputs[name] for name in operator.inputs]
    return Prepared(
        forward=lambda: adaln_projection.adaln_projection(*arguments),
        leaves=dict(inputs),
        callable="kernels.adaln_projection.adaln_projection",
        kernel={"code": code, "repository": built["repository"]},
    )
