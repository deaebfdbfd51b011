"""What changed between two reports in the published form: the sentence that one wants after an upgrade."""

from collections.abc import Collection, Iterable
from typing import Any

from workflow_scripts.report.words import Json, count, rows, share

Place = tuple[str, str, str, str]  # label, baseline, case, tensor
HEADS = ("kind", "rfc", "op", "rl_kernel_commit", "tracked_tree_dirty")

ENVIRONMENT = "Environment"
IMPLEMENTATIONS = "Implementations"
APPEARED, VANISHED = "Compared only in the new report", "Compared only in the old report"
EQUAL, UNEQUAL, OTHERWISE = "Became equal", "Stopped being equal", "Differ by another amount"


def changes(old: Json, new: Json) -> dict[str, list[str]]:
    """What is not the same in two reports.

    Args:
        old: a report in the published form (report.json).
        new: another.

    Returns:
        Lines by heading; all headings are there, in the order in which they are to be read.
    """
    before, after = comparisons(old), comparisons(new)
    found: dict[str, list[str]] = {
        EQUAL: [],
        UNEQUAL: [],
        OTHERWISE: [],
        IMPLEMENTATIONS: _implementations(old["results"], new["results"]),
        APPEARED: _only(after, before, old["results"].keys()),
        VANISHED: _only(before, after, new["results"].keys()),
        ENVIRONMENT: [*_heads(old, new), *_moved(_flat(old["environment"]), _flat(new["environment"]))],
    }
    for place, a in before.items():
        b = after.get(place, a)
        if a != b:
            found[_kind(a, b)].append(f"{_where(place)}: {_amount(a, b)}")
    return found


def comparisons(report: Json) -> dict[Place, Json]:
    """Every comparison of two tensors in a report, by implementations, then case."""
    found: dict[Place, Json] = {}
    for label, result in report["results"].items():
        for key, by_case in result.items():
            if key.startswith("vs "):
                for case, tensors in by_case.items():
                    for i, measures in enumerate(tensors["out"]):
                        found[label, key[3:], case, f"out[{i}]"] = measures
                    for name, measures in tensors["grads"].items():
                        found[label, key[3:], case, f"grads.{name}"] = measures
    return dict(sorted(found.items(), key=lambda item: (*item[0][:2], int(item[0][2]))))


def _only(here: Iterable[Place], there: Iterable[Place], labels: Collection[str]) -> list[str]:
    """Comparisons that one report has alone, of implementations that both have."""
    elsewhere = {place[:3] for place in there}
    cases = dict.fromkeys(place[:3] for place in here)
    return [
        f"{label} vs {baseline} at {rows([case])}"
        for label, baseline, case in cases
        if {label, baseline} <= set(labels) and (label, baseline, case) not in elsewhere
    ]


def _where(place: Place) -> str:
    label, baseline, case, tensor = place
    return f"{label} vs {baseline}, {tensor} at {rows([case])}"


def _kind(a: Json, b: Json) -> str:
    if a["equal"] == b["equal"]:
        return OTHERWISE
    return EQUAL if b["equal"] else UNEQUAL


def _amount(a: Json, b: Json) -> str:
    if b["equal"] and not a["equal"]:
        return f"was {_measure(a)}"
    if a["equal"] and not b["equal"]:
        return f"now {_measure(b)}"
    return "; ".join(
        f"{name} {_number(a[key])} -> {_number(b[key])}"
        for key, name in (("differ", "elements"), ("numel", "of"), ("max_abs", "largest difference"))
        if a[key] != b[key]
    )


def _measure(measures: Json) -> str:
    if measures["differ"] is None:
        return "another dtype or shape"
    differ, numel = measures["differ"], measures["numel"]
    return (
        f"{count(differ)} of {count(numel)} elements ({share(differ, numel)}), "
        f"largest difference {measures['max_abs']!r}"
    )


def _number(value: float | None) -> str:
    if value is None:
        return "not counted"
    return count(value) if isinstance(value, int) else repr(value)


def _implementations(old: Json, new: Json) -> list[str]:
    lines = [f"appeared: {label}" for label in new if label not in old]
    lines += [f"vanished: {label}" for label in old if label not in new]
    for label in filter(new.__contains__, old):
        fields = ("source", "unavailable")
        moved = _moved(*({field: side[label].get(field) for field in fields} for side in (old, new)))
        lines += [f"{label}: {line}" for line in moved]
    return lines


def _heads(old: Json, new: Json) -> list[str]:
    fields = (*HEADS, "cases")
    return _moved(*({field: side[field] for field in fields} for side in (old, new)))


def _flat(environment: Json, prefix: str = "") -> Json:
    """Nested settings as one level: `libraries.torch`."""
    flat: Json = {}
    for key, value in environment.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _moved(old: Json, new: Json) -> list[str]:
    return [
        f"{key}: {_word(old.get(key))} -> {_word(new.get(key))}"
        for key in dict.fromkeys([*old, *new])
        if old.get(key) != new.get(key)
    ]


def _word(value: Any) -> str:
    if value is None:
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
