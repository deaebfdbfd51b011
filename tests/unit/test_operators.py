"""The AdaLN projection: its layout, its expression, its float64 reference."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.unit.fixtures.whole_reference import whole_reference
from workflow_scripts import candidates, operators

ROOT = Path(__file__).parents[2]
OPERATOR = operators.create("adaln_projection", hidden=16, dim=64)
SEEDS = {"weights": 1, "temb": 3, "grad": 4}


def with_gradients(function, inputs):
    leaves = {name: inputs[name].clone().requires_grad_() for name in OPERATOR.inputs}
    table = function(*leaves.values())
    table.backward(inputs["grad"].to(table.dtype))
    return {"out_0": table.detach(), **{f"grad_{name}": leaf.grad for name, leaf in leaves.items()}}


def reference(inputs):
    """The reference's parts, put together; 100 columns at a time leave a last part that is narrower."""
    shapes = {name: inputs[name.removeprefix("grad_")].shape for name in OPERATOR.tensor_ids[1:]}
    whole = {name: torch.full(shape, torch.nan, dtype=torch.float64) for name, shape in shapes.items()}
    whole["out_0"] = torch.full(inputs["grad"].shape, torch.nan, dtype=torch.float64)
    for part in OPERATOR.reference(inputs, columns=100):
        whole[part.tensor][part.index] = part.values
    return whole


def test_the_layout_is_the_models():
    full = operators.layout("adaln_projection", hidden=5376, dim=2688)
    assert full.shapes(2048) == {
        "temb": ("F32", (2048, 2688)),
        "w": ("BF16", (96768, 2688)),
        "b": ("BF16", (96768,)),
        "grad": ("BF16", (2048, 96768)),
    }
    assert full.tensor_ids == ("out_0", "grad_temb", "grad_w", "grad_b")
    assert full.row_tensors == ("out_0", "grad_temb")


def test_a_layout_needs_no_torch():
    code = "import sys, workflow_scripts.operators as o; o.layout('adaln_projection', hidden=1, dim=8)"
    command = [sys.executable, "-P", "-c", f"{code}; sys.exit('torch' in sys.modules)"]
    assert subprocess.run(command, env={"PYTHONPATH": str(ROOT)}, check=False).returncode == 0


def test_the_reference_is_the_float64_expression():
    """In float64 autograd gives the reference's gradients, to the rounding of float64."""
    inputs = OPERATOR.make_inputs(3, SEEDS, None)
    act = torch.nn.functional.silu(inputs["temb"]).bfloat16().double()

    def table(temb, w, b):
        silu = torch.nn.functional.silu(temb)
        return (
            silu + (act - silu).detach()
        ) @ w.T + b  # the value of the rounded act, the derivative of silu

    expected = with_gradients(table, {name: tensor.double() for name, tensor in inputs.items()})
    found = whole_reference(OPERATOR, inputs)
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert tensor.dtype == torch.float64
        torch.testing.assert_close(tensor, expected[name], rtol=1e-12, atol=1e-12)


def test_the_expression_is_near_the_reference():
    inputs = OPERATOR.make_inputs(3, SEEDS, None)
    reference = whole_reference(OPERATOR, inputs)
    for name, tensor in with_gradients(OPERATOR.expression, inputs).items():
        torch.testing.assert_close(tensor.double(), reference[name], rtol=2**-7, atol=2**-6)


def test_the_released_module_has_the_bits_of_the_expression():
    pytest.importorskip("diffusers.models.transformers.transformer_minimax_h3")
    inputs = OPERATOR.make_inputs(5, SEEDS, None)
    expected = with_gradients(OPERATOR.expression, inputs)
    leaves = {name: inputs[name].clone().requires_grad_() for name in OPERATOR.inputs}
    prepared = candidates.find("diffusers").prepare(OPERATOR, leaves)
    assert prepared.callable.endswith("transformer_minimax_h3.MiniMaxH3AdaLayerNormModulation")
    (table,) = OPERATOR.outputs(prepared.forward())
    gradients = torch.autograd.grad(table, [prepared.leaves[n] for n in OPERATOR.inputs], inputs["grad"])
    for name, tensor in zip(OPERATOR.tensor_ids, (table, *gradients), strict=True):
        assert torch.equal(tensor, expected[name]), name


def test_chunk_order_and_rows_are_diffusers():
    """Row t * 3 + m of chunk p holds columns (m * 6 + p) * H and on of the table's row t."""
    table = torch.arange(2 * 288).view(2, 288).bfloat16()
    chunks = table.view(-1, 96).chunk(6, dim=-1)
    (joined,) = OPERATOR.outputs(chunks)
    assert torch.equal(joined, table)
    assert torch.equal(chunks[4][1 * 3 + 2], table[1, (2 * 6 + 4) * 16 : (2 * 6 + 5) * 16])


def test_without_diffusers_the_expression_runs_and_says_so(monkeypatch):
    from workflow_scripts.candidates import diffusers

    monkeypatch.setattr(diffusers, "_released_class", lambda: None)
    inputs = OPERATOR.make_inputs(2, SEEDS, None)
    prepared = diffusers.prepare(OPERATOR, {name: inputs[name] for name in OPERATOR.inputs})
    assert prepared.callable == "expression: F.linear(F.silu(temb).to(w.dtype), w, b)"
    assert torch.equal(prepared.forward(), OPERATOR.expression(*(inputs[n] for n in OPERATOR.inputs)))
