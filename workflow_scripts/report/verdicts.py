"""The verdict on each implementation: reuse it, extend it, write a new one, or it can't be said.

These are the definitions, in the order in which they are tried; nothing else in the project repeats them.

- **can't say**: a case did not run (unavailable, error, missing); or a control did not pass; or it is no
  baseline and was compared with none, for instance because it ran on another machine; or its rows were not
  compared across cases; or no plain cell of the same machine can be held against its witness; or its mode
  changed nothing in any case, so that what was measured is the plain process.
- **reuse**: everything asked of an implementation holds: the rows of a smaller case have the bits of the same
  rows in the largest case; every run gave the same bits; no input was changed; and, where accuracy was
  measured, no error exceeds `ACCURATE`.
- **extend**: something of that is missing, but its bits are those of another baseline in every case and
  tensor, and not vacuously (pairs.py).
- **new**: something is missing, and its bits are those of no other baseline.
"""

from workflow_scripts.report.pairs import EQUAL, inert, relation
from workflow_scripts.report.words import Json, listing, places, rows

REUSE, EXTEND, NEW, UNKNOWN = "reuse", "extend", "new", "can't say"
DEFINITIONS = {
    REUSE: "Row-invariant, repeatable, inputs untouched, accurate where that was measured: "
    "it may be used as it is.",
    EXTEND: "Its bits are a baseline's in every tensor and case, but something is missing: "
    "it may be built upon.",
    NEW: "Something is missing and its bits are no other baseline's: a new implementation is needed.",
    UNKNOWN: "It did not run everywhere, cannot be compared, its mode did nothing, "
    "or a control did not pass.",
}

# Largest error against float64, over the largest value: one unit in the last place of bfloat16, the type in
# which the operator works, at that value.
ACCURATE = 2.0**-7


def verdict(entry: Json, report: Json) -> Json:
    """The verdict on one implementation.

    Args:
        entry: its entry in the report.
        report: the report so far: `cases`, `controls`, `comparisons`, `pairs`, `baselines`.

    Returns:
        {"verdict", "reasons", "notes"}: sentences without a full stop.
    """
    cases = report["cases"]
    others = [label for label in report["baselines"] if label != entry["label"]]
    agrees = [
        label
        for label in others
        if any(label in (pair["a"], pair["b"]) for pair in report["pairs"])
        and relation(report["pairs"], entry["label"], label)["relation"] == EQUAL
    ]
    equal = f"its bits are those of {listing(agrees)} in every tensor and case" if agrees else None
    notes = _deviations(entry)
    if reasons := _unknown(entry, report):
        return {"verdict": UNKNOWN, "reasons": reasons, "notes": notes}
    notes = _unchanged(entry, cases) + notes
    missing = _missing(entry, cases)
    if not missing:
        return {"verdict": REUSE, "reasons": ([equal] if equal else []) + _holds(entry), "notes": notes}
    if equal:
        return {"verdict": EXTEND, "reasons": [equal, *missing], "notes": notes}
    return {"verdict": NEW, "reasons": missing, "notes": notes}


def _unknown(entry: Json, report: Json) -> list[str]:
    """Why nothing can be said of an implementation; empty when something can."""
    failed = [
        f"a control did not pass: {control['claim']}"
        for control in report["controls"].values()
        if control["status"] != "passed"
    ]
    absent = _absent(entry)
    if absent or failed:
        return absent or failed
    reasons = [] if entry["baseline"] else _uncompared(entry, report["comparisons"])
    if entry["rows"]["status"] != "compared":
        reasons.append(f"its rows were not compared across cases: {entry['rows']['reason']}")
    reasons += _unwitnessed(entry)
    return list(dict.fromkeys(reasons))


def _uncompared(entry: Json, comparisons: list[Json]) -> list[str]:
    """Why an implementation was held against no baseline; empty when it was against one."""
    found = [each for each in comparisons if each["a"] == entry["label"]]
    if any(each["status"] == "compared" for each in found):
        return []
    apart = [f"{each['reason']} (with {each['b']})" for each in found if each["status"] == "incomparable"]
    return apart or ["compared with no baseline"]


def _absent(entry: Json) -> list[str]:
    """Cells that are not ok, cases with the same reason in one sentence."""
    by_reason: dict[str, list[str]] = {}
    for case, cell in entry["cells"].items():
        if cell["status"] != "ok":
            by_reason.setdefault(f"{cell['status']}: {cell['reason']}", []).append(case)
    if len(by_reason) == 1 and len(*by_reason.values()) == len(entry["cells"]):
        return list(by_reason)
    return [f"{reason} (at {rows(cases)})" for reason, cases in by_reason.items()]


def _unwitnessed(entry: Json) -> list[str]:
    labels = [each["label"] for cell in entry["cells"].values() for each in cell["labels"].values()]
    if "unknown" in labels:
        return [f"no plain cell of {entry['candidate']} shows what its mode changed"]
    if set(labels) == {"inert"}:
        return ["its mode changed nothing: what was measured is the plain process"]
    return []


def _missing(entry: Json, cases: list[int]) -> list[str]:
    """What an implementation lacks, in words."""
    cells = entry["cells"]
    varying = varying_rows(entry)
    unsteady = {case: cell["repeats"]["differ"] for case, cell in cells.items()}
    changed = sorted({name for cell in cells.values() for name in cell["inputs_changed"]})
    coarse = {
        case: [tensor for tensor, error in errors(cell).items() if error > ACCURATE]
        for case, cell in cells.items()
    }
    return [
        sentence
        for found, sentence in (
            (any(varying.values()), f"not row-invariant: {places(varying, cases)}"),
            (any(unsteady.values()), f"not repeatable: {places(unsteady, cases)}"),
            (changed, f"changes its inputs: {listing(changed)}"),
            (any(coarse.values()), f"inaccurate: {places(coarse, cases)}"),
        )
        if found
    ]


def varying_rows(entry: Json) -> dict[str, list[str]]:
    """Tensors with rows that have other bits than in the largest case, by case."""
    return {
        case: [tensor for tensor, about in tensors.items() if about["rows_differ"]]
        for case, tensors in entry["rows"]["cases"].items()
    }


def errors(cell: Json) -> dict[str, float]:
    """Largest error over the largest value of each tensor, where accuracy was measured."""
    tensors = cell["accuracy"]["tensors"] if cell["accuracy"] else {}
    found = {tensor: about["max_error"] for tensor, about in tensors.items()}
    return {tensor: float("inf") if error is None else error for tensor, error in found.items()}


def _holds(entry: Json) -> list[str]:
    """What was found to hold, in words, for an implementation that lacks nothing."""
    runs = min(cell["repeats"]["runs"] for cell in entry["cells"].values())
    found = ["row-invariant", f"repeatable in {runs} runs", "inputs untouched"]
    measured = [error for cell in entry["cells"].values() for error in errors(cell).values()]
    if measured:
        found.append(f"error at most {max(measured):.2g} of the largest value")
    return found


def _unchanged(entry: Json, cases: list[int]) -> list[str]:
    """What its mode left as it is in a plain process, in words."""
    tensors = {case: cell["tensors"] for case, cell in entry["cells"].items()}
    found = {case: [tensor for tensor in tensors[case] if inert(entry, case, tensor)] for case in tensors}
    return [f"its mode changed nothing of: {places(found, cases)}"] if any(found.values()) else []


def _deviations(entry: Json) -> list[str]:
    return list(dict.fromkeys(each for cell in entry["cells"].values() for each in cell["deviations"]))
