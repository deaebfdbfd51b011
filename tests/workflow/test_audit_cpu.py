"""The embedded audit, for real: known counts, the report's form, the gate, a second run, the disk."""

import json
import os
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.workflow.support.audits import ROOT, copy_sources
from tests.workflow.support.known_counts import KNOWN, NO_AMX, TENSORS, KnownCounts
from tests.workflow.support.running import snakemake
from workflow_scripts.cell.environment import cpu_flags

PLAIN = "diffusers.plain"
FORM = ROOT / "tests" / "unit" / "fixtures" / "report" / "published_form.json"
ONEDNN_ISA = {"onednn_avx512_bf16": "avx512_bf16", "onednn_avx512": "avx512f"}


def read(folder, *parts):
    return json.loads(folder.joinpath("results", "cpu", *parts).read_text())


@pytest.fixture(scope="session")
def full(cpu_audit):
    return read(cpu_audit, "report", "report.full.json")


@pytest.fixture(scope="session")
def cells(full):
    """Cells by label and case."""
    return {
        (e["label"], int(case)): cell for e in full["implementations"] for case, cell in e["cells"].items()
    }


def known_counts() -> KnownCounts:
    """The counts that were measured on a CPU with this one's instruction sets."""
    found = KNOWN.get(frozenset({"avx512_bf16", "amx_bf16"} & cpu_flags()))
    if found is None or "avx512f" not in cpu_flags():
        pytest.skip("no counts are known for a CPU with these instruction sets")
    return found


def counts(folder, cases, key, name):
    pairs = [read(folder, "compare", str(case), key, f"{PLAIN}.json") for case in cases]
    assert all(pair["status"] == "compared" for pair in pairs)
    return [pair["tensors"][name]["differ"] for pair in pairs]


@pytest.mark.parametrize(
    "mode", ["one_thread", "onednn_avx512_bf16", "onednn_avx512", "aten_default", "no_mkldnn"]
)
def test_known_counts_of_differing_elements(cpu_audit, mode):
    known = known_counts().differ[mode]
    found = {name: counts(cpu_audit, (1, 4, 64, 256), f"diffusers.{mode}", name) for name in TENSORS}
    assert found == dict(zip(TENSORS, known, strict=True))


@pytest.mark.parametrize(
    "mode", ["plain", "one_thread", "onednn_avx512_bf16", "onednn_avx512", "aten_default", "no_mkldnn"]
)
def test_known_counts_of_differing_rows(cpu_audit, mode):
    rows = read(cpu_audit, "rows", f"diffusers.{mode}.json")["cases"]["4"]
    assert (rows["out_0"]["rows_differ"], rows["grad_temb"]["rows_differ"]) == known_counts().rows_of_4[mode]


def test_the_bias_gradient_never_differs_between_modes(cpu_audit):
    for mode in ("one_thread", "aten_default", "no_mkldnn"):
        assert counts(cpu_audit, (1, 4, 64, 256), f"diffusers.{mode}", "grad_b") == [0, 0, 0, 0]


@pytest.mark.parametrize("key", ["diffusers.no_mkldnn", "rl_kernel"])
def test_what_is_row_invariant_on_every_cpu(cpu_audit, key):
    rows = read(cpu_audit, "rows", f"{key}.json")
    assert (rows["status"], list(rows["cases"])) == ("compared", ["1", "4", "64"])
    for case in rows["cases"].values():
        assert {name: tensor["differ"] for name, tensor in case.items()} == {"out_0": 0, "grad_temb": 0}


def test_plain_is_row_invariant_only_without_amx(cpu_audit):
    known_counts()
    rows = read(cpu_audit, "rows", f"{PLAIN}.json")["cases"]
    varies = any(tensor["differ"] for case in rows.values() for tensor in case.values())
    assert varies == ("amx_bf16" in cpu_flags())


@pytest.mark.parametrize(("mode", "needed"), ONEDNN_ISA.items())
def test_a_mode_is_unavailable_or_inert_where_the_cpu_has_nothing_for_it(cells, mode, needed):
    cell = cells[f"diffusers[{mode}]", 64]
    if needed not in cpu_flags():
        assert cell["status"] == "unavailable"
        assert needed in cell["reason"]
        return
    assert cell["status"] == "ok"
    above = {"onednn_avx512_bf16": {"amx_bf16"}, "onednn_avx512": {"avx512_bf16", "amx_bf16"}}[mode]
    expected = "effective" if above & cpu_flags() else "inert"
    assert {way["label"] for way in cell["labels"].values()} == {expected}


def test_an_inert_mode_is_never_silently_equal(full):
    if frozenset({"avx512_bf16", "amx_bf16"} & cpu_flags()) != NO_AMX:
        pytest.skip("onednn_avx512_bf16 is inert on a CPU with avx512_bf16 and without AMX")
    (pair,) = (
        p for p in full["pairs"] if {p["a"], p["b"]} == {"diffusers[onednn_avx512_bf16]", "diffusers[plain]"}
    )
    assert "vacuous" in pair["relation"]


