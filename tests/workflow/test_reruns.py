"""What one plain call of Snakemake does after an edit: a line for each kind of edit.

The audit has the implementations `provider[plain]`, `provider[upgradable]` and `rl_kernel`, on 1 and 2 rows;
the first and the last are baselines. The jobs expected are worked out from what reads what, not from a run.
"""

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.workflow.support.audits import install, small_audit, write_audit
from tests.workflow.support.running import snakemake

CASES = (1, 2)
PLAIN, UPGRADABLE, KERNEL = "provider.plain", "provider.upgradable", "rl_kernel"
BASELINES = (PLAIN, KERNEL)
REPORT = {"report", "page", "gate"}


def compares_with(key: str, cases: tuple[int, ...] = CASES) -> set[str]:
    pairs = {(key, b) for b in BASELINES} | (
        {(k, key) for k in (PLAIN, UPGRADABLE, KERNEL)} if key in BASELINES else set()
    )
    return {f"compare {case} {a} {b}" for case in cases for a, b in pairs if a != b}


def after_cells(key: str, cases: tuple[int, ...] = CASES) -> set[str]:
    """An implementation's cells, and all that is made of them."""
    made = {f"{rule} {case}" for case in cases for rule in (f"cell {key}", "accuracy")} | {f"rows {key}"}
    control = {"control_flipped_bit"} if key == PLAIN and 1 in cases else set()
    return made | compares_with(key, cases) | control | REPORT


