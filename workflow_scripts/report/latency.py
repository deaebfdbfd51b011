"""Latency: all measurements of an audit in one document, and as a table. No bit depends on it."""

from collections.abc import Iterable

import pandas as pd

from workflow_scripts.report.words import Json

SCHEMA = "bitwise-reuse-audit/latencies/1"
PARTS = {"forward": "forward", "forward_backward": "forward and backward"}


def latencies(audit: Json, measurements: Iterable[Json]) -> Json:
    """One document of an audit's measurements, by case and then in the order of its implementations."""
    order = [entry["label"] for entry in audit["implementations"]]
    ordered = sorted(measurements, key=lambda each: (each["case"], order.index(each["implementation"])))
    return {"schema": SCHEMA, "audit": audit["audit"], "unit": "microseconds", "measurements": ordered}


def slowest(measurements: Iterable[Json]) -> dict[int, float]:
    """The largest median at each case, to which bars are drawn."""
    found: dict[int, float] = {}
    for each in measurements:
        for part in PARTS:
            if each[part]:
                found[each["case"]] = max(found.get(each["case"], 0.0), each[part]["median"])
    return found


def machines(measurements: Iterable[Json]) -> list[str]:
    """Clock, machine and threads of the measurements, each once, in words."""
    return list(
        dict.fromkeys(
            f"{each['clock']}, {each['machine']}, {each['threads']} thread{'s' * (each['threads'] != 1)}"
            for each in measurements
            if each["clock"]
        )
    )


def markdown(document: Json) -> str:
    """The measurements as a Markdown table."""
    rows = [
        {
            "case": each["case"],
            "implementation": each["implementation"],
            **{PARTS[part]: _cell(each, part) for part in PARTS},
        }
        for each in document["measurements"]
    ]
    clocks = "; ".join(machines(document["measurements"])) or "nothing was measured"
    table = pd.DataFrame(rows, columns=["case", "implementation", *PARTS.values()]).to_markdown(index=False)
    return (
        f"# Latency of audit {document['audit']}\n\n"
        f"Median in microseconds, and the 10th to the 90th percentile ({clocks}).\n\n{table}\n"
    )


def _cell(measurement: Json, part: str) -> str:
    found = measurement[part]
    if found is None:
        return f"not measured: {measurement['reason']}"
    return f"{found['median']:.1f} ({found['p10']:.1f} to {found['p90']:.1f}; {found['runs']} runs)"
