"""report.full.json: everything that an audit found, put together by pure functions from its evidence."""

from workflow_scripts.errors import AuditError
from workflow_scripts.report import gate, pairs, verdicts
from workflow_scripts.report.classes import equality_classes, same_bits
from workflow_scripts.report.controls import controls
from workflow_scripts.report.environment import merged
from workflow_scripts.report.evidence import SCHEMA, Evidence
from workflow_scripts.report.implementations import implementations
from workflow_scripts.report.words import Json

# Keys of audit.json that are not the user's config, or that say where and how fast jobs run: no bit depends
# on them, so a report must not either.
NOT_CONFIG = (
    "implementations",
    "control",
    "mode_variables",
    "configfile",
    "results",
    "cores_per_cell",
    "gpus",
    "cells_per_gpu",
    "keep_dumps",
    "latency",
)


def full_report(evidence: Evidence) -> Json:
    """The full report, as config/schemas/report.full.schema.json describes it.

    Raises:
        AuditError: documents contradict one another, hence are of different runs.
    """
    audit = evidence.audit
    _check_compares(evidence)
    entries = implementations(evidence)
    found = controls(evidence)
    trusted = all(control["status"] == "passed" for control in found.values())
    report: Json = {
        "schema": SCHEMA,
        "kind": audit["kind"],
        "rfc": audit["rfc"],
        "op": audit["operator"]["name"],
        **_repository(evidence),
        "audit": audit["audit"],
        "configfile": audit["configfile"],
        "config": {key: value for key, value in audit.items() if key not in NOT_CONFIG},
        "environment": merged(evidence),
        "cases": evidence.cases,
        "baselines": audit["baselines"],
        "inputs": _inputs(evidence),
        "controls": found,
        "implementations": entries,
        "comparisons": _comparisons(evidence),
        "classes": equality_classes(evidence),
        "pairs": pairs.pairs(evidence, entries, trusted=trusted),
    }
    report["interchangeable"] = pairs.interchangeable(report["pairs"])
    for entry in entries:
        entry["verdict"] = verdicts.verdict(entry, report)
    report["definitions"] = {"verdicts": verdicts.DEFINITIONS, "pairs": pairs.DEFINITIONS}
    reasons = gate.reasons(report)
    report["gate"] = {"passed": not reasons, "reasons": reasons}
    return report


def _repository(evidence: Evidence) -> Json:
    """Where the kernel was built from, as the first cell that says so has it."""
    said = [cell["kernel"]["repository"] for _, cell in sorted(evidence.cells.items()) if cell["kernel"]]
    repository: Json = said[0] if said else {"commit": None, "tracked_tree_dirty": None}
    return {"rl_kernel_commit": repository["commit"], "tracked_tree_dirty": repository["tracked_tree_dirty"]}


def _comparisons(evidence: Evidence) -> list[Json]:
    """Compare documents, sorted; the direction is that of the audit: implementation, then baseline."""
    keys = ("a", "b", "case", "status", "reason", "tensors")
    return [{key: document[key] for key in keys} for _, document in sorted(evidence.compares.items())]


def _inputs(evidence: Evidence) -> Json:
    """Inputs by case, from any cell that was given them."""
    return {
        str(case): next(
            (
                cell["inputs"]
                for (_, of), cell in sorted(evidence.cells.items())
                if of == case and cell["inputs"]
            ),
            {},
        )
        for case in evidence.cases
    }


def _check_compares(evidence: Evidence) -> None:
    """A comparison must agree with the digests of the two cells; it is older than one of them otherwise."""
    for (a, b, case), document in sorted(evidence.compares.items()):
        one, two = evidence.ok(a, case), evidence.ok(b, case)
        for tensor, found in document["tensors"].items():
            sides = [cell["tensors"].get(tensor) if cell else None for cell in (one, two)]
            if sides[0] is None or sides[1] is None or found["equal"] != same_bits(sides[0], sides[1]):
                raise AuditError(
                    f"the comparison of {a} with {b} at {case} rows does not fit the digests of {tensor} in "
                    "their manifests; delete the audit's compare folder and run the audit again"
                )
