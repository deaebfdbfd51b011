"""Accuracy in the embedded audit, against numpy and rounding by bits, which share nothing with it."""

import json

import numpy as np
import pytest
from safetensors.torch import load_file

KEYS = {"diffusers[plain]": "diffusers.plain", "rl_kernel": "rl_kernel"}
DROPPED = {"torch.bfloat16": 45, "torch.float32": 29}
"""Bits by which float64's significand is the longer one."""


def rounded(values, dropped):
    """Float64 with its low bits rounded away, ties to even; for numbers that are normal in the new type."""
    assert np.all((values == 0) | (np.abs(values) >= 2.0**-126))
    bits = values.view(np.uint64)
    odd = (bits >> np.uint64(dropped)) & np.uint64(1)
    up = bits + np.uint64((1 << (dropped - 1)) - 1) + odd
    return (up >> np.uint64(dropped) << np.uint64(dropped)).view(np.float64)


def tensor(path):
    (found,) = load_file(path).values()
    return found


@pytest.fixture(scope="module", params=[4, 64])
def case(request, cpu_audit):
    """Rows, and the operator of the embedded audit on them in float64."""
    rows, folder = request.param, cpu_audit / "results" / "cpu" / "inputs"
    temb, w, b, grad = (
        tensor(folder / f"{name}.safetensors").double().numpy() for name in ("temb", "w", "b", "grad")
    )
    temb, grad = temb[:rows], np.ascontiguousarray(grad[:rows])
    sigmoid = 1 / (1 + np.exp(-temb))
    act = rounded(temb * sigmoid, DROPPED["torch.bfloat16"])
    reference = {
        "out_0": np.einsum("tk,nk->tn", act, w, optimize=True) + b,
        "grad_temb": np.einsum("tn,nk->tk", grad, w, optimize=True) * sigmoid * (1 + temb * (1 - sigmoid)),
        "grad_w": np.einsum("tn,tk->nk", grad, act, optimize=True),
        "grad_b": np.einsum("tn->n", grad),
    }
    return rows, reference


@pytest.mark.parametrize("label", KEYS)
def test_the_embedded_audit_agrees_with_numpy(cpu_audit, case, label):
    rows, reference = case
    report = json.loads((cpu_audit / "results" / "cpu" / "report" / "report.full.json").read_text())
    (entry,) = (entry for entry in report["implementations"] if entry["label"] == label)
    found = entry["cells"][str(rows)]["accuracy"]
    assert (found["status"], found["reason"]) == ("measured", None)
    assert found["tensors"].keys() == reference.keys()
    for name, expected in reference.items():
        dumped = tensor(
            cpu_audit / "results" / "cpu" / "cells" / KEYS[label] / str(rows) / f"{name}.safetensors"
        )
        values = dumped.double().numpy()
        error = np.abs(values - expected) / np.abs(expected).max()
        nearest = rounded(np.ascontiguousarray(expected), DROPPED[str(dumped.dtype)])
        assert found["tensors"][name] == pytest.approx(
            {
                "max_error": error.max(),
                "mean_error": error.mean(),
                "correctly_rounded": np.count_nonzero(values == nearest) / values.size,
            },
            rel=1e-5,
        )
