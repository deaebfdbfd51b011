"""An audit for a GPU on a machine without one, and without nvcc, still ends in a report that says so."""

import json

import pytest
import torch
import yaml

from tests.workflow.support.audits import ROOT, copy_sources
from tests.workflow.support.running import snakemake

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")


def run(folder, config, **environment):
    copy_sources(folder)
    (folder / "gpu.yaml").write_text(yaml.safe_dump(config))
    return snakemake(folder, configfile="gpu.yaml", env=environment)


def check(folder, name, done, labels):
    assert done.returncode == 1, done.output
    assert "Traceback" not in done.output
    report = folder / "results" / name / "report"
    full = json.loads((report / "report.full.json").read_text())
    assert [entry["label"] for entry in full["implementations"]] == labels
    for entry in full["implementations"]:
        for cell in entry["cells"].values():
            assert cell["status"] == "unavailable"
            assert cell["reason"].startswith("no CUDA device")
    assert full["gate"]["passed"] is False
    assert "no cell ran" in full["gate"]["reasons"]
    assert "nothing was compared" in full["gate"]["reasons"]
    results = json.loads((report / "report.json").read_text())["results"]
    assert list(results) == labels
    assert all(entry["unavailable"].startswith("no CUDA device") for entry in results.values())
    assert "no CUDA device" in (report / "report.md").read_text()
    assert "no CUDA device" in done.output
    assert json.loads((report / "report.json").read_text())["environment"]["gpu"] is None


def test_at_small_widths(tmp_path):
    config = yaml.safe_load((ROOT / "config" / "config.yaml").read_text())
    config |= {"audit": "gpu", "operator": {"hidden": 16, "dim": 64}, "cases": [1, 2]}
    config["candidates"]["diffusers"]["modes"] = ["plain", "vllm"]
    labels = ["diffusers[plain]", "diffusers[vllm]", "rl_kernel"]
    check(tmp_path, "gpu", run(tmp_path, config, NVCC="no-such-nvcc"), labels)
    build = json.loads((tmp_path / "results/gpu/kernel/build.json").read_text())
    assert build["missing"]["cuda"].startswith("no-such-nvcc was not found")


@pytest.mark.slow
def test_as_it_is(tmp_path):
    config = yaml.safe_load((ROOT / "config" / "config.yaml").read_text())
    modes = config["candidates"]["diffusers"]["modes"]
    check(tmp_path, "h3", run(tmp_path, config), [*(f"diffusers[{mode}]" for mode in modes), "rl_kernel"])
