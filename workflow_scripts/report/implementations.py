"""One entry of the report for each implementation: what its cells did, nothing judged yet."""

from workflow_scripts.modes.label import label
from workflow_scripts.report.evidence import Evidence
from workflow_scripts.report.machine import difference
from workflow_scripts.report.words import Json

# What the report keeps of a manifest; the environment is merged, the inputs are listed once.
KEPT = (
    "status",
    "reason",
    "callable",
    "variables",
    "inputs_changed",
    "tensors",
    "repeats",
    "witness",
    "kernel",
    "deviations",
)
NO_MANIFEST: Json = {
    "status": "missing",
    "reason": "no manifest of this cell was handed to the report",
    "callable": None,
    "variables": None,
    "inputs_changed": [],
    "tensors": {},
    "repeats": None,
    "witness": None,
    "kernel": None,
    "deviations": [],
}


def implementations(evidence: Evidence) -> list[Json]:
    """Entries sorted by label, each with one cell for every case of the audit."""
    entries = sorted(evidence.audit["implementations"], key=lambda entry: str(entry["label"]))
    return [_implementation(evidence, entry) for entry in entries]


def is_required(audit: Json, label_: str) -> bool:
    """Whether the gate demands that an implementation ran."""
    return audit["required"] == "all" or label_ in audit["required"]


def _implementation(evidence: Evidence, entry: Json) -> Json:
    name = entry["label"]
    return {
        **{key: entry[key] for key in ("label", "key", "candidate", "mode")},
        "source": next(
            (cell["source"] for (of, _), cell in sorted(evidence.cells.items()) if of == name), name
        ),
        "baseline": name in evidence.audit["baselines"],
        "required": is_required(evidence.audit, name),
        "cells": {str(case): _cell(evidence, entry, case) for case in evidence.cases},
        "rows": _rows(evidence.rows.get(name)),
    }


def _cell(evidence: Evidence, entry: Json, case: int) -> Json:
    cell = evidence.cells.get((entry["label"], case), NO_MANIFEST)
    kept = {key: cell[key] for key in KEPT}
    kept["tensors"] = {
        tensor: {key: about[key] for key in ("dtype", "shape", "strides", "sha256")}
        for tensor, about in cell["tensors"].items()
    }
    return {
        **kept,
        "labels": _labels(evidence, entry, case) if cell["status"] == "ok" else None,
        "accuracy": evidence.accuracy.get((entry["label"], case)),
    }


def _labels(evidence: Evidence, entry: Json, case: int) -> Json:
    """What the mode changed, held against the same candidate's plain cell and other modes on this machine."""
    own = evidence.cells[entry["label"], case]
    here = {
        other["label"]: cell
        for other in evidence.audit["implementations"]
        if other["candidate"] == entry["candidate"]
        and (cell := evidence.ok(other["label"], case))
        and not difference(cell["environment"], own["environment"])
    }
    plain = evidence.plain(entry["candidate"], case)
    if plain is not None and plain["implementation"] not in here:
        plain = None
    others = {name: cell["witness"] for name, cell in here.items() if cell is not own and cell is not plain}
    return label(own["witness"], plain["witness"] if plain else None, others)


def _rows(document: Json | None) -> Json:
    if document is None:
        return {
            "status": "not comparable",
            "reason": "no comparison of its rows was handed to the report",
            "largest": None,
            "cases": {},
        }
    return {key: document[key] for key in ("status", "reason", "largest", "cases")}
