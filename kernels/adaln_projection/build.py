"""Build the libraries: python -P -m kernels.adaln_projection.build --out DIR --targets cpu|cuda|both.

DIR gets libadaln_cpu.so and libadaln_cuda.so (the targets asked for, no other), build.log (all that the
compilers said, with the registers and spills of each CUDA kernel), build.json (what was built, from what and
how) and code.json (digests of the machine code alone: what a cell depends on). Nothing is replaced unless
everything compiled.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from kernels.adaln_projection.library import FILES, PACKAGE, build_record, program_digest, source_digest
from kernels.adaln_projection.machine_code import code_digest
from workflow_scripts.errors import AuditError, run_main

# No contraction, no fast-math: each operation of the sources is one IEEE 754 operation.
CPU_FLAGS = [
    *("-std=c++17", "-O3", "-ffp-contract=off", "-fno-fast-math"),
    *("-shared", "-fPIC", "-pthread", "-fvisibility=hidden", "-s"),
    *("-Wall", "-Wextra", "-Werror"),
]
# sm_90a runs on compute capability 9.0 only, sm_80 on 8.x, sm_100 on 10.x; the PTX serves every other chip.
CUDA_ARCHITECTURES = {
    "sm_80": "arch=compute_80,code=sm_80",
    "sm_90a": "arch=compute_90a,code=sm_90a",
    "sm_100": "arch=compute_100,code=sm_100",
    "compute_90": "arch=compute_90,code=compute_90",
}
CUDA_FLAGS = [
    *("-std=c++17", "-O3", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"),
    *("--shared", "--cudart=static", "--no-compress", "--threads=2"),
    *("-Xcompiler", "-fPIC,-fvisibility=hidden,-Wall,-Wextra,-Werror", "-Xlinker", "-s"),
    *("-Werror", "all-warnings", "-Xptxas", "-v"),
    *(f"-gencode={code}" for code in CUDA_ARCHITECTURES.values()),
]


COMPILERS = {
    "cpu": ("CXX", "g++", "GCC 12 or newer"),
    "cuda": ("NVCC", "nvcc", "the CUDA toolkit, 12.8 or newer"),
}
"""For each target: the variable that may name its compiler, the compiler, what to install."""


class CompilerMissingError(AuditError):
    """A target can't be built on this machine."""


def _find(target: str) -> str:
    """The compiler that the environment variable names, or else the one on PATH."""
    variable, name, package = COMPILERS[target]
    compiler = os.environ.get(variable) or name
    found = shutil.which(compiler)
    if found is None:
        raise CompilerMissingError(
            f"{compiler} was not found: install {package}, put it on PATH, or name it in ${variable}."
        )
    return found


def compilers_lacking(directory: Path, targets: list[str]) -> list[str]:
    """Targets that are not built in `directory` and whose compiler this machine lacks.

    A parameter of the build's job: where a compiler was installed meanwhile, the build is stale.
    """
    try:
        built = build_record(directory)["libraries"]
    except AuditError:
        built = {}
    return [t for t in targets if not built.get(t) and not _is_here(t)]


def _is_here(target: str) -> bool:
    try:
        _find(target)
    except CompilerMissingError:
        return False
    return True


def _run(command: list[str], directory: Path, log: Path) -> None:
    result = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    said = result.stdout + result.stderr
    with log.open("a") as file:
        file.write(f"$ {' '.join(command)}\n{said}\n")
    if result.returncode != 0:
        raise AuditError(f"{Path(command[0]).name} failed with status {result.returncode}:\n{said.strip()}")


def _version(compiler: str) -> str:
    said = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    lines = said.strip().splitlines()
    return next((line for line in lines if "release" in line), lines[0])


