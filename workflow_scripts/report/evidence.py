"""What the jobs of an audit left behind, read and checked: the report is made from nothing else."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workflow_scripts.errors import AuditError
from workflow_scripts.report.words import Json
from workflow_scripts.tensors import manifest

SCHEMA = "bitwise-reuse-audit/report/1"


@dataclass
class Evidence:
    """Documents of one audit, by what they are about.

    Attributes:
        audit: the validated config with `implementations`, `control`, `mode_variables` and `configfile`.
        cells: manifests by (label, case).
        compares: compare documents by (label, baseline, case).
        rows: comparisons of rows across cases, by label.
        inert: manifests of the control whose switch does nothing.
        flipped: documents of the control that flips one bit.
        accuracy: errors against float64 by (label, case).
    """

    audit: Json
    cells: dict[tuple[str, int], Json] = field(default_factory=dict)
    compares: dict[tuple[str, str, int], Json] = field(default_factory=dict)
    rows: dict[str, Json] = field(default_factory=dict)
    inert: list[Json] = field(default_factory=list)
    flipped: list[Json] = field(default_factory=list)
    accuracy: dict[tuple[str, int], Json] = field(default_factory=dict)

    @property
    def labels(self) -> list[str]:
        """Labels of the audit's implementations, sorted."""
        return sorted(entry["label"] for entry in self.audit["implementations"])

    @property
    def cases(self) -> list[int]:
        """Cases of the audit, smallest first."""
        return sorted(self.audit["cases"])

    def ok(self, label: str, case: int) -> Json | None:
        """The manifest of a cell that ran, or None."""
        cell = self.cells.get((label, case))
        return cell if cell is not None and cell["status"] == "ok" else None

    def plain(self, candidate: str, case: int) -> Json | None:
        """The cell that ran of a candidate in a process that no mode has set, or None."""
        for entry in self.audit["implementations"]:
            if entry["candidate"] == candidate and is_plain(entry):
                return self.ok(entry["label"], case)
        return None


def is_plain(implementation: Json) -> bool:
    """Whether an implementation runs in a process that no mode has set."""
    return implementation["mode"] in (None, "plain")


def read_json(path: Path) -> Json:
    """A JSON object from a file.

    Raises:
        AuditError: the file is missing, is not JSON, or holds something other than an object.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise AuditError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise AuditError(f"{path}: is not a JSON document: {error}") from error
    if not isinstance(document, dict):
        raise AuditError(f"{path}: holds {type(document).__name__}, not a JSON object")
    return document


def read_full_report(path: Path) -> Json:
    """A report.full.json of this version.

    Raises:
        AuditError: it is unreadable, or another document.
    """
    report = read_json(path)
    if report.get("schema") != SCHEMA:
        raise AuditError(f"{path}: is not a full report of this version; give it a report.full.json")
    return report


def read_evidence(
    audit: Path,
    *,
    manifests: Iterable[Path] = (),
    compares: Iterable[Path] = (),
    rows: Iterable[Path] = (),
    controls: Iterable[Path] = (),
    accuracy: Iterable[Path] = (),
) -> Evidence:
    """Everything that the report is made from.

    Raises:
        AuditError: a document is unreadable, given twice, or about an implementation or case that the audit
            does not have.
    """
    evidence = Evidence(read_json(audit))
    for path in manifests:
        document = manifest.read(path, evidence.audit["configfile"])
        if document["implementation"] == evidence.audit["control"]["label"]:
            evidence.inert.append(document)
            continue
        _add(evidence.cells, (document["implementation"], document["case"]), document, path)
    for path in compares:
        document = read_json(path)
        _add(evidence.compares, (document["a"], document["b"], document["case"]), document, path)
    for path in rows:
        document = read_json(path)
        _add(evidence.rows, document["implementation"], document, path)
    for path in controls:
        document = read_json(path)
        if document.get("schema") == manifest.SCHEMA:
            evidence.inert.append(manifest.read(path, evidence.audit["configfile"]))
        else:
            evidence.flipped.append(document)
    for path in accuracy:
        document = read_json(path)
        for label, entry in document["implementations"].items():
            _add(evidence.accuracy, (label, document["case"]), entry, path)
    _check_known(evidence)
    return evidence


def _add(table: dict[Any, Json], key: object, document: Json, path: Path) -> None:
    if key in table:
        raise AuditError(f"{path}: a second document about {key}; give each file once")
    table[key] = document


def _check_known(evidence: Evidence) -> None:
    """Refuse what is left over from another config, rather than report it under this one."""
    labels, cases = set(evidence.labels), set(evidence.cases)
    for label, case in [*evidence.cells, *evidence.accuracy]:
        if label not in labels or case not in cases:
            raise AuditError(f"the cell of {label} at {case} rows is not part of this audit's config")
    for a, b, case in evidence.compares:
        if not {a, b} <= labels or case not in cases:
            raise AuditError(
                f"the comparison of {a} with {b} at {case} rows is not part of this audit's config"
            )
    if unknown := evidence.rows.keys() - labels:
        raise AuditError(f"rows of {sorted(unknown)} are not part of this audit's config")
