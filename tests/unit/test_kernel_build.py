"""Building, finding and checking the libraries."""

import json
import os
import shutil
import subprocess

import pytest

from kernels.adaln_projection import build as builder
from kernels.adaln_projection.build import CUDA_ARCHITECTURES, build, compilers_lacking, repository_state
from kernels.adaln_projection.library import PACKAGE, load
from kernels.adaln_projection.machine_code import code_digest
from workflow_scripts.errors import AuditError

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")

CPU_SOURCE = """
static const int factors[] = {3, 1, 4, 1};  // a comment
extern "C" int f(int x) { return factors[x & 3]; }
"""
CUDA_SOURCE = """
namespace { __global__ void scale(float *x) { x[threadIdx.x] = __fmul_rn(x[threadIdx.x], 3.0f); } }
extern "C" void f(float *x) { scale<<<1, 32>>>(x); }  // a comment
"""


def package(directory, source):
    """A kernel package with one small source file, that of the target it is written for."""
    directory.mkdir()
    (directory / ("small.cu" if "__global__" in source else "reference.cpp")).write_text(source)
    return directory


def built_code(tmp_path, name, source, target):
    return build(tmp_path / f"{name}-out", [target], package(tmp_path / name, source))["libraries"][target]


@pytest.mark.parametrize(
    ("target", "source"),
    [("cpu", CPU_SOURCE), pytest.param("cuda", CUDA_SOURCE, marks=needs_nvcc)],
    ids=["cpu", "cuda"],
)
def test_the_code_digest_follows_the_code_and_not_the_text_or_the_place(tmp_path, target, source):
    first = built_code(tmp_path, "first", source, target)
    reworded = built_code(
        tmp_path, "reworded", "// new\n\n" + source.replace("a comment", "other words"), target
    )
    changed = built_code(tmp_path, "changed", source.replace("3", "5", 1), target)
    assert reworded["code_digest"] == first["code_digest"] != changed["code_digest"]
    assert len({library["source_digest"] for library in (first, reworded, changed)}) == 3


def test_a_comment_in_the_reference_leaves_its_code_digest(tmp_path, cpu_kernel_directory):
    shutil.copytree(PACKAGE, tmp_path / "copy", ignore=shutil.ignore_patterns("build", "__pycache__"))
    for path in (tmp_path / "copy").glob("reference*"):
        path.write_text("// One more line.\n" + path.read_text().replace("// ", "//  "))
    build(tmp_path / "out", ["cpu"], tmp_path / "copy")
    assert (tmp_path / "out/code.json").read_bytes() == (cpu_kernel_directory / "code.json").read_bytes()


@pytest.fixture(scope="module")
def cuda_build(tmp_path_factory):
    """A folder with the CUDA library of the present sources: half a minute."""
    folder = tmp_path_factory.mktemp("cuda")
    build(folder, ["cuda"])
    return folder


@needs_nvcc
def test_the_cuda_library_builds_for_every_architecture(cuda_build):
    library = json.loads((cuda_build / "build.json").read_text())["libraries"]["cuda"]
    assert library["architectures"] == ["sm_80", "sm_90a", "sm_100", "compute_90"]
    log = (cuda_build / "build.log").read_text()
    assert all(f"for '{chip}'" in log for chip in ("sm_80", "sm_90a", "sm_100"))  # registers of each kernel


@needs_nvcc
def test_errors_of_the_cuda_library_have_a_sentence(cuda_build):
    library = load("cuda", cuda_build)  # it needs no driver
    assert b"K a positive multiple of 8" in library.adaln_cuda_error(-1)
    assert b"too little shared memory" in library.adaln_cuda_error(-2)
    assert library.adaln_cuda_error(1) == b"invalid argument"


@needs_nvcc
@pytest.mark.slow
def test_comments_leave_the_digest_of_the_cuda_library(cuda_build, tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "copy", ignore=shutil.ignore_patterns("build", "__pycache__"))
    for path in (tmp_path / "copy").glob("*.cu*"):
        path.write_text("// One more line.\n" + path.read_text())
    build(tmp_path / "reworded", ["cuda"], tmp_path / "copy")
    assert (tmp_path / "reworded/code.json").read_bytes() == (cuda_build / "code.json").read_bytes()


def test_what_a_build_leaves(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "libadaln_cuda.so").write_bytes(b"of an earlier build")
    record = build(out, ["cpu"], package(tmp_path / "package", CPU_SOURCE))
    files = ["build.json", "build.log", "code.json", "libadaln_cpu.so"]
    assert sorted(path.name for path in out.iterdir()) == files
    assert json.loads((out / "build.json").read_text()) == record
    library = record["libraries"]["cpu"]
    assert record["libraries"]["cuda"] is None
    assert library["compiler_version"].startswith("g++")
    assert "-ffp-contract=off" in library["flags"]
    assert library["architectures"] == [os.uname().machine]
    expected = f'{{\n  "cpu": "{library["code_digest"]}",\n  "cuda": null\n}}\n'
    assert (out / "code.json").read_text() == expected


def test_a_failed_build_says_why_and_leaves_the_earlier_one(tmp_path):
    sources = package(tmp_path / "package", CPU_SOURCE)
    build(tmp_path / "out", ["cpu"], sources)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    (sources / "reference.cpp").write_text(CPU_SOURCE.replace("x & 3", "y & 3"))
    with pytest.raises(AuditError, match=r"g\+\+ failed(.|\n)*reference.cpp:3(.|\n)*y. was not declared"):
        build(tmp_path / "out", ["cpu"], sources)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_a_warning_is_an_error(tmp_path):
    source = CPU_SOURCE.replace("return", "int unused = 1; return")
    with pytest.raises(AuditError, match="unused"):
        build(tmp_path / "out", ["cpu"], package(tmp_path / "package", source))


