"""The witness on a CPU, for real: each cell is a process of its own (bf16, 4 x 64 times 64 x 192)."""

import ctypes
import json
import os
import subprocess
import sys

import pytest
import torch

from tests.unit.fixtures.fake_libraries.process import plain, run_cell
from workflow_scripts.cell.environment import cpu_flags
from workflow_scripts.modes import dispatch, witness
from workflow_scripts.modes.label import label


@pytest.fixture(name="plain")
def plain_witness():
    return plain()


def labels(seen, plain):
    found = label(seen, plain)
    return found["forward"]["label"], found["backward"]["label"]


def onednn(seen):
    return {name for names in seen["kernels"].values() for name in names if name.startswith("onednn ")}


def test_a_witness_is_the_same_from_run_to_run(plain):
    assert json.dumps(run_cell()["witness"]) == json.dumps(plain)


def test_forward_and_backward_are_kept_apart(plain):
    forward, backward = plain["kernels"]["forward"], plain["kernels"]["backward"]
    assert {"aten::silu", "aten::addmm"} <= set(forward)
    assert {"aten::silu_backward", "aten::mm"} <= set(backward)
    assert not {"aten::silu_backward", "aten::mm"} & set(forward)
    assert "aten::addmm" not in backward


def test_no_switch_claims_nothing(plain):
    assert plain["switch"] is None
    assert plain["switched"] is None
    assert plain["entry_point"] is None
    assert plain["overridden"] == []
    assert plain["flags_before"] == plain["flags_after"]


def test_no_mkldnn_is_effective_by_its_flag_and_its_kernels(plain):
    seen = run_cell("no_mkldnn")["witness"]
    assert seen["switched"] is True
    assert (seen["flags_before"]["mkldnn.enabled"], seen["flags_after"]["mkldnn.enabled"]) == (True, False)
    assert onednn(seen) == set()
    assert labels(seen, plain) == ("effective", "effective")


def test_the_planted_control_has_no_effect(plain):
    seen = run_cell("nothing")["witness"]
    assert seen["switched"] is False
    assert labels(seen, plain) == ("inert", "inert")
    assert label(seen, plain)["forward"]["reason"].startswith("no effect: ")


def test_fewer_vector_instructions_are_effective_through_the_state(plain):
    seen = run_cell(variables={"ATEN_CPU_CAPABILITY": "default"})["witness"]
    assert seen["state"]["cpu_capability"] in ("DEFAULT", "NO AVX")
    expected = "inert" if plain["state"]["cpu_capability"] == seen["state"]["cpu_capability"] else "effective"
    assert labels(seen, plain) == (expected, expected)


def test_one_thread_is_effective_through_the_state(plain):
    seen = run_cell(variables={"OMP_NUM_THREADS": "1"})["witness"]
    assert (plain["state"]["threads"], seen["state"]["threads"]) == (2, 1)
    assert label(seen, plain)["backward"]["reason"] == "other state: threads 2 → 1"


def test_a_variable_that_no_kernel_of_the_operator_reads_is_inert(plain):
    seen = run_cell(variables={"MKL_CBWR": "COMPATIBLE"})["witness"]
    assert labels(seen, plain) == ("inert", "inert")


@pytest.mark.parametrize(
    ("isa", "lost"), [("AVX512_CORE", "avx512_bf16"), ("AVX512_CORE_BF16", "amx_bf16"), ("AVX2", "avx512f")]
)
def test_a_lower_instruction_set_for_onednn_is_effective_where_the_cpu_had_the_higher(plain, isa, lost):
    if not onednn(plain):
        pytest.skip("torch was built without oneDNN, or oneDNN has no bf16 matmul for this CPU")
    seen = run_cell(variables={"ONEDNN_MAX_CPU_ISA": isa})["witness"]
    assert (onednn(seen) != onednn(plain)) == (lost in cpu_flags())
    assert labels(seen, plain) == (("effective",) * 2 if lost in cpu_flags() else ("inert",) * 2)


