"""Compare two cells of one case, tensor by tensor, bit by bit."""

import argparse
import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from workflow_scripts.errors import AuditError, run_main
from workflow_scripts.report.machine import difference
from workflow_scripts.tensors import bits, manifest
from workflow_scripts.tensors.atomic import write_text
from workflow_scripts.tensors.manifest import Stored

SCHEMA = "bitwise-reuse-audit/compare/1"
Json = dict[str, Any]


def compare_tensors(a: Stored, b: Stored, threads: int = 2) -> Json:
    """Compare two stored tensors; the fields of `bits.Difference`.

    Another dtype or shape is a difference, and equal dtype, shape and digest are equal bits, without opening
    a dump. Else both dumps are verified against their digests before they are compared: CorruptDumpError when
    one is damaged.
    """
    numel = math.prod(a.entry["shape"])
    for reason in ("dtype", "shape"):
        if a.entry[reason] != b.entry[reason]:
            unlike = bits.Difference(equal=False, differ=None, numel=numel, max_abs=None, reason=reason)
            return unlike.as_json()
    if a.entry["sha256"] == b.entry["sha256"]:
        return bits.Difference(equal=True, differ=0, numel=numel, max_abs=0.0).as_json()
    with ThreadPoolExecutor(2) as pool:
        dumps = list(pool.map(Stored.open, (a, b)))
    return bits.compare(*dumps, threads=threads).as_json()


def obstacle(a: Json, b: Json, expected: list[str]) -> tuple[str, str] | None:
    """Status and reason where the manifests of two cells of one case show that they can't be compared."""
    if faults := not_ok(a, b):
        return "not comparable", "; ".join(faults)
    if faults := difference(a["environment"], b["environment"]):
        return "incomparable", "other machine or stack: " + "; ".join(faults)
    if faults := other_inputs(a, b):
        return "not comparable", "the cells were given other inputs: " + ", ".join(faults)
    if faults := _missing(a, b, expected):
        return "not comparable", "; ".join(faults)
    return None


def not_ok(*cells: Json) -> list[str]:
    """Why cells have no tensors, one phrase for each cell that is not ok."""
    return [
        f"{cell['implementation']} at case {cell['case']} is {cell['status']}: {cell['reason']}"
        for cell in cells
        if cell["status"] != "ok"
    ]


def other_inputs(a: Json, b: Json) -> list[str]:
    """Names of the inputs that are not the same tensor in both cells."""
    names = sorted({*a["inputs"], *b["inputs"]})
    return [name for name in names if a["inputs"].get(name) != b["inputs"].get(name)]


def _missing(a: Json, b: Json, expected: list[str]) -> list[str]:
    """Tensors that a cell lacks, of those expected and those that the other has: None is equal to nothing."""
    names = sorted({*expected, *a["tensors"], *b["tensors"]})
    if not names:
        return ["neither cell has a tensor"]
    return [
        f"{cell['implementation']} has no {name}"
        for name in names
        for cell in (a, b)
        if not cell["tensors"].get(name)
    ]


def compare_cells(
    a: Path, b: Path, configfile: str, threads: int = 2, expected: list[str] | None = None
) -> Json:
    """The comparison of the cells whose manifests lie at `a` and `b`: as a JSON object.

    A damaged manifest or dump raises an AuditError that says how to remake the cell; it is never compared.
    """
    cell_a, cell_b = manifest.read(a, configfile), manifest.read(b, configfile)
    if (cell_a["operator"], cell_a["case"]) != (cell_b["operator"], cell_b["case"]):
        raise AuditError(f"{a} and {b} are cells of different operators or cases; compare cells of one case")
    labels = {"a": cell_a["implementation"], "b": cell_b["implementation"]}
    head = {"schema": SCHEMA, **labels, "case": cell_a["case"]}
    if found := obstacle(cell_a, cell_b, expected or []):
        return head | {"status": found[0], "reason": found[1], "tensors": {}}
    tensors = {}
    for name in cell_a["tensors"]:
        pair = manifest.stored(a, cell_a, name, configfile), manifest.stored(b, cell_b, name, configfile)
        tensors[name] = compare_tensors(*pair, threads=threads)
    return head | {"status": "compared", "reason": None, "tensors": tensors}


def main() -> int:
    """Compare two cells; 2 and a message when a dump or manifest is damaged."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--a", type=Path, required=True, help="manifest.json of the first cell")
    parser.add_argument("--b", type=Path, required=True, help="manifest.json of the second")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--configfile", required=True, help="named in the command that remakes a cell")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tensors", nargs="*", default=[], help="tensors that both cells must have")
    arguments = parser.parse_args()
    result = compare_cells(
        arguments.a, arguments.b, arguments.configfile, arguments.threads, arguments.tensors
    )
    write_text(arguments.output, json.dumps(result, indent=2, allow_nan=False) + "\n")
    return 0


if __name__ == "__main__":
    run_main(main)
