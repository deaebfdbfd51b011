"""The two planted controls: an audit that cannot find a flipped bit proves nothing by finding none."""

from workflow_scripts.modes.label import label
from workflow_scripts.report.evidence import Evidence
from workflow_scripts.report.words import Json

FLIPPED = "one flipped bit in a copy of a baseline's tensor is found at its place"
INERT = "a mode whose switch does nothing is labelled inert"


def controls(evidence: Evidence) -> Json:
    """Both controls: {"flipped_bit", "inert_mode"}, each {"claim", "status", "reason"}.

    `status` is passed, failed or not run. A control of which no document was handed over did not run.
    """
    return {
        "flipped_bit": {"claim": FLIPPED, **_flipped(evidence)},
        "inert_mode": {"claim": INERT, **_inert(evidence)},
    }


def _flipped(evidence: Evidence) -> Json:
    if not evidence.flipped:
        return {"status": "not run", "reason": "no document of this control was handed to the report"}
    worst = max(
        evidence.flipped, key=lambda document: ("passed", "not run", "failed").index(document["status"])
    )
    return {"status": worst["status"], "reason": worst["reason"]}


def _inert(evidence: Evidence) -> Json:
    if not evidence.inert:
        return {"status": "not run", "reason": "no manifest of this control was handed to the report"}
    return _worst([_inert_cell(evidence, cell) for cell in evidence.inert])


def _inert_cell(evidence: Evidence, cell: Json) -> Json:
    """The control's own cell, judged by the labels that every mode gets."""
    plain = evidence.plain(cell["candidate"], cell["case"])
    if cell["status"] != "ok":
        return {"status": "not run", "reason": f"its cell is {cell['status']}: {cell['reason']}"}
    if plain is None:
        return {"status": "not run", "reason": f"no plain cell of {cell['candidate']} ran at its case"}
    labels = label(cell["witness"], plain["witness"])
    wrong = [way for way in labels if labels[way]["label"] != "inert"]
    if wrong:
        reason = f"labelled effective, {wrong[0]}: {labels[wrong[0]]['reason']}"
        return {"status": "failed", "reason": reason}
    return {"status": "passed", "reason": None}


def _worst(results: list[Json]) -> Json:
    return max(results, key=lambda result: ("passed", "not run", "failed").index(result["status"]))
