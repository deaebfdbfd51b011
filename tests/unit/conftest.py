"""Fixtures that several test modules share."""

import pytest

from kernels.adaln_projection.build import build


@pytest.fixture(scope="session")
def cpu_kernel_directory(once):
    """A directory with the CPU library, built once a run from the present sources; tests edit copies."""
    return once("kernel", lambda directory: build(directory, ["cpu"]))


@pytest.fixture
def cpu_kernel(cpu_kernel_directory, monkeypatch):
    """The built CPU library is the one that kernels.adaln_projection loads."""
    monkeypatch.setenv("ADALN_KERNEL_DIR", str(cpu_kernel_directory))