@pytest.mark.parametrize(("target", "compiler"), [("cpu", "g++"), ("cuda", "nvcc")])
def test_a_missing_compiler_is_named(tmp_path, monkeypatch, target, compiler):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("NVCC", raising=False)
    with pytest.raises(AuditError, match=rf"^{compiler.replace('+', '[+]')} was not found: install"):
        build(tmp_path / "out", [target])


def test_no_cuda_source_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(builder, "_find", lambda *_: "nvcc")
    with pytest.raises(AuditError, match="no CUDA sources"):
        build(tmp_path / "out", ["cuda"], package(tmp_path / "package", CPU_SOURCE))


def test_the_ptx_is_one_that_every_newer_chip_can_compile():
    assert CUDA_ARCHITECTURES["compute_90"] == "arch=compute_90,code=compute_90"


def git(directory, *arguments):
    identity = ["-c", "user.name=A Tester", "-c", "user.email=tester@example.org"]
    subprocess.run(["git", "-C", directory, *identity, *arguments], check=True, capture_output=True)


def test_the_repository_s_commit_and_whether_tracked_files_differ(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    sources = package(tmp_path / "package", CPU_SOURCE)
    nowhere = {"commit": None, "tracked_tree_dirty": None}
    assert repository_state(sources) == nowhere
    git(tmp_path, "init")
    (tmp_path / "other").write_text("1")
    git(tmp_path, "add", "other")
    git(tmp_path, "commit", "-m", "Another thing")
    assert repository_state(sources) == nowhere  # inside a repository that doesn't track the package
    git(tmp_path, "add", "package")
    git(tmp_path, "commit", "-m", "The package")
    head = subprocess.check_output(["git", "-C", tmp_path, "rev-parse", "HEAD"], text=True).strip()
    (tmp_path / "untracked").write_text("")
    assert repository_state(sources) == {"commit": head, "tracked_tree_dirty": False}
    (tmp_path / "other").write_text("2")
    assert repository_state(sources) == {"commit": head, "tracked_tree_dirty": True}


@pytest.fixture
def copied_build(tmp_path, cpu_kernel_directory):
    return shutil.copytree(cpu_kernel_directory, tmp_path / "build")


def test_a_library_that_was_never_built_is_named_with_the_command_that_builds_it(tmp_path, copied_build):
    with pytest.raises(AuditError, match=r"not built: there is no .*build.json. Build it.*--out .*nothing"):
        load("cpu", tmp_path / "nothing")
    with pytest.raises(
        AuditError, match=r"the cuda kernel is not built(.|\n)*kernels.adaln_projection.build"
    ):
        load("cuda", copied_build)


def test_the_default_directory_is_the_environment_variable_s(tmp_path, monkeypatch):
    monkeypatch.setenv("ADALN_KERNEL_DIR", str(tmp_path / "elsewhere"))
    with pytest.raises(AuditError, match=r"there is no .*elsewhere/build.json"):
        load("cpu")


def test_other_machine_code_than_recorded_is_refused(copied_build):
    other = build(
        copied_build.parent / "other", ["cpu"], package(copied_build.parent / "package", CPU_SOURCE)
    )
    assert other["libraries"]["cpu"]["code_digest"] not in (copied_build / "build.json").read_text()
    shutil.copy(copied_build.parent / "other/libadaln_cpu.so", copied_build)
    with pytest.raises(AuditError, match=r"is not the library that build\.json describes"):
        load("cpu", copied_build)


def edit_record(directory, key):
    record = json.loads((directory / "build.json").read_text())
    record["libraries"]["cpu"][key] = "0" * 64
    (directory / "build.json").write_text(json.dumps(record))


def test_a_library_older_than_a_comment_is_loaded(copied_build):
    edit_record(copied_build, "source_digest")
    load("cpu", copied_build)


def test_a_library_older_than_its_sources_is_refused(copied_build):
    edit_record(copied_build, "program_digest")
    with pytest.raises(AuditError, match="is older than the sources"):
        load("cpu", copied_build)


def test_a_file_that_is_no_library_is_refused(tmp_path):
    (tmp_path / "text.so").write_text("not a library")
    with pytest.raises(AuditError, match="not a 64-bit little-endian ELF file"):
        code_digest(tmp_path / "text.so", "cpu")


def test_a_missing_compiler_is_recorded_where_asked_and_the_other_target_is_built(tmp_path, monkeypatch):
    monkeypatch.setenv("NVCC", "no-such-nvcc")
    record = build(tmp_path, ["cpu", "cuda"], record_missing=True)
    assert record["libraries"]["cpu"]["file"] == "libadaln_cpu.so"
    assert record["libraries"]["cuda"] is None
    assert record["missing"]["cuda"].startswith("no-such-nvcc was not found: install the CUDA toolkit")
    assert json.loads((tmp_path / "code.json").read_text())["cuda"] is None
    with pytest.raises(AuditError, match="the cuda kernel is not built: no-such-nvcc was not found"):
        load("cuda", tmp_path)


def test_a_build_without_its_compiler_is_stale_once_there_is_one(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert compilers_lacking(tmp_path, ["cpu"]) == ["cpu"]
    build(tmp_path, ["cpu"], record_missing=True)
    assert compilers_lacking(tmp_path, ["cpu"]) == ["cpu"]
    monkeypatch.setenv("CXX", "g++")
    assert compilers_lacking(tmp_path, ["cpu"]) == []
    build(tmp_path, ["cpu"], record_missing=True)
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert compilers_lacking(tmp_path, ["cpu"]) == []  # it is built: another machine has no say
