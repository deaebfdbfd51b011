"""Accuracy and latency on a GPU."""

import pytest
import torch

from tests.unit.fixtures.small_cell import WIDTHS, run_cell, spec
from workflow_scripts import accuracy, latency, operators
from workflow_scripts.cell.inputs import Inputs
from workflow_scripts.modes import witness

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: this test measures on a GPU"),
]
SETTINGS = {"warmup": 3, "repeats": 12, "seconds": 60}


@pytest.fixture
def fresh_process(monkeypatch):
    """A cell refuses a process in which CUDA is initialised; that other tests did it does not matter here."""
    monkeypatch.setattr(witness, "_cuda_runs", lambda: False)


@pytest.mark.usefixtures("fresh_process")
def test_accuracy_on_a_gpu_is_that_on_a_cpu(tmp_path, monkeypatch):
    run_cell(tmp_path, monkeypatch, "behaving:expression", device="cuda")
    path = next(tmp_path.glob("cells/*/4/manifest.json"))
    operator = operators.create("adaln_projection", **WIDTHS)
    inputs = Inputs(operator, tmp_path / "inputs" / "inputs.json", 4, "cpu")
    found = {
        device: accuracy.accuracy(operator, inputs, [path], device, "small.yaml")["implementations"][
            "candidate"
        ]
        for device in ("cpu", "cuda")
    }
    assert found["cuda"]["status"] == "measured"
    for name, expected in found["cpu"]["tensors"].items():
        assert found["cuda"]["tensors"][name] == pytest.approx(expected, rel=1e-5)


def test_cuda_events_time_each_measured_run():
    runs = []
    before, times = latency.cuda_times(lambda: runs.append(torch.ones(8, device="cuda") * 2), **SETTINGS)
    assert (before, len(times), len(runs)) == (3, 12, 15)
    assert min(times) > 0


@pytest.mark.usefixtures("fresh_process")
def test_a_measurement_on_a_gpu_names_its_clock(tmp_path, monkeypatch):
    cell = run_cell(tmp_path, monkeypatch, "behaving:expression", device="cuda")
    given = spec("behaving:expression", device="cuda")
    document = latency.latency(given, cell, tmp_path / "inputs" / "inputs.json", SETTINGS)
    assert (document["status"], document["clock"]) == ("measured", "CUDA events")
    assert document["machine"] == torch.cuda.get_device_name(0)
    for part in ("forward", "forward_backward"):
        found = document[part]
        assert found["runs"] == 12
        assert 0 < found["min"] <= found["p10"] <= found["median"] <= found["p90"]
