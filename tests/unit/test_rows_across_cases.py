"""Rule rows: the rows of smaller cases against the first rows of the largest."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.unit.fixtures.cells import ENVIRONMENT, flip_bit, write_cell
from workflow_scripts.compare_rows import rows_across_cases
from workflow_scripts.errors import AuditError, CorruptDumpError

ROOT = Path(__file__).parents[2]
LARGE = np.random.default_rng(0).integers(0, 1 << 16, (40, 6), dtype=np.uint16)
SUMS = np.random.default_rng(1).random((40, 3), np.float32)
NAMES = ["out_0", "grad_temb"]


def cell(root, case, *, rows=(), sums=(), **changes):
    """The cell of a case; `rows` and `sums` name rows of its tensors with another bit."""
    table, gradient = LARGE[:case].copy(), SUMS[:case].copy()
    table[list(rows), 2] ^= 1
    gradient.view(np.uint32)[list(sums), :2] ^= 1
    return write_cell(root, {"out_0": table, "grad_temb": gradient}, case=case, **changes)


def test_the_document_of_three_cases(tmp_path):
    manifests = [
        cell(tmp_path, 16, rows=range(3, 13), sums=[15]),
        cell(tmp_path, 40),
        cell(tmp_path, 1, sums=[0]),
    ]
    output = tmp_path / "rows.json"
    command = [
        sys.executable,
        "-P",
        "-m",
        "workflow_scripts.compare_rows",
        "--manifests",
        *map(str, manifests),
    ]
    command += ["--row-tensors", *NAMES, "--output", str(output), "--configfile", "C"]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    assert json.loads(output.read_text()) == {
        "schema": "bitwise-reuse-audit/rows/1",
        "implementation": "diffusers[plain]",
        "largest": 40,
        "status": "compared",
        "reason": None,
        "cases": {
            "1": {
                "out_0": {"rows": 1, "rows_differ": 0, "differ": 0, "first_rows": []},
                "grad_temb": {"rows": 1, "rows_differ": 1, "differ": 2, "first_rows": [0]},
            },
            "16": {
                "out_0": {
                    "rows": 16,
                    "rows_differ": 10,
                    "differ": 10,
                    "first_rows": [3, 4, 5, 6, 7, 8, 9, 10],
                },
                "grad_temb": {"rows": 16, "rows_differ": 1, "differ": 2, "first_rows": [15]},
            },
        },
    }


def test_a_case_that_did_not_run_is_missed(tmp_path):
    manifests = [
        cell(tmp_path, 40),
        cell(tmp_path, 4),
        write_cell(tmp_path, {}, case=1, status="unavailable"),
    ]
    found = rows_across_cases(manifests, NAMES, "C")
    assert found["status"] == "not comparable"
    assert found["reason"] == "diffusers[plain] at case 1 is unavailable: no CUDA device"
    assert list(found["cases"]) == ["4"]


def test_without_the_largest_case_nothing_is_compared(tmp_path):
    manifests = [cell(tmp_path, 1), cell(tmp_path, 4), write_cell(tmp_path, {}, case=40, status="error")]
    found = rows_across_cases(manifests, NAMES, "C")
    assert (found["status"], found["largest"], found["cases"]) == ("not comparable", 40, {})
    assert found["reason"] == "diffusers[plain] at case 40 is error: no CUDA device"


def test_one_case_is_nothing_to_compare(tmp_path):
    found = rows_across_cases([cell(tmp_path, 4)], NAMES, "C")
    assert (found["status"], found["reason"]) == ("not comparable", "there is only one case")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"environment": ENVIRONMENT | {"gpu": "NVIDIA B200"}},
            "case 4 ran on another machine or stack: gpu",
        ),
        (
            {"inputs": {"w": {"dtype": "BF16", "shape": [6, 2], "sha256": "1" * 64}}},
            "case 4 was given another w",
        ),
    ],
)
def test_other_machines_and_inputs_are_no_evidence(tmp_path, changes, reason):
    found = rows_across_cases([cell(tmp_path, 40), cell(tmp_path, 4, **changes)], NAMES, "C")
    assert (found["status"], found["cases"]) == ("not comparable", {})
    assert found["reason"].startswith(reason)


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({"out_0": LARGE[:4]}, "grad_temb is missing at case 4"),
        (
            {"out_0": LARGE[:4], "grad_temb": SUMS[:4, :2]},
            "grad_temb is F32 [4, 2] at case 4 and F32 [40, 3]",
        ),
        ({"out_0": LARGE[:4].view(np.float16), "grad_temb": SUMS[:4]}, "out_0 is F16"),
    ],
)
def test_tensors_that_do_not_match_are_not_comparable(tmp_path, tensors, reason):
    found = rows_across_cases([cell(tmp_path, 40), write_cell(tmp_path, tensors, case=4)], NAMES, "C")
    assert (found["status"], found["cases"]) == ("not comparable", {})
    assert found["reason"].startswith(reason)


@pytest.mark.parametrize("case", [4, 40])
def test_a_corrupt_dump_is_never_compared(tmp_path, case):
    manifests = {40: cell(tmp_path, 40), 4: cell(tmp_path, 4)}
    flip_bit(manifests[case].parent / "out_0.safetensors", -1)
    with pytest.raises(CorruptDumpError, match=f"--forcerun {manifests[case]}"):
        rows_across_cases(list(manifests.values()), NAMES, "C")


def test_a_smaller_case_with_more_rows_is_not_comparable(tmp_path):
    large, small = {"out_0": LARGE[:3], "grad_temb": SUMS[:3]}, {"out_0": LARGE[:4], "grad_temb": SUMS[:4]}
    manifests = [write_cell(tmp_path, large, case=40), write_cell(tmp_path, small, case=4)]
    found = rows_across_cases(manifests, NAMES, "C")
    assert (found["status"], found["cases"]) == ("not comparable", {})
    assert found["reason"] == "out_0 is BF16 [4, 6] at case 4 and BF16 [3, 6] at the largest"


def test_two_implementations_are_a_mistake(tmp_path):
    manifests = [cell(tmp_path, 40), cell(tmp_path, 4, implementation="rl_kernel")]
    with pytest.raises(AuditError, match=r"diffusers\[plain\], rl_kernel"):
        rows_across_cases(manifests, NAMES, "C")
