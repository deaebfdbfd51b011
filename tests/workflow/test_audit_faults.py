"""A faulty configuration ends before any job: exit 1, a message, no traceback, nothing touched."""

import pytest
import yaml

from tests.workflow.support.audits import copy_sources, small_audit, write_audit
from tests.workflow.support.running import snakemake


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults") / "audit"
    copy_sources(folder)
    write_audit(folder, small_audit())
    (folder / "results/small/report").mkdir(parents=True)
    (folder / "results/small/report/report.json").write_text("an earlier run's")
    (folder / "w.safetensors").write_bytes(b"not safetensors")
    return folder


def contents(folder):
    paths = (p for p in folder.rglob("*") if p.is_file() and ".snakemake" not in p.parts)
    return {p: p.read_bytes() for p in paths if "__pycache__" not in p.parts and p.suffix != ".yaml"}


WEIGHTS = {"file": "w.safetensors", "weight": "w", "bias": "b"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Config file must be given as JSON or YAML with keys at top level."),
        ("- a\n- list\n", "Config file must be given as JSON or YAML with keys at top level."),
        ("a: [1\nb: }", "Config file is not valid JSON or YAML."),
        ("{}", "configuration: 'audit' is a required property"),
        (small_audit(cases=[1, 1]), "cases: [1, 1] has non-unique elements"),
        (small_audit(audit="$(touch pwned)"), "audit: '$(touch pwned)' is not valid"),
        (small_audit(results="a'; touch pwned; '"), "results: \"a'; touch pwned; '\" is not valid"),
        (small_audit(baselines=["provider[plane]"]), "did you mean 'provider[plain]'?"),
        (small_audit(modes={"plain": {"variable": {}}}), "modes.plain: unknown key 'variable'"),
        (small_audit(weights=WEIGHTS), "weights.file: w.safetensors cannot be read as safetensors"),
        (
            small_audit(weights=WEIGHTS | {"file": "none.safetensors"}),
            "weights.file: none.safetensors cannot be",
        ),
    ],
    ids=lambda value: None if isinstance(value, dict) else repr(value)[:30],
)
def test_fault(folder, text, message):
    before = contents(folder)
    (folder / "faulty.yaml").write_text(text if isinstance(text, str) else yaml.safe_dump(text))
    run = snakemake(folder, configfile="faulty.yaml")
    assert run.returncode == 1
    assert message in run.output
    assert "Traceback" not in run.output
    assert run.jobs == []
    assert contents(folder) == before
    assert not list(folder.rglob("pwned"))
