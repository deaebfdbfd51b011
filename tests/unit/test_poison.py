"""Poisoned memory shows what is left unwritten, and changes nothing else."""

import pytest
import torch

from workflow_scripts import operators
from workflow_scripts.cell.poison import poisoned
from workflow_scripts.modes.witness import record_kernels

MAKERS = {
    "empty": lambda like: torch.empty(like.shape, dtype=like.dtype),
    "empty_like": torch.empty_like,
    "empty_strided": lambda like: torch.empty_strided(like.shape, like.stride(), dtype=like.dtype),
    "empty_permuted": lambda like: torch.empty_permuted(like.shape, (1, 0), dtype=like.dtype),
    "new_empty": lambda like: like.new_empty(like.shape),
    "new_empty_strided": lambda like: like.new_empty_strided(like.shape, like.stride()),
    "out": lambda like: (
        torch.add(like, like, out=torch.empty(0, dtype=like.dtype)) * 0 + torch.empty_like(like)
    ),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", MAKERS)
def test_new_memory_reads_as_nan(name, dtype):
    like = torch.zeros(5, 7, dtype=dtype)
    with poisoned("cpu", []):
        assert MAKERS[name](like).isnan().all()


def test_written_memory_is_not_poisoned():
    with poisoned("cpu", []):
        assert torch.equal(torch.zeros(9), torch.full((9,), 0.0))
        assert torch.ones(3).clone().sum() == 3


def test_empty_and_zero_sized_tensors_are_no_trouble():
    with poisoned("cpu", []):
        assert torch.empty(0).numel() == 0
        assert torch.empty(3, 0).numel() == 0
        assert torch.empty(3, device="meta").device.type == "meta"


def test_memory_is_left_alone_outside():
    with poisoned("cpu", []):
        pass
    assert not torch.empty_like(torch.zeros(1 << 16)).view(torch.uint8).eq(0xFF).all()


def test_it_changes_no_bit_and_no_kernel_of_the_expression():
    operator = operators.create("adaln_projection", hidden=32, dim=64)
    inputs = operator.make_inputs(40, {"weights": 1, "temb": 3, "grad": 4}, None)
    grad = inputs.pop("grad")

    def run():
        leaves = [inputs[name].clone().requires_grad_() for name in operator.inputs]
        with record_kernels("cpu") as record:
            table = operator.expression(*leaves)
            gradients = torch.autograd.grad(table, leaves, grad)
        return [table.detach(), *gradients], record.names

    plain, plain_kernels = run()
    with poisoned("cpu", []):
        poisoned_tensors, kernels = run()
    assert all(torch.equal(a, b) for a, b in zip(plain, poisoned_tensors, strict=True))
    assert kernels == plain_kernels
