"""Latency: spread, clocks, what is timed, and the documents."""

import json
import sys
from types import SimpleNamespace

import pytest
import torch

from tests.unit.fixtures.small_cell import WIDTHS, run_cell, spec, write_inputs
from workflow_scripts import candidates, gpu_slot, latency, operators
from workflow_scripts.cell import run as running
from workflow_scripts.cell.inputs import Inputs
from workflow_scripts.errors import AuditError
from workflow_scripts.report.latency import latencies, markdown, slowest

OPERATOR = operators.create("adaln_projection", **WIDTHS)
SETTINGS = {"warmup": 2, "repeats": 12, "seconds": 60}


def test_spread_of_known_times():
    # Eleven runs: the 10th percentile is the second smallest, the median the sixth, the 90th the tenth.
    assert latency.spread(7, [float(n) for n in (3, 1, 2, 6, 5, 4, 11, 10, 7, 8, 9)]) == {
        "warmup": 7,
        "runs": 11,
        "min": 1.0,
        "p10": 2.0,
        "median": 6.0,
        "p90": 10.0,
    }


@pytest.mark.parametrize(
    ("run_takes", "warmups", "runs"),
    [(0.01, 20, 100), (0.1, 20, 30), (1.0, 3, 3), (2.0, 2, 3), (10.0, 1, 3)],
)
def test_slow_runs_are_fewer_but_never_less_than_three(run_takes, warmups, runs, monkeypatch):
    now = [0]  # milliseconds
    clock = SimpleNamespace(perf_counter=lambda: now[0] / 1000)
    monkeypatch.setattr(latency, "time", clock)

    def run():
        now[0] += round(1000 * run_takes)

    before, times = latency.wall_times(run, warmup=20, repeats=100, seconds=3)
    assert (before, len(times)) == (warmups, runs)
    assert times == pytest.approx([1e6 * run_takes] * runs)


@pytest.mark.parametrize("name", ["expression", "six_chunks"])
def test_what_is_timed_computes_every_gradient(name, tmp_path):
    def prepared():
        inputs = Inputs(OPERATOR, write_inputs(tmp_path), 4, "cpu").load()
        grad = inputs.pop("grad")
        return candidates.prepare(spec(f"behaving:{name}"), OPERATOR, inputs), grad

    timed, grad = prepared()
    runs = latency.passes(OPERATOR, timed, grad)
    assert list(runs) == ["forward", "forward_backward"]
    candidate, grad = prepared()
    output = running.forward(OPERATOR, candidate, grad)
    assert torch.equal(OPERATOR.outputs(runs["forward"]())[0], output)
    expected = running.backward(OPERATOR, candidate, output, grad)
    for found, gradient in zip(runs["forward_backward"](), expected.values(), strict=True):
        assert torch.equal(found, gradient)


def test_a_measurement_is_plausible_and_names_its_clock(tmp_path, monkeypatch):
    cell = run_cell(tmp_path, monkeypatch, "behaving:expression")
    inputs = tmp_path / "inputs" / "inputs.json"
    document = latency.latency(spec("behaving:expression"), cell, inputs, SETTINGS)
    assert (document["implementation"], document["case"]) == ("candidate", 4)
    assert (document["status"], document["reason"]) == ("measured", None)
    assert document["clock"] == "wall clock"
    assert document["machine"] == cell["environment"]["cpu"]
    assert document["threads"] == torch.get_num_threads()
    for part in ("forward", "forward_backward"):
        found = document[part]
        assert (found["warmup"], found["runs"]) == (2, 12)
        assert 0 < found["min"] <= found["p10"] <= found["median"] <= found["p90"]


@pytest.fixture
def absent(tmp_path, monkeypatch):
    """The document of a cell whose library is not there."""
    needs = {"libraries": ["no_such_library"], "instruction_sets": []}
    cell = run_cell(tmp_path, monkeypatch, "behaving:expression", needs=needs)
    return latency.latency(spec("behaving:expression"), cell, tmp_path / "inputs" / "inputs.json", SETTINGS)


def test_what_did_not_run_in_the_audit_is_not_measured(absent):
    assert absent == {
        "schema": "bitwise-reuse-audit/latency/1",
        "implementation": "candidate",
        "case": 4,
        "status": "not measured",
        "reason": "unavailable: not installed in the mode's environment: no_such_library",
        "clock": None,
        "machine": None,
        "threads": None,
        "forward": None,
        "forward_backward": None,
    }


def test_a_candidate_that_raises_is_one_message(tmp_path, monkeypatch):
    run_cell(tmp_path, monkeypatch, "behaving:expression")
    manifest = next(tmp_path.glob("cells/*/4/manifest.json"))
    words = {
        "--spec": json.dumps(spec("behaving:no_such_function")),
        "--settings": json.dumps(SETTINGS),
        "--manifest": str(manifest),
        "--inputs": str(tmp_path / "inputs" / "inputs.json"),
        "--output": str(tmp_path / "latency.json"),
    }
    monkeypatch.setattr(sys, "argv", ["latency", *(word for pair in words.items() for word in pair)])
    with pytest.raises(AuditError, match="candidate on 4 rows ran in the audit but not here: ImportError"):
        latency.main()
    assert not (tmp_path / "latency.json").exists()


def measurement(label, case, median):
    runs = {"warmup": 20, "runs": 100, "min": 1.0, "p10": 2.0, "median": median, "p90": 40.25}
    return {
        "implementation": label,
        "case": case,
        "reason": None,
        "clock": "CUDA events",
        "machine": "NVIDIA H200",
        "threads": 1,
        "forward": runs,
        "forward_backward": runs | {"median": 3 * median},
    }


def test_the_report_is_in_the_audits_order(absent):
    audit = {"audit": "h3", "implementations": [{"label": "b"}, {"label": "a"}, {"label": "candidate"}]}
    given = [measurement("a", 64, 8.0), absent, measurement("a", 4, 5.0), measurement("b", 4, 10.0)]
    document = latencies(audit, given)
    shown = [(each["case"], each["implementation"]) for each in document["measurements"]]
    assert shown == [(4, "b"), (4, "a"), (4, "candidate"), (64, "a")]
    assert document["unit"] == "microseconds"
    assert slowest(document["measurements"]) == {4: 30.0, 64: 24.0}
    text = markdown(document)
    assert "(CUDA events, NVIDIA H200, 1 thread)" in text
    assert "10.0 (2.0 to 40.2; 100 runs)" in text
    assert "not measured: unavailable: not installed in the mode's environment: no_such_library" in text


def test_a_whole_gpu_is_shared_with_nobody(tmp_path, monkeypatch):
    """Two GPUs of two slots: who holds a slot of each keeps everyone from having a whole one."""
    monkeypatch.setattr(gpu_slot.tempfile, "gettempdir", lambda: str(tmp_path))
    taken = []

    def lock(path):
        free = path.name not in taken
        if free:
            taken.append(path.name)
        return free

    waited = []

    def sleep(_):
        waited.append(list(taken))
        taken.remove("0.1.lock")  # another process ends

    monkeypatch.setattr(gpu_slot, "_lock", lock)
    monkeypatch.setattr(gpu_slot.time, "sleep", sleep)
    taken += ["0.1.lock", "1.0.lock"]
    assert gpu_slot.take_gpu({}, 2, 2, whole=True) == {"CUDA_VISIBLE_DEVICES": "0"}
    assert waited == [["0.1.lock", "1.0.lock", "0.0.lock"]]
    assert set(taken) == {"0.0.lock", "0.1.lock", "1.0.lock"}
