"""Audits that are finished once a run, and copies for tests that edit something."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Once
from tests.workflow.support import cluster as slurm
from tests.workflow.support import compiler, running
from tests.workflow.support.audits import copy_audit, copy_sources, small_audit, tiny_audit, write_audit
from tests.workflow.support.running import snakemake


@pytest.fixture(scope="session", autouse=True)
def _compile_once(once: Once) -> None:
    """The audits of all tests compile the same kernel: one of them does, the others take what it made."""
    if shutil.which("g++"):
        running.VARIABLES["CXX"] = str(once("compiler", compiler.install) / "g++")


@pytest.fixture(scope="session")
def finished_audit(once: Once) -> Path:
    """A folder with the sources, `small.yaml` and its finished results; `audit_copy` is for edits."""

    def make(folder: Path) -> None:
        copy_sources(folder)
        write_audit(folder, small_audit())
        run = snakemake(folder)
        assert run.returncode == 0, run.output

    return once("finished_audit", make)


@pytest.fixture(scope="session")
def cpu_audit(once: Once) -> Path:
    """A folder with the finished audit of config/cpu.yaml, run from a shell with numerics variables."""

    def make(folder: Path) -> None:
        copy_sources(folder)
        own = {"TRITON_F32_DEFAULT": "ieee", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        run = snakemake(folder, configfile="config/cpu.yaml", env=own, timeout=1800)
        assert run.returncode == 0, run.output

    return once("cpu_audit", make)


@pytest.fixture(scope="session")
def audit_elsewhere(once: Once) -> Path:
    """A folder with `the sources`, as they lie in `untouched`, `work`, and `the results` of a tiny audit."""

    def make(folder: Path) -> None:
        sources, work = folder / "the sources", folder / "work"
        copy_sources(sources)
        copy_sources(folder / "untouched")
        work.mkdir()
        write_audit(work, tiny_audit(kernel=True, results=str(folder / "the results")))
        options = ("--snakefile", str(sources / "Snakefile"), "--directory", str(work))
        run = snakemake(folder, *options, configfile=str(work / "small.yaml"))
        assert run.returncode == 0, run.output

    return once("audit_elsewhere", make)


@pytest.fixture
def audit_copy(finished_audit: Path, tmp_path: Path) -> Path:
    """A copy of the finished audit that the test may spoil."""
    return copy_audit(finished_audit, tmp_path / "audit")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a SLURM of one node with two pretend GPUs, for the tests of one file."""
    with slurm.cluster(tmp_path_factory.mktemp("slurm")) as root:
        yield root
