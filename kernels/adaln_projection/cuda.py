"""Calls into libadaln_cuda.so: contiguous, 16-byte aligned tensors of one CUDA device, checked by the caller.

Launches go to that device's current stream, whichever device is current; scratch is torch's, so it is safe to
capture a call in a CUDA graph.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CDLL

import torch
from torch import Tensor

from kernels.adaln_projection.library import load

OLDEST_CAPABILITY = (8, 0)  # bf16 tensor cores


@contextmanager
def _launching(device: torch.device) -> Iterator[tuple[CDLL, int]]:
    """The library and the stream to launch on, with `device` current."""
    capability = torch.cuda.get_device_capability(device)
    if capability < OLDEST_CAPABILITY:
        name = torch.cuda.get_device_name(device)
        raise RuntimeError(
            "adaln_projection needs a GPU of compute capability 8.0 or newer (bf16 tensor cores); "
            f"{device} is a {name}, {capability[0]}.{capability[1]}"
        )
    with torch.cuda.device(device):
        yield load("cuda"), torch.cuda.current_stream(device).cuda_stream


def _check(library: CDLL, status: int) -> None:
    if status:
        raise RuntimeError(f"adaln_projection failed on the GPU: {library.adaln_cuda_error(status).decode()}")


def forward(act: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The table [T, N] of act [T, K], weight [N, K], bias [N], all bf16.

    Raises:
        RuntimeError: the GPU is too old, or a launch failed.
    """
    (rows, k), n = act.shape, weight.shape[0]
    table = torch.empty((rows, n), dtype=torch.bfloat16, device=act.device)
    with _launching(act.device) as (library, stream):
        size = library.adaln_cuda_forward_scratch_bytes(rows, n, k)
        scratch = torch.empty(size, dtype=torch.uint8, device=act.device)
        tensors = (act, weight, bias, table, scratch)
        pointers = tuple(tensor.data_ptr() for tensor in tensors)
        _check(library, library.adaln_cuda_forward(*pointers, rows, n, k, stream))
    return table


def d_act(grad_table: Tensor, weight: Tensor) -> Tensor:
    """d_act f32 [T, K] of grad_table bf16 [T, N] and weight bf16 [N, K].

    Raises:
        RuntimeError: the GPU is too old, or a launch failed.
    """
    (rows, n), k = grad_table.shape, weight.shape[1]
    result = torch.empty((rows, k), dtype=torch.float32, device=weight.device)
    with _launching(weight.device) as (library, stream):
        pointers = (grad_table.data_ptr(), weight.data_ptr(), result.data_ptr())
        _check(library, library.adaln_cuda_d_act(*pointers, rows, n, k, stream))
    return result


def d_weight_bias(grad_table: Tensor, act: Tensor) -> tuple[Tensor, Tensor]:
    """(d_weight [N, K], d_bias [N]) of grad_table [T, N] and act [T, K], all bf16.

    Raises:
        RuntimeError: the GPU is too old, or a launch failed.
    """
    (rows, n), k = grad_table.shape, act.shape[1]
    d_weight = torch.empty((n, k), dtype=torch.bfloat16, device=act.device)
    d_bias = torch.empty(n, dtype=torch.bfloat16, device=act.device)
    pointers = (grad_table.data_ptr(), act.data_ptr(), d_weight.data_ptr(), d_bias.data_ptr())
    with _launching(act.device) as (library, stream):
        _check(library, library.adaln_cuda_d_weight_bias(*pointers, rows, n, k, stream))
    return d_weight, d_bias
