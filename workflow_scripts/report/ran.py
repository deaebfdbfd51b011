"""What each implementation ran, told once for all its cases where they agree."""

from workflow_scripts.modes.label import DIRECTIONS
from workflow_scripts.report import words
from workflow_scripts.report.gate import unsteady_tensors
from workflow_scripts.report.words import Json


def ran(report: Json, entry: Json) -> Json | None:
    """What an implementation's cells have in common, and the cases of what they have not; None: none ran."""
    cells = _ok(entry)
    if not cells:
        return None
    return {
        "callables": list(dict.fromkeys(cell["callable"] for cell in cells.values())),
        "runs": min(cell["repeats"]["runs"] for cell in cells.values()),
        "unsteady": words.places(unsteady_tensors(cells), report["cases"]),
        "witness": next(iter(cells.values()))["witness"],
        "labels": [found for way in DIRECTIONS for found in _labels(cells, way)],
    }


def rows_reason(entry: Json) -> str:
    """Why the rows of an implementation were not compared: that it did not run comes before all else."""
    absent = [case for case, cell in entry["cells"].items() if cell["status"] != "ok"]
    if not absent:
        return str(entry["rows"]["reason"])
    return "it did not run" if not _ok(entry) else f"it did not run at {words.rows(absent)}"


def shared_deviations(report: Json) -> set[str]:
    """Deviations of all that ran: the trust line tells of them, so no verdict need repeat them."""
    of_each = [
        {sentence for cell in cells.values() for sentence in cell["deviations"]}
        for entry in report["implementations"]
        if (cells := _ok(entry))
    ]
    return set.intersection(*of_each) if len(of_each) > 1 else set()


def _ok(entry: Json) -> Json:
    return {case: cell for case, cell in entry["cells"].items() if cell["status"] == "ok"}


def _labels(cells: Json, way: str) -> list[Json]:
    """What a mode changed in one direction, each label once.

    `cases` is None where the label holds in all of them, `reason` where it is another from case to case.
    """
    found: dict[str, dict[str, str]] = {}
    for case, cell in cells.items():
        about = cell["labels"][way]
        found.setdefault(about["label"], {})[case] = about["reason"]
    return [
        {
            "way": way,
            "label": label,
            "cases": list(reasons) if len(found) > 1 else None,
            "reason": next(iter(reasons.values())) if len(set(reasons.values())) == 1 else None,
        }
        for label, reasons in found.items()
    ]
