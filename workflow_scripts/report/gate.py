"""The gate: reasons for which an audit must not count as passed."""

from collections.abc import Iterator

from workflow_scripts.report.pairs import DIFFERS, EQUAL, VACUOUS, relation
from workflow_scripts.report.verdicts import varying_rows
from workflow_scripts.report.words import Json, listing, places, rows


def reasons(report: Json) -> list[str]:
    """Why the gate fails, in words, worst first; empty when it passes.

    Args:
        report: a full report; only its evidence and config are used, not its verdicts.
    """
    return list(
        dict.fromkeys([*_nothing(report), *_controls(report), *_required(report), *_expected(report)])
    )


def _nothing(report: Json) -> Iterator[str]:
    """An audit in which nothing happened must never pass."""
    entries = {entry["label"]: entry for entry in report["implementations"]}
    if not any(cell["status"] == "ok" for entry in entries.values() for cell in entry["cells"].values()):
        yield "no cell ran"
    if not any(each["status"] == "compared" for each in report["comparisons"]):
        yield "nothing was compared"
    for label in report["baselines"]:
        absent = [case for case in map(str, report["cases"]) if not _ran(entries.get(label), case)]
        if absent:
            yield f"the baseline {label} is missing at {rows(absent)}"
    if not report["baselines"]:
        yield "there is no baseline"


def _ran(entry: Json | None, case: str) -> bool:
    return entry is not None and case in entry["cells"] and entry["cells"][case]["status"] == "ok"


def _controls(report: Json) -> Iterator[str]:
    for control in report["controls"].values():
        if control["status"] != "passed":
            yield f"control {control['status']}: {control['claim']}: {control['reason']}"


def _required(report: Json) -> Iterator[str]:
    entries = {entry["label"]: entry for entry in report["implementations"]}
    required = report["config"]["required"]
    labels = sorted(entries) if required == "all" else required
    for label in labels:
        if label not in entries:
            yield f"{label} is required, and is not part of the audit"
    known = [label for label in labels if label in entries]
    absent: dict[tuple[str, str], list[str]] = {}
    for label in known:
        for reason, cases in _not_ok(entries[label]["cells"]).items():
            absent.setdefault((rows(cases), reason), []).append(label)
    for (cases_in_words, reason), group in absent.items():
        are = "is" if len(group) == 1 else "are"
        yield f"{listing(group)} {are} required, and at {cases_in_words} {reason}"
    for label in known:
        yield from _unsound(label, entries[label]["cells"], report["cases"])


def _not_ok(cells: Json) -> dict[str, list[str]]:
    """Cases of the cells that are not ok, by status and reason."""
    found: dict[str, list[str]] = {}
    for case, cell in cells.items():
        if cell["status"] != "ok":
            found.setdefault(f"{cell['status']}: {cell['reason']}", []).append(case)
    return found


def _unsound(label: str, cells: Json, cases: list[int]) -> Iterator[str]:
    changed = sorted({name for cell in cells.values() for name in cell["inputs_changed"]})
    if changed:
        yield f"{label} changes its inputs: {listing(changed)}"
    unsteady = unsteady_tensors(cells)
    if any(unsteady.values()):
        yield f"{label} is not repeatable: {places(unsteady, cases)}"


def unsteady_tensors(cells: Json) -> dict[str, list[str]]:
    """Tensors whose bits differed between runs of one cell, by case."""
    return {case: cell["repeats"]["differ"] for case, cell in cells.items() if cell["repeats"]}


def _expected(report: Json) -> Iterator[str]:
    """Expectations of the config that do not hold."""
    entries = {entry["label"]: entry for entry in report["implementations"]}
    for label, expectation in report["config"]["expect"].items():
        if label not in entries:
            yield f"something is expected of {label}, which is not part of the audit"
            continue
        for what, found in (("rows", _rows), ("repeatable", _repeatable), ("label", _label)):
            if what in expectation and (seen := found(entries[label])) != expectation[what]:
                yield f"{label}: expected {what}: {_word(expectation[what])}, found {_word(seen)}"
        yield from _expected_pairs(report["pairs"], label, expectation)


def _expected_pairs(all_pairs: list[Json], label: str, expectation: Json) -> Iterator[str]:
    for what, wanted in (("equal_to", (EQUAL, VACUOUS)), ("differs_from", (DIFFERS,))):
        for other in expectation.get(what, []):
            pair = relation(all_pairs, label, other)
            if pair["relation"] not in wanted:
                yield f"{label}: expected {what.replace('_', ' ')} {other}, found: {pair['reason']}"


def _word(value: str | bool | None) -> str:
    if value is None:
        return "that it can't be said"
    return value if isinstance(value, str) else str(value).lower()


def _rows(entry: Json) -> str | None:
    if entry["rows"]["status"] != "compared":
        return None
    return "variant" if any(varying_rows(entry).values()) else "invariant"


def _repeatable(entry: Json) -> bool | None:
    unsteady = unsteady_tensors(entry["cells"])
    return None if len(unsteady) < len(entry["cells"]) else not any(unsteady.values())


def _label(entry: Json) -> str | None:
    """`effective` or `inert` when that holds in every case; a case is effective when either direction is."""
    found = set()
    for cell in entry["cells"].values():
        if cell["labels"] is None:
            return None
        either = {way["label"] for way in cell["labels"].values()}
        found.add("effective" if "effective" in either else either.pop())
    return found.pop() if len(found) == 1 else f"{listing(sorted(found))}, by case"
