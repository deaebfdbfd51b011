"""Which tests stay in one process when the suite is spread over several (`-n 2 --dist loadgroup`)."""

from pathlib import Path

import pytest

# The embedded audit takes two minutes and is made once; there is one SLURM on a machine.
TOGETHER = {
    "test_accuracy_cpu": "embedded audit",
    "test_audit_cpu": "embedded audit",
    "test_report_html": "embedded audit",
    "test_slurm": "slurm",
    "test_conda": "slurm",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of a workflow stay with the others of their file, which share what takes minutes to make."""
    for item in items:
        path = Path(item.path)
        if "workflow" in path.parts:
            item.add_marker(pytest.mark.xdist_group(TOGETHER.get(path.stem, path.stem)))