def append(file: str, text: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        with (folder / file).open("a") as opened:
            opened.write(text)

    return edit


def both(*edits: Callable[[Path], None]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        for one in edits:
            one(folder)

    return edit


def replace(file: str, pattern: str, text: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        changed, count = re.subn(pattern, text, (folder / file).read_text(), count=1)
        assert count == 1, f"{file} has no {pattern}"
        (folder / file).write_text(changed)

    return edit


def configure(**changes: object) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        (folder / "small.yaml").write_text(yaml.safe_dump(small_audit(**changes), sort_keys=False))

    return edit


def remove(*files: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        for file in files:
            (folder / "results" / "small" / file).unlink()

    return edit


def touch_everything(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and ".snakemake" not in path.parts:
            os.utime(path)


def commit_everything(folder: Path) -> None:
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org"]
    for words in (
        ["init", "-q"],
        ["add", "Snakefile", "kernels", "rules"],
        ["commit", "-q", "-m", "A commit"],
    ):
        subprocess.run([*git, *words], cwd=folder, check=True)


def flip_a_bit(folder: Path) -> None:
    path = folder / "results" / "small" / DUMP
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.unlink()  # not through the hard link: other cells' dumps stay whole
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


NOTHING: set[str] = set()
# A tensor in which the two implementations differ: equal digests are equal bits, and no dump is read.
DUMP, COMPARISON = f"cells/{UPGRADABLE}/2/grad_temb.safetensors", f"compare/2/{UPGRADABLE}/{KERNEL}.json"
FULL = "report/report.full.json"
CPP = "kernels/adaln_projection/reference.cpp"
TABLE = {
    "the folder is moved": (lambda folder: None, NOTHING),
    "every file is touched": (touch_everything, NOTHING),
    "a commit": (commit_everything, NOTHING),
    "a comment in the kernel": (append(CPP, "\n// A comment.\n"), {"build_kernel"}),
    "a comment in a CUDA kernel, on a CPU": (
        append("kernels/adaln_projection/forward.cu", "\n// A comment.\n"),
        NOTHING,
    ),
    "other machine code of the kernel": (
        append(
            CPP,
            '\nextern "C" __attribute__((visibility("default"))) int one_more(int i) { return 3 * i + 1; }\n',
        ),
        {"build_kernel"} | after_cells(KERNEL),
    ),
    "a library of one mode is upgraded": (lambda folder: install(folder, "2.0"), after_cells(UPGRADABLE)),
    "the code of the report": (append("workflow_scripts/report/tables.py", "# A comment.\n"), REPORT),
    "the look of the page": (
        append("workflow_scripts/report/templates/style.css", "/* A comment. */\n"),
        {"page"},
    ),
    "the code of the gate": (append("workflow_scripts/gate.py", "# A comment.\n"), {"gate"}),
    "the code of the comparison of rows": (
        append("workflow_scripts/compare_rows.py", "# A comment.\n"),
        {f"rows {key}" for key in (PLAIN, UPGRADABLE, KERNEL)} | REPORT,
    ),
    "a switch that no mode has": (append("workflow_scripts/modes/vllm.py", "# A comment.\n"), NOTHING),
    "the code of another candidate": (
        append("workflow_scripts/candidates/diffusers.py", "# A comment.\n"),
        NOTHING,
    ),
    "the code of a candidate": (
        append("workflow_scripts/candidates/rl_kernel.py", "# A comment.\n"),
        after_cells(KERNEL),
    ),
    "the callable": (
        append("callables/expression.py", "# A comment.\n"),
        after_cells(PLAIN) | after_cells(UPGRADABLE) | {"cell provider.control_inert 1"},
    ),
    "how many GPUs and cores there are": (
        configure(gpus=8, cells_per_gpu=2, cores_per_cell=2, on_error="record"),
        {"configuration"} | REPORT,
    ),
    # A build that remakes nothing must not keep Snakemake from seeing what else was edited.
    "a comment in the kernel, and the code of its candidate": (
        both(
            append(CPP, "\n// A comment.\n"),
            append("workflow_scripts/candidates/rl_kernel.py", "# A comment.\n"),
        ),
        {"build_kernel"} | after_cells(KERNEL),
    ),
    "another choice of cases": (
        configure(cases=[2]),
        {"inputs", "configuration", "cell provider.control_inert 2"}
        | after_cells(PLAIN, (2,))
        | after_cells(UPGRADABLE, (2,))
        | after_cells(KERNEL, (2,))
        | {"control_flipped_bit"},
    ),
    "what the gate demands": (
        configure(expect={"rl_kernel": {"repeatable": True}}),
        {"configuration"} | REPORT,
    ),
    # What the finished report does not need any more is not made again before something needs it.
    "a dump is deleted": (remove(DUMP), NOTHING),
    "a dump and a comparison that reads it are deleted": (remove(DUMP, COMPARISON), NOTHING),
    "a dump, a comparison that reads it and the report are deleted": (
        remove(DUMP, COMPARISON, FULL),
        after_cells(UPGRADABLE, (2,)),
    ),
    "a dump and the report are deleted": (remove(DUMP, FULL), REPORT),
    "a comparison and the report are deleted": (
        remove(COMPARISON, FULL),
        {f"compare 2 {UPGRADABLE} {KERNEL}"} | REPORT,
    ),
    "a manifest and the report are deleted": (
        remove(f"cells/{KERNEL}/1/manifest.json", FULL),
        after_cells(KERNEL, (1,)),
    ),
    "a bit of a dump is flipped": (flip_a_bit, NOTHING),
}


# Lines whose kind another line shows as well, left to `make test-all`.
MORE = {
    "the code of the gate",
    "the code of the comparison of rows",
    "the code of another candidate",
    "the code of a candidate",
    "the callable",
    "another choice of cases",
    "what the gate demands",
    "a dump and a comparison that reads it are deleted",
    "a dump and the report are deleted",
    "a comparison and the report are deleted",
    "a manifest and the report are deleted",
}


def lines():
    return [pytest.param(edit, marks=pytest.mark.slow) if edit in MORE else edit for edit in TABLE]


@pytest.mark.parametrize("edit", lines())
def test_one_plain_call_does_what_the_edit_asks_for(edit, audit_copy):
    change, expected = TABLE[edit]
    change(audit_copy)
    run = snakemake(audit_copy)
    assert run.returncode == 0, run.output
    assert run.jobs == sorted(expected)
    if "build_kernel" in expected:  # what a build wrote must not make the next call do what this one did not
        assert snakemake(audit_copy, "--dry-run").jobs == []


def test_a_corrupt_dump_is_named_and_the_printed_command_mends_it(audit_copy):
    flip_a_bit(audit_copy)
    found = snakemake(audit_copy, "verify")
    assert found.returncode == 1
    assert f"results/small/{DUMP}: corrupt" in found.output
    mend = f"--configfile small.yaml --forcerun results/small/cells/{UPGRADABLE}/2/manifest.json"
    assert mend in found.output
    mended = snakemake(audit_copy, "--forcerun", f"results/small/cells/{UPGRADABLE}/2/manifest.json")
    assert mended.returncode == 0, mended.output
    assert mended.jobs == sorted(after_cells(UPGRADABLE, (2,)))
    assert snakemake(audit_copy, "verify").returncode == 0


def test_a_comparison_does_not_read_a_corrupt_dump(audit_copy):
    flip_a_bit(audit_copy)
    remove(COMPARISON, FULL)(audit_copy)
    run = snakemake(audit_copy)
    assert run.returncode == 1
    assert f"results/small/{DUMP}: corrupt" in run.output
    assert f"--forcerun results/small/cells/{UPGRADABLE}/2/manifest.json" in run.output
    assert not (audit_copy / "results" / "small" / COMPARISON).exists()


@pytest.mark.slow
def test_accuracy_can_be_left_out(audit_copy):
    write_audit(audit_copy, small_audit(accuracy=False))
    run = snakemake(audit_copy)
    assert run.returncode == 0, run.output
    assert run.jobs == ["configuration", "gate", "page", "report"]
    report = json.loads((audit_copy / "results" / "small" / "report" / "report.full.json").read_text())
    assert all(
        cell["accuracy"] is None for entry in report["implementations"] for cell in entry["cells"].values()
    )
