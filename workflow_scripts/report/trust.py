"""The trust line: what a reader must know before believing a report."""

from workflow_scripts.report.words import Json


def trust(report: Json) -> list[Json]:
    """Sentences about a report, each {"good": bool, "text"}; a bad one is a reason for doubt."""
    cells = (cell for entry in report["implementations"] for cell in entry["cells"].values())
    if not any(cell["status"] == "ok" for cell in cells):
        return [_controls(report)]  # of what did not run there is nothing more to say
    return [_controls(report), _machine(report), *_kernel(report), _deviations(report)]


def machine(report: Json) -> str:
    """The machine and stack in a few words: `NVIDIA H200 (sm_90), torch 2.13.0+cu130`."""
    environment = report["environment"]
    if environment["gpu"]:
        capability = "".join(map(str, environment["capability"] or []))
        where = f"{environment['gpu']} (sm_{capability})"
    else:
        where = environment["machine"]["cpu"] or "unknown machine"
    apart = any(each["status"] == "incomparable" for each in report["comparisons"])
    others = ", and another machine or stack" if apart else ""
    return f"{where}, torch {environment['torch']}, Python {environment['python']}{others}"


def _controls(report: Json) -> Json:
    bad = [
        f"{control['status']}: {control['claim']} ({control['reason']})"
        for control in report["controls"].values()
        if control["status"] != "passed"
    ]
    if bad:
        return {"good": False, "text": f"This report can't be trusted: control {'; control '.join(bad)}"}
    return {"good": True, "text": "Both controls passed"}


def _machine(report: Json) -> Json:
    apart = report["environment"]["disagreements"]
    incomparable = [each for each in report["comparisons"] if each["status"] == "incomparable"]
    if incomparable:
        reasons = dict.fromkeys(f"{each['a']} with {each['b']}: {each['reason']}" for each in incomparable)
        return {"good": False, "text": f"Cells of different machines were not compared: {'; '.join(reasons)}"}
    if apart:
        return {"good": False, "text": f"Cells disagree on {'; '.join(apart)}"}
    return {"good": True, "text": "Every cell that ran did so on one machine and stack"}


def _kernel(report: Json) -> list[Json]:
    if report["tracked_tree_dirty"]:
        text = f"The kernel was built from changed files on top of commit {report['rl_kernel_commit']}"
        return [{"good": False, "text": text}]
    return []


def _deviations(report: Json) -> Json:
    found = {
        sentence: None
        for entry in report["implementations"]
        for cell in entry["cells"].values()
        for sentence in cell["deviations"]
    }
    if found:
        return {"good": False, "text": f"Not as released: {'; '.join(found)}"}
    return {"good": True, "text": "No stand-ins: what ran is as released"}
