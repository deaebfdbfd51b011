"""report.html: one page that needs nothing else, made from the full report alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2

from workflow_scripts.report import latency, words
from workflow_scripts.report.answer import answer, question
from workflow_scripts.report.diagnosis import facts, headline
from workflow_scripts.report.pairs import inert
from workflow_scripts.report.picture import bars, bit_rows, density, shade
from workflow_scripts.report.ran import ran, rows_reason, shared_deviations
from workflow_scripts.report.tables import tensors
from workflow_scripts.report.trust import machine, trust
from workflow_scripts.report.verdicts import EXTEND, NEW, REUSE, UNKNOWN
from workflow_scripts.report.words import Json

TEMPLATES = Path(__file__).parent / "templates"
# A verdict's sign: told by its form, not by its colour alone.
SIGNS = {REUSE: "\u2713", EXTEND: "+", NEW: "\u2717", UNKNOWN: "?"}


def page(report: Json, measurements: Sequence[Json] = ()) -> str:
    """The page of a full report, with a section on latency where there are measurements, as HTML."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "tensor": words.tensor_name,
        "listing": words.listing,
        "rows": words.rows,
        "count": words.count,
        "percent": words.percent,
        "plain": plain,
    }
    return environment.get_template("report.html.j2").render(view(report, measurements))


def plain(value: Any) -> str:
    """A value of the report as a reader expects it: a list as words, `none` for null."""
    if value is None:
        return "none"
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def view(report: Json, measurements: Sequence[Json] = ()) -> Json:
    """What the template shows, computed from the report and measurements of latency."""
    matrices = [_matrix(report, baseline) for baseline in report["baselines"]]
    shown = [cell for matrix in matrices for row in matrix["rows"] for cell in row["cells"] if cell["id"]]
    order = list(SIGNS)
    return {
        "report": report,
        "question": question(report),
        "answer": answer(report),
        "trust": trust(report),
        "machine": machine(report),
        "signs": SIGNS,
        "ranked": sorted(
            report["implementations"], key=lambda entry: order.index(entry["verdict"]["verdict"])
        ),
        "tensors": tensors(report),
        "matrices": matrices,
        "differences": shown,
        "ran": {entry["label"]: ran(report, entry) for entry in report["implementations"]},
        "rows_reasons": {entry["label"]: rows_reason(entry) for entry in report["implementations"]},
        "shared_deviations": shared_deviations(report),
        "partitions": {tensor: _partitions(report, tensor) for tensor in tensors(report)},
        "scored": any(
            cell["accuracy"] and cell["accuracy"]["status"] == "measured"
            for entry in report["implementations"]
            for cell in entry["cells"].values()
        ),
        "latency": measurements,
        "slowest": latency.slowest(measurements),
    }


def _matrix(report: Json, baseline: str) -> Json:
    """Implementations against one baseline: a row each, with a cell for each tensor and case."""
    found = {(each["a"], each["case"]): each for each in report["comparisons"] if each["b"] == baseline}
    rows = [
        {
            "label": entry["label"],
            "cells": [
                _cell(entry, found.get((entry["label"], case)), case, tensor)
                for tensor in tensors(report)
                for case in report["cases"]
            ],
        }
        for entry in report["implementations"]
        if entry["label"] != baseline
    ]
    return {"baseline": baseline, "rows": rows}


def _cell(entry: Json, comparison: Json | None, case: int, tensor: str) -> Json:
    """One cell of a matrix; `id` names its panel, where it has one."""
    cell: Json = {
        "kind": "absent",
        "text": "\u2013",
        "shade": None,
        "id": None,
        "case": case,
        "tensor": tensor,
    }
    if comparison is None or tensor not in comparison["tensors"]:
        return cell | {"why": comparison["reason"] if comparison else "no comparison"}
    found = comparison["tensors"][tensor]
    if found["equal"]:
        vacuous = inert(entry, case, tensor)
        return cell | {
            "kind": "vacuous" if vacuous else "equal",
            "text": "=*" if vacuous else "=",
            "shade": 0,
        }
    cell |= {
        "kind": "differs",
        "id": f"{entry['key']}-{comparison['b']}-{case}-{tensor}".replace("[", ".").replace("]", ""),
        "a": comparison["a"],
        "b": comparison["b"],
        "found": found,
        "headline": headline(found),
        "facts": facts(found),
    }
    if found["reason"]:
        return cell | {"text": found["reason"], "shade": 5, "pictures": None}
    dtype = entry["cells"][str(case)]["tensors"][tensor]["dtype"]
    return cell | {
        "text": words.share(found["differ"], found["numel"]).removesuffix(" %"),
        "shade": shade(found["differ"], found["numel"]),
        "pictures": _pictures(found["detail"], dtype),
    }


def _pictures(detail: Json, dtype: str) -> Json:
    grid = detail["density"]
    return {
        "density": density(grid),
        "height": len(grid),
        "width": max(map(len, grid), default=0),
        "ulps": bars(detail["ulps"] or {}),
        "bits": bit_rows(detail["first"], dtype),
    }


def _partitions(report: Json, tensor: str) -> list[Json]:
    """Equality classes of a tensor; cases with the same classes together."""
    found: list[Json] = []
    for case in map(str, report["cases"]):
        members = [group["members"] for group in report["classes"][case].get(tensor, [])]
        if same := [each for each in found if each["classes"] == members]:
            same[0]["cases"].append(case)
        elif members:
            found.append({"cases": [case], "classes": members})
    return found
