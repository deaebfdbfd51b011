"""Poisoned memory shows what is left unwritten, and changes nothing else."""

import platform

import numpy as np
import pytest
import torch

from workflow_scripts import operators
from workflow_scripts.cell.poison import BYTE, poisoned
from workflow_scripts.modes.witness import record_kernels

SHAPE = (64, 96)
MAKERS = {
    "empty": lambda like: torch.empty(like.shape, dtype=like.dtype),
    "empty_like": torch.empty_like,
    "empty_strided": lambda like: torch.empty_strided(like.shape, like.stride(), dtype=like.dtype),
    "empty_permuted": lambda like: torch.empty_permuted(like.shape, (1, 0), dtype=like.dtype),
    "new_empty": lambda like: like.new_empty(like.shape),
    "resize_": lambda like: torch.empty(0, dtype=like.dtype).resize_(like.shape),
    "numpy": lambda like: torch.from_numpy(np.empty(like.nbytes, np.uint8)),
}

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only glibc's malloc can be told to fill"
)


def all_poison(tensor):
    return bool(
        tensor.t().contiguous().view(torch.uint8).eq(BYTE).all()
        if tensor.ndim == 2
        else tensor.eq(BYTE).all()
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", MAKERS)
def test_new_memory_is_filled(name, dtype):
    like = torch.zeros(SHAPE, dtype=dtype)
    with poisoned("cpu", []):
        assert all_poison(MAKERS[name](like))


@pytest.mark.parametrize("megabytes", [1, 64])
def test_large_memory_that_comes_from_the_system_is_filled_too(megabytes):
    with poisoned("cpu", []):
        assert torch.empty(megabytes << 20, dtype=torch.uint8).eq(BYTE).all()


def test_written_memory_is_as_written():
    with poisoned("cpu", []):
        assert not torch.zeros(4096).any()
        assert torch.ones(4096).clone().sum() == 4096


def test_memory_is_left_alone_outside():
    with poisoned("cpu", []):
        pass
    assert not torch.empty(1 << 22, dtype=torch.uint8).eq(BYTE).all()


def test_it_ends_with_an_exception():
    with pytest.raises(RuntimeError, match="boom"), poisoned("cpu", []):
        raise RuntimeError("boom")
    assert not torch.empty(1 << 22, dtype=torch.uint8).eq(BYTE).all()


def runs_of(function, operator, rows=40):
    """Tensors and kernels of a run as it is, and of one on poisoned memory."""
    inputs = operator.make_inputs(rows, {"weights": 1, "temb": 3, "grad": 4}, None)
    grad = inputs.pop("grad")

    def run():
        leaves = [inputs[name].clone().requires_grad_() for name in operator.inputs]
        with record_kernels("cpu") as record:
            table = function(*leaves)
            gradients = torch.autograd.grad(table, leaves, grad)
        return [table.detach(), *gradients], record.names

    function(*(inputs[name] for name in operator.inputs))  # a first call may compile
    plain = run()
    with poisoned("cpu", []):
        return plain, run()


def test_it_changes_no_bit_and_no_kernel_of_the_expression():
    operator = operators.create("adaln_projection", hidden=32, dim=64)
    (plain, kernels), (poisoned_tensors, poisoned_kernels) = runs_of(operator.expression, operator)
    assert all(torch.equal(a, b) for a, b in zip(plain, poisoned_tensors, strict=True))
    assert poisoned_kernels == kernels


@pytest.mark.slow
def test_a_compiled_candidate_runs_compiled_on_poisoned_memory():
    operator = operators.create("adaln_projection", hidden=32, dim=64)
    compiled = torch.compile(
        lambda t, w, b: torch.nn.functional.linear(torch.nn.functional.silu(t).to(w.dtype), w, b)
    )
    runs_of(compiled, operator)  # compiles the backward too
    (plain, kernels), (poisoned_tensors, poisoned_kernels) = runs_of(compiled, operator)
    assert all(torch.equal(a, b) for a, b in zip(plain, poisoned_tensors, strict=True))
    assert poisoned_kernels == kernels
