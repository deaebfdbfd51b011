"""summary.tsv and report.md: the comparisons as tables."""

from collections.abc import Iterator

import pandas as pd

from workflow_scripts.report.answer import answer, question
from workflow_scripts.report.pairs import inert
from workflow_scripts.report.trust import trust
from workflow_scripts.report.verdicts import varying_rows
from workflow_scripts.report.words import Json, tensor_name

COLUMNS = {
    "implementation": "string",
    "baseline": "string",
    "case": "Int64",
    "tensor": "string",
    "status": "string",
    "equal": "boolean",
    "differ": "Int64",
    "numel": "Int64",
    "max_abs": "Float64",
    "vacuous": "boolean",
    "reason": "string",
}


def tensors(report: Json) -> list[str]:
    """Ids of the report's tensors, in the operator's order."""
    cells = [cell for entry in report["implementations"] for cell in entry["cells"].values()]
    return list(dict.fromkeys(tensor for cell in cells for tensor in cell["tensors"]))


def summary(report: Json) -> pd.DataFrame:
    """One row for each implementation, baseline, case and tensor; also for what was not compared.

    Columns are those of `COLUMNS`; the measures are missing where nothing was compared.
    `vacuous` marks an equality in which a mode changed nothing of what computed the tensor.
    """
    frame = pd.DataFrame(_summary_rows(report), columns=list(COLUMNS))
    return frame.astype(COLUMNS)


def _summary_rows(report: Json) -> Iterator[Json]:
    entries = {entry["label"]: entry for entry in report["implementations"]}
    for each in report["comparisons"]:
        for tensor in each["tensors"] or tensors(report) or [""]:
            found = each["tensors"].get(tensor, {})
            vacuous = bool(found.get("equal")) and any(
                inert(entries[label], each["case"], tensor) for label in (each["a"], each["b"])
            )
            yield {
                "implementation": each["a"],
                "baseline": each["b"],
                "case": each["case"],
                "tensor": tensor_name(tensor) if tensor else "",
                "status": each["status"],
                **{key: found.get(key) for key in ("equal", "differ", "numel", "max_abs")},
                "vacuous": vacuous if found else None,
                "reason": found.get("reason") or each["reason"],
            }


def markdown(report: Json) -> str:
    """The report as Markdown, to be pasted into a page of documentation."""
    lines = [f"## {question(report)}", "", *(f"{sentence}  " for sentence in answer(report)), ""]
    lines += [_table([_verdict_row(entry) for entry in report["implementations"]]), ""]
    for baseline in report["baselines"]:
        rows = [_difference_row(report, entry, baseline) for entry in report["implementations"]]
        kept = [row for row in rows if row]
        if kept:
            cases = " / ".join(map(str, report["cases"]))
            lines += [f"Elements that differ from `{baseline}`, at {cases} rows:", "", _table(kept), ""]
    lines += (
        ["`=`: equal, but the mode changed nothing of what computed it.", ""]
        if "0=" in "".join(lines)
        else []
    )
    lines += [f"- {each['text']}." for each in trust(report)]
    lines += [f"- {_gate(report)}"]
    return "\n".join(lines) + "\n"


def _table(rows: list[Json]) -> str:
    return str(pd.DataFrame(rows).to_markdown(index=False, disable_numparse=True))


def _verdict_row(entry: Json) -> Json:
    verdict = entry["verdict"]
    return {
        "implementation": f"`{entry['label']}`",
        "verdict": verdict["verdict"],
        "why": _cell("; ".join(verdict["reasons"] + verdict["notes"])),
    }


def _difference_row(report: Json, entry: Json, baseline: str) -> Json | None:
    found = {
        each["case"]: each
        for each in report["comparisons"]
        if (each["a"], each["b"]) == (entry["label"], baseline)
    }
    if not found:
        return None
    row: Json = {"implementation": f"`{entry['label']}`", "rows": _rows(entry)}
    for tensor in tensors(report):
        counts = [_count(entry, found.get(case), case, tensor) for case in report["cases"]]
        row[tensor_name(tensor)] = " / ".join(counts)
    return row


def _rows(entry: Json) -> str:
    if entry["rows"]["status"] != "compared":
        return "not compared"
    return "vary" if any(varying_rows(entry).values()) else "invariant"


def _count(entry: Json, comparison: Json | None, case: int, tensor: str) -> str:
    if comparison is None or tensor not in comparison["tensors"]:
        return "-"
    found = comparison["tensors"][tensor]
    if found["differ"] is None:
        return str(found["reason"])
    return f"{found['differ']}{'=' if found['equal'] and inert(entry, case, tensor) else ''}"


def _cell(text: str) -> str:
    """Text that stays inside one cell of a Markdown table."""
    return text.replace("\n", " ").replace("|", "\\|")


def _gate(report: Json) -> str:
    gate = report["gate"]
    return "Gate: passed." if gate["passed"] else f"Gate: failed. {_cell('; '.join(gate['reasons']))}."
