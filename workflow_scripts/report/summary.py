"""The short summary that a run prints at its end."""

import textwrap

from workflow_scripts.report.answer import answer, question
from workflow_scripts.report.trust import machine, trust
from workflow_scripts.report.verdicts import EXTEND, NEW, REUSE, UNKNOWN
from workflow_scripts.report.words import Json, rows

LINES = 25
WIDTH = 118


def short(report: Json, folder: str) -> str:
    """At most `LINES` lines that answer the audit's question.

    Args:
        report: a full report.
        folder: where the report's files are, as the reader would type it.
    """
    head = [question(report), *_wrapped(answer(report)), ""]
    tail = ["", *_wrapped(_trust(report)), *_gate(report), f"Report: {folder}/report.html"]
    verdicts = _verdicts(report)
    room = max(LINES - len(head) - len(tail), 1)
    if len(verdicts) > room:
        verdicts = [*verdicts[: room - 1], f"  and {len(verdicts) - room + 1} more, in {folder}/report.md"]
    return "\n".join([*head, *map(_clip, verdicts), *tail])


def _verdicts(report: Json) -> list[str]:
    order = (REUSE, EXTEND, NEW, UNKNOWN)
    entries = sorted(report["implementations"], key=lambda entry: order.index(entry["verdict"]["verdict"]))
    width = max((len(entry["label"]) for entry in entries), default=0)
    return [
        f"  {verdict['verdict']:<10} {entry['label']:<{width}}  {'; '.join(verdict['reasons'])}"
        for entry in entries
        for verdict in [entry["verdict"]]
    ]


def _trust(report: Json) -> list[str]:
    sentences = sorted(trust(report), key=lambda each: bool(each["good"]))
    where = f"{rows(report['cases'])}; {machine(report)}"
    return [f"Trust: {'. '.join(each['text'] for each in sentences)} ({where})."]


def _gate(report: Json) -> list[str]:
    reasons = report["gate"]["reasons"]
    if not reasons:
        return ["Gate: passed"]
    more = [f"  - and {len(reasons) - 3} more"] if len(reasons) > 3 else []
    return ["Gate: failed", *(_clip(f"  - {reason}") for reason in reasons[:3]), *more]


def _wrapped(sentences: list[str]) -> list[str]:
    return [line for text in sentences for line in textwrap.wrap(text, WIDTH, subsequent_indent="  ")]


def _clip(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 3] + "..."
