"""GPUs of a machine are dealt out to processes, one slot each."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from workflow_scripts import gpu_slot

ROOT = Path(__file__).parents[2]
HOLD = """
import sys, time
from workflow_scripts.gpu_slot import take_gpu
print(take_gpu({}, int(sys.argv[1]), int(sys.argv[2]))["CUDA_VISIBLE_DEVICES"], flush=True)
time.sleep(60)
"""


@pytest.fixture
def hold(tmp_path, monkeypatch):
    """Start a process that takes a slot and keeps it; the process and the GPU that it got."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    started = []

    def start(gpus, cells_per_gpu, wait=True):
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", HOLD, str(gpus), str(cells_per_gpu)],
            env={"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process, process.stdout.readline().strip() if wait else None

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_processes_are_spread_before_they_share(hold):
    assert sorted(hold(2, 2)[1] for _ in range(2)) == ["0", "1"]
    assert sorted(hold(2, 2)[1] for _ in range(2)) == ["0", "1"]


def test_a_process_waits_for_a_slot_and_gets_that_of_one_that_was_killed(hold):
    first, _ = hold(1, 1)
    second, _ = hold(1, 1, wait=False)
    time.sleep(1)
    assert second.poll() is None
    first.kill()
    assert second.stdout.readline().strip() == "0"


@pytest.mark.parametrize(
    ("environ", "gpus", "expected"),
    [
        ({}, 2, ["0", "1"]),
        ({"CUDA_VISIBLE_DEVICES": "3, 1"}, 8, ["3", "1"]),
        ({"CUDA_VISIBLE_DEVICES": ""}, 8, []),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1,MIG-2/3"}, 1, ["GPU-1", "MIG-2/3"]),
    ],
)
def test_candidates(environ, gpus, expected):
    assert gpu_slot.candidates(environ, gpus) == expected


@pytest.mark.parametrize(
    "environ", [{"CUDA_VISIBLE_DEVICES": ""}, {"CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_ID": "1"}]
)
def test_nothing_is_locked_without_a_choice(environ, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert gpu_slot.take_gpu(environ, 1, 1) == {}
    assert not list(tmp_path.iterdir())


def test_a_name_with_a_slash_stays_in_the_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert gpu_slot.take_gpu({"CUDA_VISIBLE_DEVICES": "MIG-../x"}, 1, 1) == {
        "CUDA_VISIBLE_DEVICES": "MIG-../x"
    }
    assert len(list(tmp_path.rglob("*.lock"))) == 1
