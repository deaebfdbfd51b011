"""What each pair of implementations is to one another: which may replace which."""

from itertools import combinations

from workflow_scripts.modes.label import label
from workflow_scripts.report.classes import apart, same_bits
from workflow_scripts.report.evidence import Evidence
from workflow_scripts.report.words import Json, direction, listing, places, rows

EQUAL, VACUOUS, DIFFERS, UNKNOWN = "equal", "vacuous", "differs", "unknown"
DEFINITIONS = {
    EQUAL: "The same bits in every tensor of every case, computed in different ways: "
    "each may replace the other.",
    VACUOUS: "The same bits everywhere, but some were computed by the same kernels under the same flags, "
    "because a mode changed nothing: their equality says nothing about the mode.",
    DIFFERS: "Some bits differ: neither may replace the other.",
    UNKNOWN: "Not compared in every case, or not to be trusted.",
}


def pairs(evidence: Evidence, entries: list[Json], *, trusted: bool) -> list[Json]:
    """Relations of all pairs, sorted by labels.

    Args:
        evidence: the cells.
        entries: the report's implementations.
        trusted: whether the controls passed; without them nothing is called equal.

    Returns:
        {"a", "b", "relation", "reason", "differs", "vacuous"}; the last two name tensors by case.
    """
    return [_pair(evidence, a, b, trusted=trusted) for a, b in combinations(entries, 2)]


def relation(all_pairs: list[Json], a: str, b: str) -> Json:
    """The relation of two labels, in either order."""
    return next(pair for pair in all_pairs if {pair["a"], pair["b"]} == {a, b})


def interchangeable(all_pairs: list[Json]) -> list[list[str]]:
    """Groups of implementations that may replace one another, sorted."""
    groups: list[set[str]] = []
    for pair in all_pairs:
        if pair["relation"] == EQUAL:
            both = {pair["a"], pair["b"]}
            joined = [group for group in groups if group & both]
            groups = [group for group in groups if not group & both] + [both.union(*joined)]
    return sorted(sorted(group) for group in groups)


def _pair(evidence: Evidence, a: Json, b: Json, *, trusted: bool) -> Json:
    differs: dict[str, list[str]] = {}
    vacuous: dict[str, list[str]] = {}
    unknown: list[str] = []
    for case in evidence.cases:
        one, two = evidence.ok(a["label"], case), evidence.ok(b["label"], case)
        if one is None or two is None:
            absent = [entry["label"] for entry, cell in ((a, one), (b, two)) if cell is None]
            unknown.append(f"{listing(absent)} did not run at {rows([case])}")
        elif reasons := apart(one, two):
            unknown.append(f"incomparable at {rows([case])}: {listing(reasons)}")
        else:
            differs[str(case)] = [
                tensor
                for tensor in one["tensors"]
                if not same_bits(one["tensors"][tensor], two["tensors"][tensor])
            ]
            vacuous[str(case)] = [
                tensor
                for tensor in one["tensors"]
                if tensor not in differs[str(case)] and _vacuous(a, b, str(case), tensor)
            ]
    if not trusted:
        unknown.append("a control did not pass")
    verdict, reason = _judge(evidence.cases, differs, vacuous, unknown)
    return {
        "a": a["label"],
        "b": b["label"],
        "relation": verdict,
        "reason": reason,
        "differs": {case: tensors for case, tensors in differs.items() if tensors},
        "vacuous": {case: tensors for case, tensors in vacuous.items() if tensors},
    }


def _vacuous(a: Json, b: Json, case: str, tensor: str) -> bool:
    """Whether equality was certain: a mode did nothing, or two modes of a candidate did the same."""
    if inert(a, case, tensor) or inert(b, case, tensor):
        return True
    witnesses = a["cells"][case]["witness"], b["cells"][case]["witness"]
    return a["candidate"] == b["candidate"] and label(*witnesses)[direction(tensor)]["label"] == "inert"


def inert(entry: Json, case: int | str, tensor: str) -> bool:
    """Whether an implementation's mode changed nothing of what computed a tensor."""
    labels = entry["cells"][str(case)]["labels"]
    return labels is not None and bool(labels[direction(tensor)]["label"] == "inert")


def _judge(
    cases: list[int], differs: dict[str, list[str]], vacuous: dict[str, list[str]], unknown: list[str]
) -> tuple[str, str]:
    if any(differs.values()):
        return DIFFERS, f"bits differ: {places(differs, cases)}"
    if unknown:
        return UNKNOWN, "; ".join(unknown)
    if any(vacuous.values()):
        return (
            VACUOUS,
            f"equal, but computed by the same kernels under the same flags: {places(vacuous, cases)}",
        )
    return EQUAL, "equal in every tensor of every case"
