"""The answer in sentences: what a reader takes away from the first screen, and what to believe of it."""

from collections import Counter

from workflow_scripts.report.pairs import DIFFERS, UNKNOWN, VACUOUS
from workflow_scripts.report.verdicts import EXTEND, NEW, REUSE
from workflow_scripts.report.words import Json, listing


def question(report: Json) -> str:
    """The question that the audit answers."""
    return f"May an existing implementation of {report['op']} be reused with every bit kept?"


def answer(report: Json) -> list[str]:
    """Sentences that answer the question: what may be reused, and what may replace what."""
    entries = report["implementations"]
    if not any(cell["status"] == "ok" for entry in entries for cell in entry["cells"].values()):
        return ["It can't be said: no cell ran."]
    if any(control["status"] != "passed" for control in report["controls"].values()):
        return ["It can't be said: a control did not pass, so nothing found here can be trusted."]
    return [
        _reuse(report),
        *_extend(report),
        *_new(report),
        _replace(report),
        *_alone(report),
        *_vacuous(report),
        *_absent(report),
        *_apart(report),
    ]


def _with_verdict(report: Json, verdict: str) -> list[str]:
    return [e["label"] for e in report["implementations"] if e["verdict"]["verdict"] == verdict]


def _reuse(report: Json) -> str:
    labels = _with_verdict(report, REUSE)
    if not labels:
        return "None may be reused as it is."
    it = "it is" if len(labels) == 1 else "they are"
    return f"May be reused as {it} (row-invariant, repeatable, inputs untouched): {listing(labels)}."


def _extend(report: Json) -> list[str]:
    labels = _with_verdict(report, EXTEND)
    return [f"May be built upon: {listing(labels)}."] if labels else []


def _new(report: Json) -> list[str]:
    """What may not be reused, beside what may; by what it lacks."""
    by_lack: dict[str, list[str]] = {}
    for entry in report["implementations"]:
        if entry["verdict"]["verdict"] == NEW:
            lacks = listing(reason.partition(":")[0] for reason in entry["verdict"]["reasons"])
            by_lack.setdefault(lacks, []).append(entry["label"])
    if not by_lack or not _with_verdict(report, REUSE):
        return []
    parts = [f"{listing(labels)} ({lacks})" for lacks, labels in by_lack.items()]
    return [f"May not be reused: {'; '.join(parts)}."]


def _replace(report: Json) -> str:
    groups = report["interchangeable"]
    if not groups and _vacuous(report):
        return "No two that compute in different ways have the same bits in every tensor and case."
    if not groups:
        return "None may replace another: no two were shown to have the same bits in every tensor and case."
    if groups == [[entry["label"] for entry in report["implementations"]]]:
        return "Any may replace any other: all have the same bits in every tensor and case."
    return f"May replace one another, bit for bit: {'; '.join(listing(group) for group in groups)}."


def _alone(report: Json) -> list[str]:
    """Baselines of which no other implementation has the bits; nothing where that holds of all there are."""
    if not report["interchangeable"]:
        return []
    known = [pair for pair in report["pairs"] if pair["relation"] != UNKNOWN]
    alone = [
        label
        for label in report["baselines"]
        if any(label in (pair["a"], pair["b"]) for pair in known)
        and all(pair["relation"] == DIFFERS for pair in known if label in (pair["a"], pair["b"]))
    ]
    return [f"No other has all the bits of {' or of '.join(alone)}."] if alone else []


def _vacuous(report: Json) -> list[str]:
    """Vacuous pairs, gathered under the implementation that most of them share.

    Without those that a third one, which computes in another way, shows to be interchangeable.
    """
    found = [{pair["a"], pair["b"]} for pair in report["pairs"] if pair["relation"] == VACUOUS]
    pairs = [pair for pair in found if not any(pair <= set(group) for group in report["interchangeable"])]
    parts = []
    while pairs:
        counts = Counter(label for pair in pairs for label in sorted(pair))
        shared = max(sorted(counts), key=counts.__getitem__)
        others = [label for pair in pairs if shared in pair for label in sorted(pair - {shared})]
        parts.append(f"{shared} to {listing(others)}")
        pairs = [pair for pair in pairs if shared not in pair]
    if not parts:
        return []
    return [f"Equal, but vacuously, for a mode did nothing or two modes did the same: {'; '.join(parts)}."]


def _absent(report: Json) -> list[str]:
    """Implementations that did not run, everywhere or in some case."""
    never, partly = [], []
    for entry in report["implementations"]:
        ran = [cell["status"] == "ok" for cell in entry["cells"].values()]
        if not any(ran):
            never.append(entry["label"])
        elif not all(ran):
            partly.append(entry["label"])
    sentences = [("Did not run", never), ("Did not run in every case", partly)]
    return [f"{what}: {listing(labels)}." for what, labels in sentences if labels]


def _apart(report: Json) -> list[str]:
    """Implementations that ran, and of which no relation to any other is known."""
    labels = [
        entry["label"]
        for entry in report["implementations"]
        if all(cell["status"] == "ok" for cell in entry["cells"].values())
        and all(
            pair["relation"] == UNKNOWN
            for pair in report["pairs"]
            if entry["label"] in (pair["a"], pair["b"])
        )
    ]
    return [f"Can't be compared with any other: {listing(labels)}."] if labels else []
