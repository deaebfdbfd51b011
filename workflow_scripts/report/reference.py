"""report.json: the short report, in the form in which such audits are published."""

import json

from workflow_scripts.report.words import Json

ENVIRONMENT = ("gpu", "capability", "torch", "cuda", "python", "tf32", "libraries", "mode_environment")
MEASURES = ("equal", "differ", "numel", "max_abs")


def reference_form(report: Json) -> Json:
    """The published form of a full report: exactly these keys, in this order.

    A pair that was not compared is absent. An implementation that ran in no case is
    {"source", "unavailable": reason}.
    """
    return {
        **{key: report[key] for key in ("kind", "rfc", "op", "rl_kernel_commit", "tracked_tree_dirty")},
        "environment": {key: report["environment"][key] for key in ENVIRONMENT},
        "cases": report["cases"],
        "results": {entry["label"]: _result(report, entry) for entry in report["implementations"]},
    }


def dumps(document: Json) -> str:
    """Text of a report.json: two-space indent, no newline at the end."""
    return json.dumps(document, indent=2, allow_nan=False)


def _result(report: Json, entry: Json) -> Json:
    cells = entry["cells"].values()
    if not any(cell["status"] == "ok" for cell in cells):
        reasons = dict.fromkeys(_reason(cell) for cell in cells)
        return {"source": entry["source"], "unavailable": "; ".join(reasons)}
    result = {"source": entry["source"]}
    for baseline in sorted(report["baselines"]):
        compared = {
            str(each["case"]): _nested(each["tensors"])
            for each in report["comparisons"]
            if (each["a"], each["b"], each["status"]) == (entry["label"], baseline, "compared")
        }
        if compared:
            result[f"vs {baseline}"] = dict(sorted(compared.items()))
    return result


def _reason(cell: Json) -> str:
    """An unavailable cell's reason as it is; another status is named, since the key says `unavailable`."""
    return str(cell["reason"] if cell["status"] == "unavailable" else f"{cell['status']}: {cell['reason']}")


def _nested(tensors: Json) -> Json:
    measures = {name: {key: found[key] for key in MEASURES} for name, found in tensors.items()}
    return {
        "out": [measures[name] for name in measures if name.startswith("out_")],
        "grads": {
            name.removeprefix("grad_"): measures[name] for name in measures if name.startswith("grad_")
        },
    }
