"""Compare the rows of each smaller case with the same rows of the largest case of one implementation."""

import argparse
import json
from pathlib import Path
from typing import Any

from workflow_scripts.compare import not_ok
from workflow_scripts.errors import AuditError, run_main
from workflow_scripts.report.machine import difference
from workflow_scripts.tensors import bits, manifest
from workflow_scripts.tensors.atomic import write_text
from workflow_scripts.tensors.dump import Dump

SCHEMA = "bitwise-reuse-audit/rows/1"
Json = dict[str, Any]


def compare_rows(small: Dump, large: Dump) -> Json:
    """How many of the first rows of `large` differ from those of `small`; dtypes and widths must agree.

    Returns {"rows", "rows_differ", "differ", "first_rows"}: `differ` counts elements, `first_rows` lists the
    first rows that differ, eight at the most.
    """
    rows = small.shape[0]
    found = bits.compare(small, large.first_rows(rows))
    if found.reason:
        raise AuditError(f"rows can't be compared: the {found.reason} of the two cases does not agree")
    touched = found.detail["rows"] if found.detail else {"touched": 0, "first": []}
    return {
        "rows": rows,
        "rows_differ": touched["touched"],
        "differ": found.differ,
        "first_rows": touched["first"],
    }


def obstacle(small: Json, large: Json, names: list[str]) -> str | None:
    """Why the rows of a smaller cell can't be compared with those of the largest, or None."""
    if faults := not_ok(small, large):
        return "; ".join(faults)
    if faults := difference(small["environment"], large["environment"]):
        return f"case {small['case']} ran on another machine or stack: {'; '.join(faults)}"
    for name, entry in small["inputs"].items():
        other = large["inputs"].get(name)
        if other is None or (entry["shape"] == other["shape"] and entry != other):
            return f"case {small['case']} was given another {name}"
    for name in names:
        a, b = small["tensors"].get(name), large["tensors"].get(name)
        if not a or not b:
            return f"{name} is missing at case {(large if a else small)['case']}"
        if (a["dtype"], a["shape"][1:]) != (b["dtype"], b["shape"][1:]) or a["shape"][0] > b["shape"][0]:
            kinds = f"{a['dtype']} {a['shape']} at case {small['case']}", f"{b['dtype']} {b['shape']}"
            return f"{name} is {kinds[0]} and {kinds[1]} at the largest"
    return None


def rows_across_cases(paths: list[Path], names: list[str], configfile: str) -> Json:
    """The document rows/<key>.json of one implementation, given its manifests.

    `status` is "compared" only when every smaller case was; the cases that could be are there all the same.
    """
    cells = [(manifest.read(path, configfile), path) for path in paths]
    cells.sort(key=lambda cell: int(cell[0]["case"]))
    labels = {cell["implementation"] for cell, _ in cells}
    if len(labels) != 1:
        raise AuditError(f"these manifests are of {', '.join(sorted(labels))}; give one implementation's")
    *smaller, (largest, large_path) = cells
    reasons = [] if smaller else ["there is only one case"]
    open_large: dict[str, Dump] = {}
    cases = {}
    for cell, path in smaller:
        if reason := obstacle(cell, largest, names):
            reasons.append(reason)
            continue
        for name in names:
            if name not in open_large:
                open_large[name] = manifest.stored(large_path, largest, name, configfile).open()
        cases[str(cell["case"])] = {
            name: compare_rows(manifest.stored(path, cell, name, configfile).open(), open_large[name])
            for name in names
        }
    return {
        "schema": SCHEMA,
        "implementation": labels.pop(),
        "largest": largest["case"],
        "status": "not comparable" if reasons else "compared",
        "reason": "; ".join(dict.fromkeys(reasons)) or None,
        "cases": cases,
    }


def main() -> int:
    """Compare rows; 2 and a message when a dump or manifest is damaged."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--manifests", type=Path, nargs="+", required=True, help="of one implementation")
    parser.add_argument(
        "--row-tensors", nargs="+", required=True, help="tensors whose first axis is the rows"
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--configfile", default="CONFIG", help="named in the command that remakes a cell")
    arguments = parser.parse_args()
    result = rows_across_cases(arguments.manifests, arguments.row_tensors, arguments.configfile)
    write_text(arguments.output, json.dumps(result, indent=2, allow_nan=False) + "\n")
    return 0


if __name__ == "__main__":
    run_main(main)