def _compile(target: str, package: Path, out: Path) -> dict[str, Any]:
    """Compile one target's library into `out` and describe it."""
    if target == "cpu":
        compiler, flags = _find(target), CPU_FLAGS
        sources, architectures = ["reference.cpp"], [os.uname().machine]
    else:
        compiler, flags = _find(target), CUDA_FLAGS
        sources = sorted(path.name for path in package.glob("*.cu"))
        architectures = list(CUDA_ARCHITECTURES)
        if not sources:
            raise AuditError(f"there are no CUDA sources (*.cu) in {package}.")
    library = out / FILES[target]
    digest = source_digest(target, package)
    _run([compiler, *flags, "-o", str(library.resolve()), *sources], package, out / "build.log")
    if source_digest(target, package) != digest:
        raise AuditError(f"the sources in {package} changed while they were compiled: build again.")
    return {
        "file": library.name,
        "source_digest": digest,
        "program_digest": program_digest(target, package),
        "sources": sources,
        "compiler": Path(compiler).name,
        "compiler_version": _version(compiler),
        "flags": flags,
        "architectures": architectures,
        "sha256": hashlib.sha256(library.read_bytes()).hexdigest(),
        "code_digest": code_digest(library, target),
    }


def _git(package: Path, *arguments: str) -> str | None:
    try:
        result = subprocess.run(
            ["git", "-C", str(package), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return result.stdout.strip() if result.returncode == 0 else None


def repository_state(package: Path = PACKAGE) -> dict[str, str | bool | None]:
    """Commit (40 hex) of the git repository that holds the sources, and whether tracked files differ from it.

    Both are null outside git, and where git does not track the package.
    """
    commit = _git(package, "rev-parse", "--verify", "HEAD")
    if commit is None or not _git(package, "ls-files", "--", "."):
        return {"commit": None, "tracked_tree_dirty": None}
    changes = _git(package, "status", "--porcelain", "--untracked-files=no", "--", ":/")
    return {"commit": commit, "tracked_tree_dirty": None if changes is None else changes != ""}


def _same(new: Path, old: Path) -> bool:
    """Whether both are the same file, or neither is there."""
    if not (new.exists() and old.exists()):
        return new.exists() == old.exists()
    return new.read_bytes() == old.read_bytes()


def build(
    out: Path, targets: list[str], package: Path = PACKAGE, *, record_missing: bool = False
) -> dict[str, Any]:
    """Build the libraries of `targets` ("cpu", "cuda") into `out`; returns what build.json says.

    With `record_missing`, a target whose compiler is missing is left out, and `missing` says why.

    Raises:
        AuditError: a compiler is missing (CompilerMissingError), or refuses the sources.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=out) as name:
        temporary = Path(name)
        (temporary / "build.log").touch()
        libraries: dict[str, dict[str, Any] | None] = dict.fromkeys(FILES)
        missing: dict[str, str] = {}
        for target in targets:
            try:
                libraries[target] = _compile(target, package, temporary)
            except CompilerMissingError as error:
                if not record_missing:
                    raise
                missing[target] = str(error)
        record = {"libraries": libraries, "missing": missing, "repository": repository_state(package)}
        code = {target: library and library["code_digest"] for target, library in libraries.items()}
        (temporary / "build.json").write_text(json.dumps(record, indent=2) + "\n")
        (temporary / "code.json").write_text(json.dumps(code, indent=2) + "\n")
        built = [FILES[target] for target, library in libraries.items() if library]
        if any(not _same(temporary / file, out / file) for file in FILES.values()):
            (out / "build.json").unlink(missing_ok=True)  # else cells may go on loading what stays as it is
        for target, file in FILES.items():
            if libraries[target] is None:
                (out / file).unlink(missing_ok=True)
        for file in [*built, "build.log", "code.json", "build.json"]:
            (temporary / file).replace(out / file)
    return record


def main() -> int:
    """Entry point of the build_kernel rule."""
    parser = argparse.ArgumentParser(description="Build the libraries of the AdaLN projection.")
    parser.add_argument("--out", type=Path, required=True, help="directory that gets the libraries")
    parser.add_argument("--targets", choices=["cpu", "cuda", "both"], default="both")
    parser.add_argument("--record-missing", action="store_true", help="a missing compiler is no failure")
    arguments = parser.parse_args()
    targets = list(FILES) if arguments.targets == "both" else [arguments.targets]
    record = build(arguments.out, targets, record_missing=arguments.record_missing)
    for target, library in record["libraries"].items():
        if library:
            print(f"{arguments.out / FILES[target]}: code {library['code_digest'][:16]}")
    for target, reason in record["missing"].items():
        print(f"no library for {target}: {reason}")
    return 0


if __name__ == "__main__":
    run_main(main)
