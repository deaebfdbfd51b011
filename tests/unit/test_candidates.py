"""Candidates: the built-in ones by name, any other by `callable`."""

import json
import os

import pytest
import torch

from workflow_scripts import candidates, operators

OPERATOR = operators.create("adaln_projection", hidden=16, dim=64)
INPUTS = OPERATOR.make_inputs(2, {"weights": 1, "temb": 3, "grad": 4}, None)


def leaves():
    return {name: INPUTS[name].clone().requires_grad_() for name in OPERATOR.inputs}


def test_a_callable_gets_the_operators_inputs_in_order():
    prepared = candidates.from_callable("tests.workflow.candidates.behaving:expression", OPERATOR, leaves())
    assert torch.equal(prepared.forward(), OPERATOR.expression(*(INPUTS[n] for n in OPERATOR.inputs)))
    assert prepared.callable == "tests.workflow.candidates.behaving:expression"
    assert list(prepared.leaves) == list(OPERATOR.inputs)


def test_a_callable_may_be_an_attribute_of_an_attribute():
    prepared = candidates.from_callable("torch:nn.functional.linear", OPERATOR, leaves())
    assert prepared.callable == "torch:nn.functional.linear"


def test_an_attribute_that_is_missing_is_named():
    with pytest.raises(ImportError, match=r"torch has no attribute 'nn.functional.linaer'"):
        candidates.from_callable("torch:nn.functional.linaer", OPERATOR, leaves())


def test_the_kernel_is_the_one_that_this_audit_built(cpu_kernel):
    prepared = candidates.find("rl_kernel").prepare(OPERATOR, leaves())
    (table,) = OPERATOR.outputs(prepared.forward())
    assert table.shape == (2, 288)
    with open(os.path.join(os.environ["ADALN_KERNEL_DIR"], "build.json")) as file:  # noqa: PTH118, PTH123
        built = json.load(file)
    assert prepared.kernel["code"]["cpu"] == built["libraries"]["cpu"]["code_digest"]
    assert prepared.kernel["repository"] == built["repository"]


def test_a_kernel_that_is_not_built_is_said_so(tmp_path, monkeypatch):
    from workflow_scripts.cell.cell import sentence

    monkeypatch.setenv("ADALN_KERNEL_DIR", str(tmp_path))
    with pytest.raises(Exception, match=r"build\.json") as caught:
        candidates.find("rl_kernel").prepare(OPERATOR, leaves())
    assert "not built" in sentence(caught.value)


def test_a_kernel_whose_compiler_was_missing_is_unavailable(tmp_path, monkeypatch):
    record = {"libraries": {"cpu": None}, "missing": {"cpu": "g++ was not found: install GCC"}}
    (tmp_path / "build.json").write_text(json.dumps(record))
    monkeypatch.setenv("ADALN_KERNEL_DIR", str(tmp_path))
    with pytest.raises(
        candidates.CandidateUnavailableError, match="not built for cpu: g\\+\\+ was not found"
    ):
        candidates.find("rl_kernel").prepare(OPERATOR, leaves())
