"""What the profiles set, and how many GPUs local jobs may take."""

import re
import subprocess
import sys

import pytest
import yaml

from tests.workflow.support.audits import ROOT, copy_sources, tiny_audit, write_audit
from tests.workflow.support.running import snakemake

PROFILES = sorted((ROOT / "profiles").glob("*/config.yaml"))


def test_every_setting_is_an_option_of_snakemake():
    helped = subprocess.run(
        [sys.executable, "-m", "snakemake", "--help"], capture_output=True, text=True, check=True
    )
    known = set(re.findall(r"--([a-z][a-z0-9-]*)", helped.stdout))
    for path in PROFILES:
        assert set(yaml.safe_load(path.read_text())) <= known, path


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.parent.name)
def test_what_every_run_needs(path):
    settings = yaml.safe_load(path.read_text())
    assert settings["keep-going"] is True
    assert settings["rerun-incomplete"] is True
    assert settings["show-failed-logs"] is True


def test_attempts_are_the_profile_s_affair():
    assert yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text())["retries"] > 0
    assert not any("retries:" in path.read_text() for path in (ROOT / "rules").glob("*.smk"))


@pytest.mark.parametrize(("options", "limit"), [((), 6), (("--resources", "gpu=1"), 1)])
def test_local_jobs_take_no_more_gpus_than_there_are(tmp_path, options, limit):
    copy_sources(tmp_path)
    write_audit(tmp_path, tiny_audit(gpus=3, cells_per_gpu=2))
    run = snakemake(tmp_path, "results/small/configuration.json", *options)  # any job shows it
    assert run.returncode == 0, run.output
    found = re.search(r"^Provided resources: .*gpu=\D*(\d+)", run.output, re.MULTILINE)
    assert int(found[1]) == limit