@pytest.mark.filterwarnings("ignore:Warning only once for all operators:UserWarning")
def test_an_override_is_found_and_gone_when_it_is_taken_back():
    before = dispatch.table("cpu")
    library = torch.library.Library("aten", "IMPL")
    library.impl("special_bessel_j0", lambda x: x, "CPU")
    assert dispatch.changed(before, dispatch.table("cpu")) == ["aten::special_bessel_j0"]
    library._destroy()
    assert dispatch.changed(before, dispatch.table("cpu")) == []


@pytest.mark.filterwarnings("ignore:Warning only once for all operators:UserWarning")
def test_a_second_override_from_the_same_line_is_found():
    tables = []
    libraries = [torch.library.Library("aten", "IMPL") for _ in range(2)]
    for library in libraries:
        library.impl("special_bessel_j0", lambda x: x, "CPU")
        tables.append(dispatch.table("cpu"))
    for library in libraries:
        library._destroy()
    assert dispatch.changed(*tables) == ["aten::special_bessel_j0"]


def test_an_override_for_another_device_is_none_of_this_device():
    before = {device: dispatch.table(device) for device in ("cpu", "cuda")}
    library = torch.library.Library("aten", "IMPL")
    library.impl("special_bessel_j0", lambda x: x, "CUDA")
    after = {device: dispatch.table(device) for device in ("cpu", "cuda")}
    library._destroy()
    assert dispatch.changed(before["cpu"], after["cpu"]) == []
    assert dispatch.changed(before["cuda"], after["cuda"]) == ["aten::special_bessel_j0"]


def test_a_function_put_in_the_place_of_a_torch_function_is_found(monkeypatch):
    before = dispatch.table("cpu")
    monkeypatch.setattr(torch, "bmm", lambda a, b: a)
    assert dispatch.changed(before, dispatch.table("cpu")) == ["torch.bmm"]


def test_numerics_variables_that_change_with_the_switch_are_listed(monkeypatch):
    snapshot = witness.before("cpu")
    monkeypatch.setenv("CUBLASLT_WORKSPACE_SIZE", "0")
    monkeypatch.setenv("TRITON_CACHE_DIR", "/somewhere")
    assert witness.after(snapshot)["variables_set_by_switch"] == {"CUBLASLT_WORKSPACE_SIZE": "0"}


@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_recording_leaves_other_output_where_it_was_going(kind, tmp_path):
    a = torch.ones(8, 8, dtype=torch.bfloat16)
    reader, writer = (
        os.pipe() if kind == "pipe" else (None, os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT))
    )
    saved = os.dup(1)
    os.dup2(writer, 1)
    try:
        with witness.record_kernels("cpu") as record:
            ctypes.CDLL(None).printf(b"from C\n")
            os.write(1, b"from the operator\n")
            a @ a
    finally:
        os.dup2(saved, 1)
        os.close(writer)
    text = os.read(reader, 4096) if kind == "pipe" else (tmp_path / "out").read_bytes()
    assert sorted(text.splitlines()) == [b"from C", b"from the operator"]
    assert "aten::mm" in record.names


def test_an_exception_while_recording_gives_stdout_back(tmp_path):
    with pytest.raises(ZeroDivisionError), witness.record_kernels("cpu"):
        raise ZeroDivisionError
    status = os.fstat(1)
    with witness.record_kernels("cpu"):
        assert os.fstat(1).st_ino != status.st_ino
    assert os.fstat(1).st_ino == status.st_ino


def test_a_cell_does_not_import_the_compiler(cpu_kernel_directory):
    """torch._dynamo would add two seconds to each process."""
    program = """
import sys, torch
from kernels.adaln_projection import adaln_projection
from workflow_scripts.modes.witness import record_kernels
temb, weight = torch.ones(1, 8, requires_grad=True), torch.ones(2, 8, dtype=torch.bfloat16)
with record_kernels("cpu"):
    adaln_projection(temb, weight, torch.ones(2, dtype=torch.bfloat16)).sum().backward()
sys.exit("torch._dynamo" in sys.modules)
"""
    environment = os.environ | {"ADALN_KERNEL_DIR": str(cpu_kernel_directory)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, check=False)
    assert done.returncode == 0
