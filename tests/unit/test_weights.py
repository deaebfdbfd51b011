"""Real weights: what is wrong with them is said before any cell, from the file's header alone."""

import pytest
import torch
from safetensors.torch import save_file

from workflow_scripts import operators
from workflow_scripts.errors import AuditError
from workflow_scripts.weights import check_weights, load_weights

LAYOUT = operators.layout("adaln_projection", hidden=16, dim=64)
NAMES = {"weight": "blocks.0.adaln_proj.linear.weight", "bias": "blocks.0.adaln_proj.linear.bias"}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.safetensors"
    w = torch.arange(288 * 64, dtype=torch.int32).view(288, 64).bfloat16()
    save_file({NAMES["weight"]: w, NAMES["bias"]: w[:, 0].clone(), "norm.weight": torch.ones(64)}, path)
    return path


def check(file, **changes):
    check_weights({"file": str(file), **NAMES, **changes}, LAYOUT.shapes(1))


def test_right_weights_pass_and_are_loaded_bit_for_bit(file):
    check(file)
    loaded = load_weights({"file": str(file), **NAMES}, LAYOUT)
    expected = torch.arange(288 * 64, dtype=torch.int32).view(288, 64).bfloat16()
    assert torch.equal(loaded["w"].view(torch.int16), expected.view(torch.int16))
    assert torch.equal(loaded["b"], expected[:, 0])


def test_they_replace_the_made_ones_and_nothing_else(file):
    operator = operators.create("adaln_projection", hidden=16, dim=64)
    seeds = {"weights": 1, "temb": 3, "grad": 4}
    made = operator.make_inputs(2, seeds, None)
    real = operator.make_inputs(2, seeds, load_weights({"file": str(file), **NAMES}, operator))
    assert {name for name in made if not torch.equal(made[name], real[name])} == {"w", "b"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"weight": "blocks.0.adaln_proj.linear.weigth"},
            r"weights.weight: .*has no tensor '.*\.weigth'; did you mean 'blocks.0.adaln_proj.linear.weight'",
        ),
        ({"bias": "nothing"}, "weights.bias: .* has no tensor 'nothing'"),
        ({"weight": NAMES["bias"]}, r"weights.weight: .* is BF16 \[288\]; expected BF16 \[288, 64\]"),
        ({"bias": "norm.weight"}, r"weights.bias: 'norm.weight' in .* is F32 \[64\]; expected BF16 \[288\]"),
    ],
)
def test_a_wrong_name_shape_or_dtype(file, changes, message):
    with pytest.raises(AuditError, match=message):
        check(file, **changes)


@pytest.mark.parametrize("content", [b"", b"not safetensors at all", None, "folder"])
def test_a_file_that_is_none(tmp_path, content):
    path = tmp_path / "model.safetensors"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(AuditError, match=r"weights.file: .*model.safetensors cannot be read as safetensors"):
        check(path)


def test_a_truncated_file(file):
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(AuditError, match="cannot be read as safetensors"):
        check(file)
