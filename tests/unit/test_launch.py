"""The process of a cell: its variables and packages are the ones asked for and no others."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHOW = """
import json, os, sys
from workflow_scripts.modes.scrub import read_back
record = json.loads(os.environ["BITWISE_REUSE_AUDIT_VARIABLES"])
print(json.dumps({"record": record, "read_back": read_back(record["set"]), "environ": dict(os.environ),
                  "path": sys.path, "argv": sys.argv[1:]}))
"""


@pytest.fixture
def launch(tmp_path):
    """Start the module `show` through launch; what it saw."""
    package = tmp_path / "shown"
    package.mkdir()
    (package / "show.py").write_text(SHOW)

    def run(*options, environ=None, arguments=()):
        command = [sys.executable, "-P", "-m", "workflow_scripts.launch", "--path", str(package), *options]
        done = subprocess.run(
            [*command, "show", *arguments],
            env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], **(environ or {})},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        return json.loads(done.stdout) if done.returncode == 0 else done

    return run


def test_the_users_own_numerics_variables_do_not_reach_a_cell(launch):
    own = {
        "TRITON_F32_DEFAULT": "ieee",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "OMP_NUM_THREADS": "7",
        "NVIDIA_TF32_OVERRIDE": "1",
        "HOME": "/home/user",
    }
    seen = launch("--variables", '{"OMP_NUM_THREADS": "2"}', environ=own)
    assert seen["record"] == {
        "set": {"OMP_NUM_THREADS": "2"},
        "scrubbed": [
            "CUBLAS_WORKSPACE_CONFIG",
            "NVIDIA_TF32_OVERRIDE",
            "OMP_NUM_THREADS",
            "TRITON_F32_DEFAULT",
        ],
    }
    assert seen["read_back"] == {"OMP_NUM_THREADS": "2"}
    assert (
        not {"TRITON_F32_DEFAULT", "CUBLAS_WORKSPACE_CONFIG", "NVIDIA_TF32_OVERRIDE"} & seen["environ"].keys()
    )
    assert seen["environ"]["HOME"] == "/home/user"


def test_what_is_handed_over_is_never_executed(launch, tmp_path):
    hostile = "$(touch pwned) `touch pwned` ; touch pwned ' \" {x} \\"
    variables = json.dumps({"OMP_NUM_THREADS": hostile})
    seen = launch("--variables", variables, "--scratch", hostile, arguments=[hostile])
    assert seen["read_back"] == {"OMP_NUM_THREADS": hostile}
    assert seen["argv"] == [hostile]
    assert not list(tmp_path.rglob("pwned"))


def test_packages_come_from_our_root_then_the_modes_folders(launch, tmp_path):
    seen = launch("--path", "relative")
    entries = [entry for entry in seen["path"] if "site-packages" not in entry and "/lib/python" not in entry]
    assert entries[:3] == [str(ROOT), str(tmp_path / "shown"), str(tmp_path / "relative")]
    assert str(tmp_path) not in seen["path"]  # the working directory is not a place for packages
    assert seen["environ"]["PYTHONNOUSERSITE"] == "1"


def test_each_cell_has_compiler_caches_of_its_own(launch, tmp_path):
    temporary = {"TMPDIR": str(tmp_path)}
    one = launch("--scratch", "cells/a/1", environ=temporary)["environ"]
    other = launch("--scratch", "cells/a/2", environ=temporary)["environ"]
    for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "DG_JIT_CACHE_DIR"):
        assert one[name].startswith(str(tmp_path))
        assert one[name] != other[name]


def test_a_cell_does_not_find_what_its_last_run_compiled(launch, tmp_path):
    temporary = {"TMPDIR": str(tmp_path)}
    cache = Path(launch("--scratch", "x", environ=temporary)["environ"]["TRITON_CACHE_DIR"])
    cache.mkdir()
    (cache / "kernel.ptx").write_text("old")
    launch("--scratch", "x", environ=temporary)
    assert not (cache / "kernel.ptx").exists()


def test_a_wrong_interpreter_is_a_message(launch):
    done = launch("--python", "/no/such/python")
    assert done.returncode == 2
    assert done.stderr == (
        "error: the interpreter '/no/such/python' cannot be started: No such file or directory; "
        "correct the mode's `python` in the configuration\n"
    )


def test_a_gpu_slot_is_selected(launch, tmp_path):
    temporary = {"TMPDIR": str(tmp_path)}
    assert launch("--gpus", "2", environ=temporary)["environ"]["CUDA_VISIBLE_DEVICES"] == "0"
    chosen = {"CUDA_VISIBLE_DEVICES": "5,7", **temporary}
    assert launch("--gpus", "2", environ=chosen)["environ"]["CUDA_VISIBLE_DEVICES"] == "5"
    assert "CUDA_VISIBLE_DEVICES" not in launch(environ=temporary)["environ"]


def test_own_compiler_caches_are_gone_when_the_cell_is_done(tmp_path, monkeypatch):
    from workflow_scripts.launch import SCRATCH, remove_own_caches

    own, users = tmp_path / "own", tmp_path / "users"
    own.mkdir()
    users.mkdir()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(users))
    remove_own_caches()  # not started through launch: nothing is ours
    monkeypatch.setenv(SCRATCH, str(own))
    remove_own_caches()
    assert not own.exists()
    assert users.exists()
