"""What the tests on a GPU share: the built libraries, and a reason to skip without a GPU."""

import os
from pathlib import Path

import pytest
import torch

from kernels.adaln_projection.build import build


@pytest.fixture(scope="session")
def kernel_directory(tmp_path_factory):
    """The directory that $ADALN_KERNEL_DIR names, or a new one with both libraries of the present sources."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device: this test compares bits on a GPU")
    if named := os.environ.get("ADALN_KERNEL_DIR"):
        return Path(named)
    directory = tmp_path_factory.mktemp("kernel")
    build(directory, ["cpu", "cuda"])
    return directory


@pytest.fixture
def kernel(kernel_directory, monkeypatch):
    """The built libraries are the ones that kernels.adaln_projection loads."""
    monkeypatch.setenv("ADALN_KERNEL_DIR", str(kernel_directory))
