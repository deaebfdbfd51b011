"""Make the inputs of an audit once, for its largest case, and record their digests for every case."""

import argparse
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from torch import Tensor

from workflow_scripts import operators
from workflow_scripts.cell.host import buffer_of
from workflow_scripts.errors import run_main
from workflow_scripts.operators import Operator
from workflow_scripts.tensors import dump
from workflow_scripts.tensors.digest import sha256_of
from workflow_scripts.weights import load_weights


def digests(
    operator: Operator, tensors: Mapping[str, Tensor], cases: list[int]
) -> dict[str, dict[str, dict[str, Any]]]:
    """Dtype, shape and sha256 of each input in each case; a case's rows are the first rows of the largest."""
    document: dict[str, dict[str, dict[str, Any]]] = {}
    whole: dict[str, str] = {}
    for case in cases:
        entries = document[str(case)] = {}
        for name, (dtype, shape) in operator.shapes(case).items():
            if name in operator.row_inputs:
                sha256 = sha256_of(buffer_of(tensors[name][:case]))
            else:
                sha256 = whole.get(name) or sha256_of(buffer_of(tensors[name]))
                whole[name] = sha256
            entries[name] = {"dtype": dtype, "shape": list(shape), "sha256": sha256}
    return document


def main() -> int:
    """Entry point of rule inputs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", required=True, help="JSON: operator, cases, seeds, weights")
    parser.add_argument("--output-dir", type=Path, required=True)
    arguments = parser.parse_args()
    spec = json.loads(arguments.spec)
    operator = operators.create(**spec["operator"])
    rows = max(spec["cases"])
    weights = load_weights(spec["weights"], operator) if spec["weights"] else None
    tensors = operator.make_inputs(rows, spec["seeds"], weights)
    folder: Path = arguments.output_dir
    folder.mkdir(parents=True, exist_ok=True)

    def write(name: str) -> None:
        dtype, shape = operator.shapes(rows)[name]
        dump.write(folder / f"{name}.safetensors", name, buffer_of(tensors[name]), dtype, shape)

    with ThreadPoolExecutor() as pool:  # writing waits for the disk, hashing lets go of the interpreter
        written = pool.map(write, operator.shapes(rows))
        document = {"cases": digests(operator, tensors, spec["cases"])}
        list(written)
    (folder / "inputs.json").write_text(json.dumps(document, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    run_main(main)
