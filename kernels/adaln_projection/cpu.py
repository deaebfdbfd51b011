"""Calls into libadaln_cpu.so: contiguous CPU tensors, checked by the caller.

`isa` picks the instructions: the best that this processor has, or one set, or every forward sum in integers,
which is slow and what the others are checked against. Neither it nor the number of threads changes a bit.
"""

import torch
from torch import Tensor

from kernels.adaln_projection.library import load

BEST_ISA, BASELINE, AVX2, AVX512, INTEGERS = range(5)
_FAILURES = {1: "bad argument", 2: "this processor lacks the instruction set asked for", 3: "out of memory"}


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"the CPU reference of adaln_projection failed: {_FAILURES[status]}")


def forward(
    act: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    arch: int = 90,
    threads: int | None = None,
    isa: int = BEST_ISA,
) -> Tensor:
    """The table [T, N] of act [T, K], weight [N, K], bias [N], all bf16; `arch` is the tensor core, 80 or 90.

    Raises:
        RuntimeError: the library refused, with its reason.
    """
    (rows, k), n = act.shape, weight.shape[0]
    table = torch.empty((rows, n), dtype=torch.bfloat16)
    pointers = (act.data_ptr(), weight.data_ptr(), bias.data_ptr(), table.data_ptr())
    _check(
        load("cpu").adaln_cpu_forward(*pointers, rows, n, k, arch, threads or torch.get_num_threads(), isa)
    )
    return table


def d_act(grad_table: Tensor, weight: Tensor, *, threads: int | None = None, isa: int = BEST_ISA) -> Tensor:
    """d_act f32 [T, K] of grad_table bf16 [T, N] and weight bf16 [N, K].

    Raises:
        RuntimeError: the library refused, with its reason.
    """
    (rows, n), k = grad_table.shape, weight.shape[1]
    result = torch.empty((rows, k), dtype=torch.float32)
    pointers = (grad_table.data_ptr(), None, weight.data_ptr(), result.data_ptr(), None, None)
    _check(load("cpu").adaln_cpu_backward(*pointers, rows, n, k, threads or torch.get_num_threads(), isa))
    return result


def d_weight_bias(
    grad_table: Tensor, act: Tensor, *, threads: int | None = None, isa: int = BEST_ISA
) -> tuple[Tensor, Tensor]:
    """(d_weight [N, K], d_bias [N]) of grad_table [T, N] and act [T, K], all bf16.

    Raises:
        RuntimeError: the library refused, with its reason.
    """
    (rows, n), k = grad_table.shape, act.shape[1]
    d_weight = torch.empty((n, k), dtype=torch.bfloat16)
    d_bias = torch.empty(n, dtype=torch.bfloat16)
    pointers = (grad_table.data_ptr(), act.data_ptr(), None, None, d_weight.data_ptr(), d_bias.data_ptr())
    _check(load("cpu").adaln_cpu_backward(*pointers, rows, n, k, threads or torch.get_num_threads(), isa))
    return d_weight, d_bias
