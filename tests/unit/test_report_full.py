"""The full report: its schema, that it is a function of its evidence alone, and what it refuses."""

import json
from pathlib import Path

import jsonschema
import pytest

from tests.unit.fixtures.report.factory import KERNEL, PLAIN, SGLANG, VLLM, World
from workflow_scripts.errors import AuditError
from workflow_scripts.report.full import full_report

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "config" / "schemas" / "report.full.schema.json").read_text()
)


def eventful():
    """An audit in which most things that can happen have happened."""
    world = World(cases=(1, 4, 64))
    world.other_bits(PLAIN, "grad_temb", 1, 4)
    world.varying_rows(PLAIN, "grad_temb", 1)
    world.stop(SGLANG, "unavailable", "sglang is not installed")
    world.cells[VLLM, 4]["deviations"] = ["vLLM's compiled module is a stand-in"]
    world.cells[VLLM, 4]["environment"]["libraries"]["vllm"] = "0.30.0"
    del world.cells[VLLM, 64]
    return world


@pytest.mark.parametrize("world", [World(), eventful()], ids=["all equal", "eventful"])
def test_fits_its_schema(world):
    jsonschema.validate(full_report(world.evidence()), SCHEMA)


def test_schema_describes_every_field_and_refuses_others():
    def visit(schema, place):
        if "$ref" in schema or "const" in schema:
            return
        assert "description" in schema or "type" not in schema, place
        if schema.get("type") == "object" and "properties" in schema:
            assert schema["additionalProperties"] is False, place
            assert set(schema["required"]) <= set(schema["properties"]), place
        for name, part in {**schema.get("properties", {}), **schema.get("$defs", {})}.items():
            visit(part, f"{place}.{name}")
        for key in ("items", "additionalProperties"):
            if isinstance(schema.get(key), dict):
                visit(schema[key], f"{place}.{key}")

    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    visit(SCHEMA, "report")


def test_does_not_depend_on_the_order_in_which_documents_were_read():
    ordered = full_report(eventful().evidence())
    evidence = eventful().evidence()
    for name in ("cells", "compares", "rows"):
        setattr(evidence, name, dict(reversed(getattr(evidence, name).items())))
    assert json.dumps(full_report(evidence)) == json.dumps(ordered)


def test_does_not_depend_on_where_jobs_ran():
    elsewhere = eventful()
    elsewhere.audit |= {"results": "/another/place", "gpus": 8}
    assert full_report(elsewhere.evidence()) == full_report(eventful().evidence())


def test_environment_takes_a_library_from_whichever_cell_has_it():
    environment = full_report(eventful().evidence())["environment"]
    assert environment["libraries"]["vllm"] == "0.30.0"
    assert environment["libraries"]["sglang"] is None
    assert environment["disagreements"] == []


def test_environment_says_where_cells_disagree():
    world = World()
    world.cells[VLLM, 1]["environment"]["torch"] = "2.12.0+cpu"
    world.elsewhere(SGLANG, "NVIDIA H100")
    assert full_report(world.evidence())["environment"]["disagreements"] == [
        (
            "torch: 2.13.0+cpu in diffusers[plain], diffusers[sglang], diffusers[vllm] and rl_kernel; "
            "2.12.0+cpu in diffusers[vllm]"
        )
    ]


def test_environment_of_cells_that_did_not_run_is_still_told():
    world = World()
    for label in world.labels:
        world.stop(label, "unavailable", "no CUDA device")
    environment = full_report(world.evidence())["environment"]
    assert (environment["torch"], environment["python"]) == ("2.13.0+cpu", "3.11.7")


def test_comparison_that_does_not_fit_the_digests_is_refused():
    world = World()
    evidence = world.evidence()
    world.other_bits(VLLM, "out_0", 4)
    with pytest.raises(AuditError, match=r"diffusers\[vllm\] with diffusers\[plain\] at 4 rows does not fit"):
        full_report(evidence)


def test_rows_of_which_there_is_no_document():
    world = World()
    del world.rows[KERNEL]
    entry = next(e for e in full_report(world.evidence())["implementations"] if e["label"] == KERNEL)
    assert entry["rows"]["status"] == "not comparable"
    assert entry["verdict"]["verdict"] == "can't say"
