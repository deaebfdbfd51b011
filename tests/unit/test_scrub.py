"""Variables that can change bits reach a cell only when its mode names them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from workflow_scripts.errors import AuditError
from workflow_scripts.modes.scrub import read_back, scrub, variable_problem

ROOT = Path(__file__).resolve().parents[2]


def test_numerics_variables_are_removed_listed_in_order_and_the_rest_is_kept():
    environ = {
        "PATH": "/bin",
        "TRITON_F32_DEFAULT": "ieee",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "CUDA_VISIBLE_DEVICES": "1",
        "HOME": "/home/a",
    }
    new, scrubbed = scrub(environ, {})
    assert new == {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "1", "HOME": "/home/a"}
    assert scrubbed == ["CUBLAS_WORKSPACE_CONFIG", "TRITON_F32_DEFAULT"]


def test_the_modes_own_variables_are_set_and_only_names_that_were_there_are_listed():
    new, scrubbed = scrub({"OMP_NUM_THREADS": "16"}, {"OMP_NUM_THREADS": "2", "MKL_CBWR": "COMPATIBLE"})
    assert new == {"OMP_NUM_THREADS": "2", "MKL_CBWR": "COMPATIBLE"}
    assert scrubbed == ["OMP_NUM_THREADS"]


def test_the_callers_environment_is_left_alone():
    environ = {"OMP_NUM_THREADS": "16"}
    scrub(environ, {"MKL_CBWR": "COMPATIBLE"})
    assert environ == {"OMP_NUM_THREADS": "16"}


@pytest.mark.parametrize(
    "name",
    # one of each prefix and name that is promised to be removed, Snakemake's own exports among them
    [
        "CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE", "TRITON_F32_DEFAULT", "TRITON_CACHE_DIR",
        "TORCH_BLAS_PREFER_CUBLASLT", "TORCHINDUCTOR_MAX_AUTOTUNE", "PYTORCH_CUDA_ALLOC_CONF",
        "NVIDIA_TF32_OVERRIDE", "NVTE_FLASH_ATTN", "VLLM_BATCH_INVARIANT", "SGLANG_ENABLE_JIT_DEEPGEMM",
        "SGL_ENABLE_JIT_DEEPGEMM", "DG_JIT_USE_NVRTC", "MKL_NUM_THREADS", "ONEDNN_MAX_CPU_ISA",
        "DNNL_MAX_CPU_ISA", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ATEN_CPU_CAPABILITY",
        "KMP_DETERMINISTIC_REDUCTION", "GOMP_CPU_AFFINITY", "CUDNN_LOGINFO_DBG", "FLASHINFER_DISABLE_JIT",
        "NPY_DISABLE_CPU_FEATURES", "CUDA_FORCE_PTX_JIT", "LD_PRELOAD", "GLIBC_TUNABLES",
    ],
)  # fmt: skip
def test_each_kind_is_removed_and_may_be_set_by_a_mode(name):
    assert scrub({name: "1"}, {}) == ({}, [name])
    assert variable_problem(name) is None


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "PATH", "HOME", "SLURM_JOB_ID"])
def test_what_says_where_things_are_is_kept_and_is_no_modes_variable(name):
    assert scrub({name: "1"}, {}) == ({name: "1"}, [])
    assert variable_problem(name).startswith(f"{name} is not a variable that changes bits")


def test_a_misspelt_variable_is_answered_with_the_likely_name():
    assert "did you mean CUBLASLT_WORKSPACE_SIZE" in variable_problem("CUBLSLT_WORKSPACE_SIZE")
    assert "did you mean TRITON_F32_DEFAULT" in variable_problem("TRTION_F32_DEFAULT")
    assert "begin with one of CUBLAS," in variable_problem("SOMETHING_ELSE")


def test_a_misspelling_behind_a_right_prefix_is_noticed_too():
    assert variable_problem("ONEDNN_MAX_CPU_IAS") == (
        "ONEDNN_MAX_CPU_IAS looks like a misspelling; did you mean ONEDNN_MAX_CPU_ISA?"
    )
    assert variable_problem("VLLM_SOMETHING_NEW") is None


def _python(code, environ=None):
    environment, _ = scrub(os.environ, environ or {})
    environment["PYTHONPATH"] = str(ROOT)
    return subprocess.run(
        [sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True, check=False
    )


READ = "from workflow_scripts.modes.scrub import read_back\n"


def test_variables_are_read_back_from_the_processs_start():
    done = _python(READ + "print(read_back({'MKL_CBWR': 'AVX2'}))", {"MKL_CBWR": "AVX2"})
    assert done.stdout == "{'MKL_CBWR': 'AVX2'}\n", done.stderr


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc/self/environ")
def test_a_variable_set_after_the_start_is_refused():
    done = _python("import os; os.environ['MKL_CBWR'] = 'AVX2'\n" + READ + "read_back({'MKL_CBWR': 'AVX2'})")
    assert "the mode sets MKL_CBWR=AVX2, but when the process started it is not set" in done.stderr


def test_a_variable_changed_after_the_start_is_refused():
    code = "import os; os.environ['MKL_CBWR'] = 'AVX'\n" + READ + "read_back({'MKL_CBWR': 'AVX2'})"
    done = _python(code, {"MKL_CBWR": "AVX2"})
    assert "the mode sets MKL_CBWR=AVX2, but now it is 'AVX'" in done.stderr


def test_a_numerics_variable_that_nobody_asked_for_is_refused_but_a_cache_folder_is_not():
    done = _python(READ + "read_back({})", {"NVIDIA_TF32_OVERRIDE": "1"})
    assert "NVIDIA_TF32_OVERRIDE can change bits and reached the cell's process" in done.stderr
    done = _python(READ + "print(read_back({}))", {"TRITON_CACHE_DIR": "/a"})
    assert done.stdout == "{}\n", done.stderr


def test_a_missing_variable_is_refused():
    with pytest.raises(AuditError, match="the mode sets NPY_NO_SUCH_THING=1"):
        read_back({"NPY_NO_SUCH_THING": "1"})


def test_what_the_user_has_in_the_shell_does_not_reach_a_cell_and_is_recorded(tmp_path):
    (tmp_path / "show.py").write_text("import json, os\nprint(json.dumps(dict(os.environ)))\n")
    shell = {
        **os.environ,
        "CUBLAS_WORKSPACE_CONFIG": ":0:0",
        "TRITON_F32_DEFAULT": "ieee",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-P", "-m", "workflow_scripts.launch", "--path", str(tmp_path),
         "--variables", '{"OMP_NUM_THREADS": "2"}', "show"],
        env=shell, capture_output=True, text=True, check=True,
    )  # fmt: skip
    seen = json.loads(done.stdout)
    assert "CUBLAS_WORKSPACE_CONFIG" not in seen
    assert "TRITON_F32_DEFAULT" not in seen
    assert seen["OMP_NUM_THREADS"] == "2"
    record = json.loads(seen["BITWISE_REUSE_AUDIT_VARIABLES"])
    assert {"CUBLAS_WORKSPACE_CONFIG", "TRITON_F32_DEFAULT"} <= set(record["scrubbed"])


def test_the_module_needs_nothing_but_the_standard_library():
    done = _python(
        "import sys; import workflow_scripts.modes.scrub\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'torch', 'numpy', 'vllm'}))"
    )
    assert done.stdout == "[]\n", done.stderr
