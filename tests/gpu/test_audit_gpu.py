"""The H3 audit at full size on a GPU, through Snakemake, against what is known of it.

$AUDIT_GPU_CONFIG may name another configuration than config/config.yaml, which says where libraries are.
"""

import json
import os
from pathlib import Path

import pytest
import torch
import yaml

from tests.workflow.support.audits import ROOT, copy_sources
from tests.workflow.support.running import snakemake

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: this test runs the GPU audit"),
]

CONFIG = os.environ.get("AUDIT_GPU_CONFIG", str(ROOT / "config" / "config.yaml"))
TRITON = {"vllm", "sglang", "sglang_ieee", "megatron_triton", "megatron_triton_ieee"}
CUBLAS = {"plain", "megatron_te_native"}
CASES = ["1", "4", "64", "2048"]
CORES = os.cpu_count()
OWN = {"TRITON_F32_DEFAULT": "tf32", "CUBLAS_WORKSPACE_CONFIG": ":0:0"}  # of the user's shell


def label(mode):
    return f"diffusers[{mode}]"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """report.full.json of the audit, run from a shell with numerics variables, from empty results."""
    folder = tmp_path_factory.mktemp("h3") / "audit"
    copy_sources(folder)
    run = snakemake(folder, "--quiet", "rules", configfile=CONFIG, cores=CORES, env=OWN, timeout=1800)
    found = json.loads(next(folder.glob("results/*/report/report.full.json")).read_text())
    cells = {i["label"]: i["cells"]["1"] for i in found["implementations"]}
    if missing := {one: cell["reason"] for one, cell in cells.items() if cell["status"] == "unavailable"}:
        pytest.skip(f"the audit needs all seven modes: {missing}")
    assert run.returncode == 0, run.output
    return found


def implementations(report):
    return {one["label"]: one for one in report["implementations"]}


def classes(report, case, tensor):
    """The classes of equal tensors among diffusers' modes."""
    groups = [set(one["members"]) - {"rl_kernel"} for one in report["classes"][case][tensor]]
    return {frozenset(group) for group in groups if group}


def test_the_gate_passes_and_every_cell_repeats_itself(report):
    assert report["gate"] == {"passed": True, "reasons": []}
    for one in report["implementations"]:
        for cell in one["cells"].values():
            assert (cell["status"], cell["inputs_changed"]) == ("ok", [])
            assert cell["repeats"] == {"runs": 2, "differ": []}


@pytest.mark.parametrize("case", CASES)
def test_the_gradient_of_temb_parts_the_modes_in_two_up_to_64_rows(report, case):
    two = {frozenset(map(label, TRITON)), frozenset(map(label, CUBLAS))}
    one = {frozenset(map(label, TRITON | CUBLAS))}
    assert classes(report, case, "grad_temb") == (one if case == "2048" else two)


@pytest.mark.parametrize("tensor", ["out_0", "grad_w", "grad_b"])
@pytest.mark.parametrize("case", CASES)
def test_the_other_tensors_are_the_same_in_all_seven_modes(report, case, tensor):
    assert classes(report, case, tensor) == {frozenset(map(label, TRITON | CUBLAS))}


@pytest.mark.parametrize("case", CASES)
def test_rl_kernel_differs_from_plain_as_much_as_published(report, case):
    pair = {label("plain"), "rl_kernel"}
    found = next(c for c in report["comparisons"] if {c["a"], c["b"]} == pair and str(c["case"]) == case)
    share = {name: one["differ"] / one["numel"] for name, one in found["tensors"].items()}
    assert 0.001 < share["out_0"] < 0.003
    assert share["grad_temb"] > 0.9


def test_which_implementations_are_row_invariant(report):
    varying = {
        name
        for name, one in implementations(report).items()
        if any(found["rows_differ"] for case in one["rows"]["cases"].values() for found in case.values())
    }
    assert varying == {label("plain"), label("megatron_te_native")}


def test_te_native_says_nothing_about_this_operator(report):
    for cell in implementations(report)[label("megatron_te_native")]["cells"].values():
        assert cell["labels"]["backward"]["label"] == "inert"


def test_the_shell_s_variables_reach_only_the_cells_that_name_them(report):
    for name, one in implementations(report).items():
        for cell in one["cells"].values():
            variables = cell["variables"]
            assert set(OWN) <= set(variables["scrubbed"])
            seen = {
                variables["read_back"].get(own) for own in ("TRITON_F32_DEFAULT", "CUBLAS_WORKSPACE_CONFIG")
            }
            assert seen <= ({":16:8", None} if name == label("vllm") else {"ieee", None}), name


def test_the_number_of_cells_on_a_gpu_does_not_show_in_the_report(tmp_path):
    copy_sources(tmp_path)
    audit = yaml.safe_load(Path(CONFIG).read_text())
    audit["operator"].update(hidden=1344, dim=672)
    audit["candidates"]["diffusers"]["modes"] = ["plain"]
    audit |= {"audit": "shared", "cases": [1, 64], "accuracy": False}
    audit |= {"modes": {"plain": audit["modes"]["plain"]}, "megatron_source": None}
    reports = []
    for cells in (1, 4):
        (tmp_path / "shared.yaml").write_text(yaml.safe_dump(audit | {"cells_per_gpu": cells}))
        run = snakemake(tmp_path, "--forcerun", "cell", configfile="shared.yaml", cores=CORES)
        assert run.returncode == 0, run.output
        assert len([job for job in run.jobs if job.startswith("cell ")]) == 5
        reports.append((tmp_path / "results" / "shared" / "report" / "report.json").read_bytes())
    assert reports[0] == reports[1]
