"""The bits of the published kernel on an H200, at H3's full width.

Each digest is the first 16 hex digits of the sha256 of a tensor's raw bytes, measured on the GPU. SiLU is the
one step that the CPU might do otherwise, so its digest is checked first. `d_temb` also goes through torch's
own sigmoid and is not compared here.
"""

import hashlib

import pytest
import torch

from kernels.adaln_projection import backward, forward

pytestmark = [pytest.mark.usefixtures("cpu_kernel"), pytest.mark.slow]

N, K = 96768, 2688
INPUTS = {"weight": "984121a6f3ffd894", "bias": "6ca1430cb050036b"}
GOLDEN = {
    1: ["9675b2dfea8ff3cb", "ebda998129c69ead", "d828430d08035e43", "a141019d487c0411", "b31755864b5512ce"],
    4: ["fd434ae7ba4c54b1", "6eb46fa7b880716c", "f5500ef8486da64e", "8a64c50e941988bb", "f314da0d253aca1e"],
    64: ["3496de76b0a8beb3", "b575612d8bce277a", "a901db32d56cf554", "3bd991c8e72a29ca", "e149fde1f08d93b3"],
}


def digest(tensor):
    return hashlib.sha256(tensor.view(torch.uint8).numpy()).hexdigest()[:16]


@pytest.fixture(scope="module")
def parameters():
    """Weight and bias, from one generator; the weight in blocks, which draw the same numbers as one call."""
    generator = torch.Generator().manual_seed(1)
    blocks = [(torch.randn(N // 16, K, generator=generator) * K**-0.5).bfloat16() for _ in range(16)]
    bias = (torch.randn(N, generator=generator) * 0.02).bfloat16()
    return torch.cat(blocks), bias


def test_inputs(parameters):
    assert [digest(tensor) for tensor in parameters] == list(INPUTS.values())


@pytest.mark.parametrize("rows", GOLDEN)
def test_golden_bits(rows, parameters):
    weight, bias = parameters
    temb = torch.randn(rows, K, generator=torch.Generator().manual_seed(3))
    grad_table = torch.randn(rows, N, generator=torch.Generator().manual_seed(4)).bfloat16()
    act = torch.nn.functional.silu(temb).bfloat16()
    assert digest(act) == GOLDEN[rows][0], (
        "this CPU's SiLU has other bits than CUDA's: the rest can't be compared"
    )
    tensors = [forward(act, weight, bias), *backward(grad_table, act, weight)]
    assert [digest(tensor) for tensor in tensors] == GOLDEN[rows][1:]
