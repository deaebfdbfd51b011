"""Copies of the sources, and audits that take seconds."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.workflow.support import planted

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ("Snakefile", "rules", "config", "profiles", "envs", "workflow_scripts", "kernels")

# A library by which the mode `upgradable` can be upgraded.
LIBRARY = "stand_in_library"


def small_audit(**changes: Any) -> dict[str, Any]:
    """A configuration of 3 implementations on 2 cases at tiny widths: 7 cells of about a second each."""
    audit: dict[str, Any] = {
        "audit": "small",
        "device": "cpu",
        "operator": {"hidden": 16, "dim": 64},
        "cases": [1, 2],
        "threads": 1,
        "candidates": {
            "provider": {
                "callable": "expression:table",
                "path": ["callables"],
                "modes": ["plain", "upgradable"],
            },
            "rl_kernel": {},
        },
        "modes": {"plain": {}, "upgradable": {"path": ["libraries"], "needs": {"libraries": [LIBRARY]}}},
        "baselines": ["provider[plain]", "rl_kernel"],
    }
    return audit | changes


def tiny_audit(*, kernel: bool = False, **changes: Any) -> dict[str, Any]:
    """A configuration of 2 implementations on 1 case, 3 cells; with the kernel, its build and a cell more."""
    modes = {"plain": {}, "one_thread": {"variables": {"OMP_NUM_THREADS": "1"}}}
    provider = {"callable": "expression:table", "path": ["callables"], "modes": list(modes)}
    candidates = {"provider": provider} | ({"rl_kernel": {}} if kernel else {})
    few = {"candidates": candidates, "modes": modes, "baselines": ["provider[plain]"]}
    return small_audit(cases=[1], accuracy=False, **few) | changes


def copy_sources(folder: Path) -> None:
    """Put a copy of the workflow into `folder`, which edits may then spoil."""
    ignored = shutil.ignore_patterns("__pycache__", "build")
    folder.mkdir(parents=True, exist_ok=True)
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=ignored, dirs_exist_ok=True)
        else:
            shutil.copy2(source, folder / name)


def write_audit(folder: Path, audit: dict[str, Any]) -> None:
    """Write a configuration and what its candidate and modes need: `small.yaml`, `callables`, `libraries`."""
    (folder / "small.yaml").write_text(yaml.safe_dump(audit, sort_keys=False))
    (folder / "callables").mkdir(exist_ok=True)
    (folder / "callables" / "expression.py").write_text(planted.EXPRESSION)
    install(folder, "1.0")


def install(folder: Path, version: str) -> None:
    """Install that version of the stand-in library into the folder of the mode `upgradable`."""
    libraries = folder / "libraries"
    shutil.rmtree(libraries, ignore_errors=True)
    metadata = libraries / f"{LIBRARY}-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: {LIBRARY}\nVersion: {version}\n")


def copy_audit(source: Path, destination: Path) -> Path:
    """Copy a folder with its results and Snakemake's records: times and hard links are kept."""
    subprocess.run(["cp", "-a", str(source), str(destination)], check=True)
    return destination
