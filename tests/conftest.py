"""Which tests stay in one process when the suite is spread over several (`-n 2 --dist loadgroup`)."""

from pathlib import Path

import pytest

# The embedded audit takes two minutes and is made once; there is one SLURM on a machine.
TOGETHER = {
    "test_kernel_build": "CUDA build",
    "test_accuracy_cpu": "embedded audit",
    "test_audit_cpu": "embedded audit",
    "test_report_html": "embedded audit",
    "test_bench": "test_docs",
    "test_snakemake_report": "test_docs",
    "test_slurm": "slurm",
    "test_slurm_limits": "slurm",
    "test_conda": "slurm",
}

LONGEST = ("slurm", "embedded audit", "test_interruptions", "test_docs")  # begun first, so that none is last


def _group(item: pytest.Item) -> str | None:
    """Tests of a workflow stay with the others of their file, which share what takes minutes to make."""
    path = Path(item.path)
    return TOGETHER.get(path.stem, path.stem if "workflow" in path.parts else None)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the names
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Name the groups, and put the longest ones first."""
    for item in items:
        if group := _group(item):
            item.add_marker(pytest.mark.xdist_group(group))
    ranks = {group: rank for rank, group in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(_group(item) or "", len(LONGEST)))
