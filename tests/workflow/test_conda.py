"""One conda environment for each mode, from a local channel by a real solver; switching, upgrading, SLURM."""

import json
import os

import pytest

pytest.importorskip(
    "rattler", reason="py-rattler, which the stand-in for conda solves with, is not installed"
)

from tests.workflow.support import cluster as slurm
from tests.workflow.support.audits import copy_sources, small_audit, write_audit
from tests.workflow.support.conda import LIBRARY, environment_file, install_conda
from tests.workflow.support.running import snakemake

# Its bits follow the library's version, as a real library's may.
CALLABLE = f"""\
import {LIBRARY}

from expression import table as sound


def table(temb, w, b):
    return sound(temb, w, b if {LIBRARY}.__version__ == "1.0" else -b)
"""
AUDIT = small_audit(
    cases=[1],
    accuracy=False,
    candidates={
        "provider": {"callable": "expression:table", "path": ["callables"]},
        "user": {"callable": "user:table", "path": ["callables"], "modes": ["plain", "new"]},
    },
    modes={"plain": {"conda": "envs/old.yaml"}, "new": {"conda": "envs/new.yaml"}},
    baselines=["user[plain]", "provider"],
)
REPORT = {"report", "page", "gate"}
AFTER_NEW = {
    "cell user.new 1",
    "compare 1 user.new user.plain",
    "compare 1 user.new provider",
    "rows user.new",
}
AFTER_PLAIN = {
    *(
        "cell user.plain 1",
        "compare 1 user.plain provider",
        "compare 1 provider user.plain",
        "rows user.plain",
    ),
    *("compare 1 user.new user.plain", "control_flipped_bit"),
}


@pytest.fixture(scope="module")
def with_conda(tmp_path_factory):
    """The environment variables by which Snakemake finds conda."""
    programs = install_conda(tmp_path_factory.mktemp("conda"))
    return {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture(scope="module")
def finished(with_conda, tmp_path_factory):
    folder = tmp_path_factory.mktemp("conda-audit") / "audit"
    copy_sources(folder)
    write_audit(folder, AUDIT)
    (folder / "callables" / "user.py").write_text(CALLABLE)
    (folder / "envs" / "old.yaml").write_text(environment_file("1.0"))
    (folder / "envs" / "new.yaml").write_text(environment_file("2.0"))
    run = snakemake(folder, "--sdm", "conda", env=with_conda)
    assert run.returncode == 0, run.output
    return folder


def compared(folder, a, b):
    return json.loads((folder / f"results/small/compare/1/{a}/{b}.json").read_text())["tensors"]["out_0"]


def test_each_mode_runs_in_its_own_environment(finished):
    assert compared(finished, "user.plain", "provider")["equal"] is True
    assert compared(finished, "user.new", "provider")["equal"] is False
    environments = [p for p in (finished / ".snakemake" / "conda").iterdir() if p.is_dir()]
    assert len(environments) == 2
    versions = {path.name for env in environments for path in env.rglob(f"{LIBRARY}-*.dist-info")}
    assert versions == {f"{LIBRARY}-1.0.dist-info", f"{LIBRARY}-2.0.dist-info"}


def test_nothing_is_run_twice(finished, with_conda):
    assert snakemake(finished, "--sdm", "conda", "--dry-run", env=with_conda).jobs == []


def test_switching_conda_off_reruns_the_cells_of_modes_with_an_environment_and_no_others(finished):
    run = snakemake(finished, "--dry-run")
    # The planted control is a cell of the plain mode. Inputs and the cells of `provider` stay.
    expected = (
        AFTER_NEW | AFTER_PLAIN | REPORT | {control for control in run.jobs if "control_inert" in control}
    )
    assert set(run.jobs) == expected
    assert not any(job.startswith(("inputs", "cell provider ", "rows provider")) for job in run.jobs)


def check_rerun_of_new(folder, run, *, equal):
    assert run.returncode == 0, run.output
    assert set(run.jobs) == AFTER_NEW | REPORT
    assert compared(folder, "user.new", "provider")["equal"] is equal


# These two edit the finished audit, one after the other: a copy would not do, since where an environment file
# lies is part of what Snakemake takes an environment to be.
def test_another_version_reruns_the_cells_of_its_mode(finished, with_conda):
    (finished / "envs" / "new.yaml").write_text(environment_file("1.0"))
    run = snakemake(finished, "--sdm", "conda", env=with_conda)
    check_rerun_of_new(finished, run, equal=True)


@pytest.mark.skipif(slurm.obstacle() is not None, reason=str(slurm.obstacle()))
def test_under_slurm_too(finished, with_conda, tmp_path):
    (finished / "envs" / "new.yaml").write_text(environment_file("2.0"))
    with slurm.cluster(tmp_path / "slurm"):
        options = ("--profile", "profiles/slurm", "--slurm-init-seconds-before-status-checks", "1")
        run = snakemake(finished, "--sdm", "conda", *options, cores=None, env=with_conda)
    assert "has been submitted with SLURM jobid" in run.output
    check_rerun_of_new(finished, run, equal=False)
