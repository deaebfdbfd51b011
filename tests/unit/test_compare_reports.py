"""Two reports: what became equal, what stopped being equal, what else moved."""

import copy
import json
from pathlib import Path

import jsonschema
import pytest

from tests.unit.fixtures.report.entry import call
from tests.unit.fixtures.report.factory import SGLANG, World
from workflow_scripts.compare_reports import main
from workflow_scripts.report.changes import changes
from workflow_scripts.report.full import full_report
from workflow_scripts.report.reference import reference_form

ROOT = Path(__file__).parents[2]
PUBLISHED = Path(__file__).parent / "fixtures" / "report" / "published_form.json"
SCHEMA = json.loads((ROOT / "config" / "schemas" / "report.schema.json").read_text())
PLAIN, VLLM, KERNEL = "diffusers[plain]", "diffusers[vllm]", "rl_kernel"


@pytest.fixture
def old():
    return json.loads(PUBLISHED.read_text())


@pytest.fixture
def new(old):
    return copy.deepcopy(old)


def said(old, new):
    return {heading: lines for heading, lines in changes(old, new).items() if lines}


def compare(*arguments):
    return call(main, *arguments)


def put(path, document):
    path.write_text(json.dumps(document))
    return path


def test_published_form_and_ours_fit_the_schema(old):
    world = World()
    world.stop(SGLANG, "unavailable", "sglang is not installed")
    for report in (old, reference_form(full_report(world.evidence()))):
        jsonschema.validate(report, SCHEMA)


def test_same(old, new, tmp_path):
    assert said(old, new) == {}
    done = compare(put(tmp_path / "old.json", old), put(tmp_path / "new.json", new))
    # 3 implementations, 1 + 2 + 1 comparisons with baselines, 3 cases, 4 tensors
    assert (done.returncode, done.stdout) == (0, "The same: all 48 comparisons, and the environment.\n")


def test_one_number(old, new, tmp_path):
    new["results"][VLLM][f"vs {KERNEL}"]["2048"]["grads"]["temb"]["differ"] = 131001
    expected = {
        "Differ by another amount": [
            "diffusers[vllm] vs rl_kernel, grads.temb at 2048 rows: elements 131,000 -> 131,001"
        ]
    }
    assert said(old, new) == expected
    done = compare(put(tmp_path / "old.json", old), put(tmp_path / "new.json", new))
    assert done.returncode == 1
    assert "elements 131,000 -> 131,001" in done.stdout
    assert done.stdout.endswith(
        "Different: of 48 comparisons 0 became equal, 0 stopped being equal, 1 differ by another amount.\n"
    )


def test_became_equal_and_stopped_being_equal(old, new):
    equal = {"equal": True, "differ": 0, "max_abs": 0.0}
    other = {"equal": False, "differ": 8, "max_abs": 0.5}
    new["results"][VLLM][f"vs {PLAIN}"]["4"]["grads"]["temb"] |= equal
    new["results"][VLLM][f"vs {PLAIN}"]["64"]["out"][0] |= other
    assert said(old, new) == {
        "Became equal": [
            (
                f"{VLLM} vs {PLAIN}, grads.temb at 4 rows: "
                "was 11 of 256 elements (4.3 %), largest difference 0.03125"
            )
        ],
        "Stopped being equal": [
            (
                f"{VLLM} vs {PLAIN}, out[0] at 64 rows: "
                "now 8 of 36,864 elements (0.022 %), largest difference 0.5"
            )
        ],
    }


def test_largest_difference_alone(old, new):
    new["results"][KERNEL][f"vs {PLAIN}"]["4"]["out"][0]["max_abs"] = 0.25
    assert said(old, new) == {
        "Differ by another amount": [
            "rl_kernel vs diffusers[plain], out[0] at 4 rows: largest difference 0.015625 -> 0.25"
        ]
    }


def test_implementations_appear_vanish_and_become_unavailable(old, new):
    new["results"]["diffusers[sglang]"] = new["results"].pop(VLLM)
    new["results"][KERNEL] = {"source": "RL-Kernel AdaLN projection", "unavailable": "no CUDA device"}
    assert said(old, new) == {
        "Implementations": [
            "appeared: diffusers[sglang]",
            "vanished: diffusers[vllm]",
            "rl_kernel: unavailable: none -> no CUDA device",
        ],
        "Compared only in the old report": [
            f"rl_kernel vs diffusers[plain] at {rows} rows" for rows in (4, 64, 2048)
        ],
    }


def test_a_case_more(old, new):
    new["cases"] = [4, 64, 2048, 4096]
    new["results"][KERNEL][f"vs {PLAIN}"]["4096"] = new["results"][KERNEL][f"vs {PLAIN}"]["4"]
    assert said(old, new) == {
        "Compared only in the new report": ["rl_kernel vs diffusers[plain] at 4096 rows"],
        "Environment": ["cases: 4, 64, 2048 -> 4, 64, 2048, 4096"],
    }


def test_another_dtype_now(old, new):
    gone = {"equal": False, "differ": None, "max_abs": None}
    new["results"][VLLM][f"vs {PLAIN}"]["4"]["grads"]["b"] |= gone
    assert said(old, new)["Stopped being equal"] == [
        "diffusers[vllm] vs diffusers[plain], grads.b at 4 rows: now another dtype or shape"
    ]


def test_environment(old, new, tmp_path):
    new["environment"]["libraries"]["vllm"] = "0.31.0"
    new["environment"]["capability"] = [9, 0]
    new["environment"]["mode_environment"]["vllm"].pop("CUBLASLT_WORKSPACE_SIZE")
    new["tracked_tree_dirty"] = True
    assert said(old, new) == {
        "Environment": [
            "tracked_tree_dirty: False -> True",
            "capability: 10, 0 -> 9, 0",
            "libraries.vllm: 0.30.0 -> 0.31.0",
            "mode_environment.vllm.CUBLASLT_WORKSPACE_SIZE: 1 -> none",
        ]
    }
    paths = put(tmp_path / "old.json", old), put(tmp_path / "new.json", new)
    done = compare(*paths)
    assert done.returncode == 1
    assert done.stdout.endswith("Different, but not in any of the 48 comparisons that both have.\n")
    assert compare(*paths, "--findings").returncode == 0


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"results": {}}, "is not a report.json"),
        ({"schema": "bitwise-reuse-audit/report/1"}, "give the report.json beside it"),
        ([], "not a JSON object"),
    ],
)
def test_other_documents_are_trouble(document, words, tmp_path):
    done = compare(PUBLISHED, put(tmp_path / "other.json", document))
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_damaged_measure_is_trouble(old, tmp_path):
    del old["results"][VLLM][f"vs {PLAIN}"]["4"]["out"][0]["equal"]
    done = compare(PUBLISHED, put(tmp_path / "damaged.json", old))
    assert done.returncode == 2
    assert "'equal' is a required property" in done.stderr


def test_reports_of_other_operators_are_trouble(old, tmp_path):
    old["op"] = "rms_norm"
    done = compare(PUBLISHED, put(tmp_path / "other.json", old))
    assert done.returncode == 2
    assert "different operators: adaln_projection and rms_norm" in done.stderr


def test_missing_file_is_trouble(tmp_path):
    done = compare(PUBLISHED, tmp_path / "none.json")
    assert done.returncode == 2
    assert "none.json: cannot be read" in done.stderr
