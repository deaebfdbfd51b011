"""Which tests stay in one process when the suite is spread over several, and in what order they begin."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

# They share what takes minutes to make or can't be copied; there is one SLURM on a machine.
TOGETHER = {
    "test_kernel_build": "CUDA build",
    "test_accuracy_cpu": "embedded audit",
    "test_audit_cpu": "embedded audit",
    "test_report_html": "embedded audit",
    "test_slurm": "slurm",
    "test_slurm_limits": "slurm",
    "test_conda": "slurm",
}
# Their tests share no more than `finished_audit`, of which there is one for all workers.
APART = {"test_docs", "test_reruns", "test_profiles", "test_audit_no_gpu"}

# Begun first, so that none is last. `--no-loadscope-reorder` makes xdist keep to it.
LONGEST = ("slurm", "embedded audit", "test_interruptions", "CUDA build", "test_audit_misbehaving")


def _group(item: pytest.Item) -> str | None:
    """Tests of a workflow stay with the others of their file, which share what takes long to make."""
    path = Path(item.path)
    alone = "workflow" not in path.parts or path.stem in APART
    return TOGETHER.get(path.stem, None if alone else path.stem)


def _rank(item: pytest.Item) -> int:
    """The longest groups, then all else that runs workflows, then the tests that take a second at most."""
    group = _group(item)
    if group in LONGEST:
        return LONGEST.index(group)
    return len(LONGEST) + ("workflow" not in Path(item.path).parts)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the names
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Name the groups, and put the longest ones first."""
    for item in items:
        if group := _group(item):
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=_rank)


Once = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Once:
    """Make the folder of a name, in the worker that asks for it first; the others wait and share it."""
    own = tmp_path_factory.getbasetemp()
    common = own if worker_id == "master" else own.parent

    def once(name: str, make: Callable[[Path], object]) -> Path:
        folder, made = common / name, common / f"{name}.made"
        with FileLock(common / f"{name}.lock"):
            if not made.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                make(folder)
                made.touch()
        return folder

    return once
