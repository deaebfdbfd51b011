"""The entry points of rules report, page and gate."""

import json
import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

import jsonschema
import pandas as pd
import pytest

from tests.unit.fixtures.report.entry import call
from tests.unit.fixtures.report.factory import PLAIN, SGLANG, VLLM, World
from workflow_scripts import gate, make_report

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "config" / "schemas" / "report.full.schema.json").read_text())


def process(module, *arguments):
    command = [sys.executable, "-P", "-m", f"workflow_scripts.{module}", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def run(module, *arguments):
    return call({"make_report": make_report.main, "gate": gate.main}[module], *arguments)


@pytest.fixture
def world():
    world = World()
    world.other_bits(PLAIN, "grad_temb", 1)
    world.varying_rows(PLAIN, "grad_temb", 1)
    world.stop(SGLANG, "unavailable", "sglang is not installed")
    return world


def test_writes_the_report_and_prints_the_answer(world, tmp_path):
    done = run("make_report", *world.write(tmp_path), "--output-dir", tmp_path / "report")
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.name for path in (tmp_path / "report").iterdir()} >= {
        "report.json",
        "report.full.json",
        "summary.tsv",
        "report.md",
    }
    lines = done.stdout.splitlines()
    assert len(lines) <= 25
    assert lines[0] == "May an existing implementation of adaln_projection be reused with every bit kept?"
    assert "May replace one another, bit for bit: diffusers[vllm] and rl_kernel." in lines
    start = lines.index("") + 1
    assert [line.split()[:2] for line in lines[start : start + 3]] == [
        ["reuse", "diffusers[vllm]"],
        ["reuse", "rl_kernel"],
        ["new", "diffusers[plain]"],
    ]
    assert not (tmp_path / "report" / "report.json").read_bytes().endswith(b"\n")


def test_is_byte_deterministic(world, tmp_path):
    arguments = world.write(tmp_path)
    for folder in ("one", "two"):
        run("make_report", *arguments, "--output-dir", tmp_path / folder)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_summary_has_a_row_for_each_comparison_and_tensor(world, tmp_path):
    run("make_report", *world.write(tmp_path), "--output-dir", tmp_path / "report")
    table = pd.read_csv(StringIO((tmp_path / "report" / "summary.tsv").read_text()), sep="\t")
    # 2 baselines are compared with 3 others each, in 2 cases, 4 tensors each
    assert len(table) == 2 * 3 * 2 * 4
    differing = table[table["equal"] == False]  # noqa: E712 (a missing value is neither)
    pairs = set(zip(differing["implementation"], differing["baseline"], strict=True))
    assert pairs == {(VLLM, PLAIN), ("rl_kernel", PLAIN), (PLAIN, "rl_kernel")}
    assert set(differing["tensor"]) == {"grads.temb"}
    assert set(differing["case"]) == {1}
    assert table[table["implementation"] == SGLANG]["status"].unique().tolist() == ["not comparable"]


@pytest.mark.parametrize("required", ["all", [PLAIN]])
def test_gate_exits_by_the_report(world, tmp_path, required):
    world.audit["required"] = required
    run("make_report", *world.write(tmp_path), "--output-dir", tmp_path)
    done = run("gate", "--report", tmp_path / "report.full.json", "--output", tmp_path / "gate.json")
    gate = json.loads((tmp_path / "gate.json").read_text())
    assert done.returncode == (1 if required == "all" else 0)
    assert gate["passed"] is (required != "all")
    assert all(reason in done.stdout for reason in gate["reasons"])


def test_gate_refuses_another_document(tmp_path):
    (tmp_path / "report.json").write_text("{}")
    done = run("gate", "--report", tmp_path / "report.json", "--output", tmp_path / "gate.json")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_damaged_manifest_is_named_and_nothing_is_written(world, tmp_path):
    arguments = world.write(tmp_path)
    path = tmp_path / "cells" / "diffusers.vllm" / "4" / "manifest.json"
    path.write_text(path.read_text().replace("gemm_vllm", "gemm_plain"))
    done = run("make_report", *arguments, "--output-dir", tmp_path / "report")
    assert done.returncode == 2
    assert str(path) in done.stderr
    assert "--forcerun" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "report").exists()


def test_document_of_another_config_is_refused(world, tmp_path):
    arguments = world.write(tmp_path)
    world.audit["cases"] = [1]
    (tmp_path / "audit.json").write_text(json.dumps(world.audit))
    done = run("make_report", *arguments, "--output-dir", tmp_path / "report")
    assert done.returncode == 2
    assert "at 4 rows is not part of this audit's config" in done.stderr


def test_document_given_twice_is_refused(world, tmp_path):
    arguments = world.write(tmp_path)
    (tmp_path / "again.json").write_text((tmp_path / "rows" / "rl_kernel.json").read_text())
    place = arguments.index("--rows") + 1
    done = run(
        "make_report",
        *arguments[:place],
        tmp_path / "again.json",
        *arguments[place:],
        "--output-dir",
        tmp_path,
    )
    assert done.returncode == 2
    assert "a second document about rl_kernel" in done.stderr


def test_accuracy_of_a_case_reaches_its_cells(world, tmp_path):
    error = {"max_error": 0.001, "mean_error": 0.0001, "correctly_rounded": 1.0}
    measured = {"status": "measured", "reason": None, "tensors": {"out_0": error}}
    document = {"schema": "bitwise-reuse-audit/accuracy/1", "case": 4, "implementations": {VLLM: measured}}
    (tmp_path / "accuracy.json").write_text(json.dumps(document))
    run(
        "make_report",
        *world.write(tmp_path),
        "--accuracy",
        tmp_path / "accuracy.json",
        "--output-dir",
        tmp_path,
    )
    report = json.loads((tmp_path / "report.full.json").read_text())
    cells = {entry["label"]: entry["cells"] for entry in report["implementations"]}
    assert cells[VLLM]["4"]["accuracy"] == measured
    assert cells[VLLM]["1"]["accuracy"] is None
    assert cells[PLAIN]["4"]["accuracy"] is None
    jsonschema.validate(report, SCHEMA)


def test_whole_way_as_processes(world, tmp_path):
    report, full = tmp_path / "report", tmp_path / "report" / "report.full.json"
    done = process("make_report", *world.write(tmp_path), "--output-dir", report)
    assert (done.returncode, done.stderr) == (0, "")
    done = process("make_page", "--report", full, "--output", report / "report.html")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (report / "report.html").read_text().startswith("<!doctype html>")
    done = process("gate", "--report", full, "--output", report / "gate.json")
    assert (done.returncode, done.stderr) == (1, "")