@pytest.mark.parametrize("mode", ["one_thread", "aten_default", "no_mkldnn"])
def test_the_other_modes_are_effective_on_every_cpu(cells, mode):
    assert {way["label"] for way in cells[f"diffusers[{mode}]", 4]["labels"].values()} == {"effective"}


def test_every_cell_is_repeatable_and_leaves_its_inputs_alone(cells):
    ran = [cell for cell in cells.values() if cell["status"] == "ok"]
    assert len(ran) >= 4 * 5
    assert all(cell["repeats"] == {"runs": 2, "differ": []} for cell in ran)
    assert all(cell["inputs_changed"] == [] for cell in ran)


def test_manifests_follow_their_schema(cpu_audit):
    schema = json.loads((ROOT / "config" / "schemas" / "manifest.schema.json").read_text())
    found = list((cpu_audit / "results" / "cpu" / "cells").glob("*/*/manifest.json"))
    assert len(found) == 7 * 4 + 1
    for path in found:
        jsonschema.validate(json.loads(path.read_text()), schema)


def test_the_users_variables_were_scrubbed_and_recorded(cpu_audit):
    manifest = read(cpu_audit, "cells", PLAIN, "4", "manifest.json")
    assert {"TRITON_F32_DEFAULT", "CUBLAS_WORKSPACE_CONFIG"} <= set(manifest["variables"]["scrubbed"])
    assert manifest["variables"]["set"] == manifest["variables"]["read_back"] == {"OMP_NUM_THREADS": "2"}


def form(value):
    """Keys in their order and types, all the way down; a list of one form is that form."""
    if isinstance(value, dict):
        return {key: form(item) for key, item in value.items()}
    if isinstance(value, list):
        return [form(item) for item in value]
    return type(value).__name__


def test_the_report_has_the_published_form(cpu_audit):
    report, published = read(cpu_audit, "report", "report.json"), json.loads(FORM.read_text())
    assert list(report) == list(published)
    head = ("kind", "rfc", "op", "rl_kernel_commit", "tracked_tree_dirty")
    if report["rl_kernel_commit"] is not None:  # null outside git, as here
        assert [form(report[key]) for key in head] == [form(published[key]) for key in head]
    assert list(report["environment"]) == list(published["environment"])
    assert list(report["environment"]["libraries"]) == list(published["environment"]["libraries"])
    assert report["cases"] == [1, 4, 64, 256]
    (pair,) = {
        json.dumps(form(p["vs rl_kernel"]["4"])) for p in published["results"].values() if "vs rl_kernel" in p
    }
    for label, entry in report["results"].items():
        assert next(iter(entry)) == "source"
        if "unavailable" in entry:
            continue
        others = [b for b in ("diffusers[plain]", "rl_kernel") if b != label]
        assert list(entry) == ["source", *(f"vs {other}" for other in others)]
        for other in others:
            assert list(entry[f"vs {other}"]) == ["1", "256", "4", "64"]
            assert {json.dumps(form(case)) for case in entry[f"vs {other}"].values()} == {pair}


def test_the_full_report_follows_its_schema(full):
    schema = json.loads((ROOT / "config" / "schemas" / "report.full.schema.json").read_text())
    jsonschema.validate(full, schema)


def test_controls_and_gate_pass(full, cpu_audit):
    assert {control["status"] for control in full["controls"].values()} == {"passed"}
    assert read(cpu_audit, "report", "gate.json") == {"passed": True, "reasons": []}


def test_a_second_run_has_nothing_to_do(cpu_audit):
    run = snakemake(cpu_audit, configfile="config/cpu.yaml", env=OWN_VARIABLES)
    assert run.returncode == 0
    assert "Nothing to be done" in run.output
    assert run.jobs == []


def test_it_takes_at_most_a_gigabyte_and_a_half(cpu_audit):
    inodes = {}
    for path in Path(cpu_audit, "results").rglob("*"):
        found = path.lstat()
        inodes[found.st_ino] = found.st_blocks * 512
    assert sum(inodes.values()) <= 1.5e9


OWN_VARIABLES = {"TRITON_F32_DEFAULT": "ieee", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


@pytest.mark.slow
def test_known_counts_at_full_width(tmp_path):
    known = known_counts().full_width
    copy_sources(tmp_path)
    config = yaml.safe_load((ROOT / "config" / "cpu_full.yaml").read_text())
    config |= {"audit": "cpu", "accuracy": False}
    (tmp_path / "full.yaml").write_text(yaml.safe_dump(config))
    run = snakemake(tmp_path, configfile="full.yaml", timeout=3600, env=dict(os.environ))
    assert run.returncode == 0, run.output
    for mode, expected in known.items():
        found = {name: counts(tmp_path, (1, 4, 64), f"diffusers.{mode}", name) for name in TENSORS}
        assert found == dict(zip(TENSORS, expected, strict=True)), mode
