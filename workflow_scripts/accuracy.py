"""Errors of every implementation on one case against a float64 reference, computed part by part.

The reference is computed once and never kept: each part of it is held against the same part of every dump.
Tensors of the same bits are scored once.
"""

import argparse
import json
import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from workflow_scripts import operators
from workflow_scripts.cell.host import DTYPES, load_rows
from workflow_scripts.cell.inputs import Inputs
from workflow_scripts.errors import AuditError, run_main
from workflow_scripts.operators import Operator
from workflow_scripts.rounding import round_to
from workflow_scripts.tensors import manifest
from workflow_scripts.tensors.atomic import write_text
from workflow_scripts.tensors.manifest import Stored

SCHEMA = "bitwise-reuse-audit/accuracy/1"
DIGITS = 6
"""Significant digits of an error; further ones depend on the order in which the reference was summed."""

Json = dict[str, Any]
Content = tuple[str, str, str]
"""Tensor id, dtype and digest."""


@dataclass
class Score:
    """Errors of one tensor, added up part by part.

    An element is *correctly rounded* when it is the number that the float64 reference becomes when rounded
    once to the tensor's dtype, to nearest with ties to even (IEEE 754-2019, 4.3.1; Muller et al., Handbook of
    Floating-Point Arithmetic, 2nd edition, 2.2; float64 stands in for the exact value). +0 and -0 are one
    number here; NaN is none.
    """

    numel: int = 0
    rounded: int = 0
    total: float = 0.0
    largest: float = 0.0
    largest_reference: float = 0.0

    def add(self, values: Tensor, reference: Tensor, rounded: Tensor) -> None:
        """Add a part: values in the tensor's dtype, the float64 reference, and that rounded to the dtype."""
        error = (values.double() - reference).abs_()
        self.numel += values.numel()
        self.rounded += int((values == rounded).sum())
        self.total += float(error.sum())
        self.largest = max(self.largest, float(error.max()))
        self.largest_reference = max(self.largest_reference, float(reference.abs().max()))

    def as_json(self) -> Json:
        """Errors over the reference's largest value (None: not finite), and the share correctly rounded."""
        return {
            "max_error": self._relative(self.largest),
            "mean_error": self._relative(self.total / self.numel),
            "correctly_rounded": self.rounded / self.numel,
        }

    def _relative(self, error: float) -> float | None:
        if error == 0.0 == self.total:
            return 0.0
        if not math.isfinite(self.total) or self.largest_reference == 0.0:
            return None
        return float(f"{error / self.largest_reference:.{DIGITS}g}")


def accuracy(operator: Operator, inputs: Inputs, manifests: list[Path], device: str, configfile: str) -> Json:
    """The document accuracy/<case>.json of the cells of one case.

    Raises:
        AuditError: a dump is damaged, or is not of the operator's shape.
    """
    cells = [(manifest.read(path, configfile), path) for path in manifests]
    contents = {
        (name, entry["dtype"], entry["sha256"]): manifest.stored(path, cell, name, configfile)
        for cell, path in cells
        if _obstacle(cell, inputs) is None
        for name, entry in cell["tensors"].items()
    }
    scores = score(operator, inputs.load(), contents, device) if contents else {}
    return {
        "schema": SCHEMA,
        "case": cells[0][0]["case"],
        "implementations": {
            cell["implementation"]: _entry(cell, _obstacle(cell, inputs), scores) for cell, _ in cells
        },
    }


def _entry(cell: Json, obstacle: str | None, scores: Mapping[Content, Score]) -> Json:
    if obstacle:
        return {"status": "not measured", "reason": obstacle, "tensors": {}}
    tensors = {
        name: scores[name, entry["dtype"], entry["sha256"]].as_json()
        for name, entry in cell["tensors"].items()
    }
    return {"status": "measured", "reason": None, "tensors": tensors}


def score(
    operator: Operator, inputs: Mapping[str, Tensor], tensors: Mapping[Content, Stored], device: str
) -> dict[Content, Score]:
    """Scores of dumped tensors."""
    with ThreadPoolExecutor() as pool:  # hashing lets go of the interpreter
        dumped = dict(zip(tensors, pool.map(_verified, tensors.values()), strict=True))
    scores = {content: Score() for content in tensors}
    for part in operator.reference({name: tensor.to(device) for name, tensor in inputs.items()}):
        rounded = {
            dtype: round_to(part.values, DTYPES[dtype]) for name, dtype, _ in tensors if name == part.tensor
        }
        for content, tensor in dumped.items():
            if content[0] == part.tensor:
                values = tensor[part.index].to(device)
                if values.shape != part.values.shape:
                    raise AuditError(f"{tensors[content].path}: has shape {list(tensor.shape)}")
                scores[content].add(values, part.values, rounded[content[1]])
    return scores


def _verified(stored: Stored) -> Tensor:
    stored.open()
    return load_rows(stored.path, None)


def _obstacle(cell: Json, inputs: Inputs) -> str | None:
    """Why a cell has no accuracy, or None."""
    if cell["status"] != "ok":
        return f"{cell['status']}: {cell['reason']}"
    if cell["inputs"] != inputs.entries:
        return "it was given other inputs than those of this audit"
    return None


def main() -> int:
    """Entry point of rule accuracy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operator", type=json.loads, required=True, help="JSON: name and widths")
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True, help="cuda: where there is one")
    parser.add_argument("--inputs", type=Path, required=True, help="inputs.json")
    parser.add_argument("--case", type=int, required=True)
    parser.add_argument("--manifests", type=Path, nargs="+", required=True, help="of the cells of the case")
    parser.add_argument("--configfile", default="CONFIG", help="named in the command that remakes a cell")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    operator = operators.create(**arguments.operator)
    device = arguments.device if torch.cuda.is_available() else "cpu"
    inputs = Inputs(operator, arguments.inputs, arguments.case, "cpu")
    found = accuracy(operator, inputs, arguments.manifests, device, arguments.configfile)
    write_text(arguments.output, json.dumps(found, indent=2, allow_nan=False) + "\n")
    return 0


if __name__ == "__main__":
    run_main(main)
