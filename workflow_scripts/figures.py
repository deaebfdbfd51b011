"""Figures for docs, as SVG and PNG: the share of differing elements, and latency."""

import argparse
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from workflow_scripts.errors import run_main
from workflow_scripts.report.evidence import read_full_report, read_json
from workflow_scripts.report.latency import PARTS, machines
from workflow_scripts.report.pairs import inert
from workflow_scripts.report.tables import tensors
from workflow_scripts.report.words import Json, share, tensor_name

# Told apart with any colour vision: Okabe and Ito, Color Universal Design (2008), https://jfly.uni-koeln.de/color/
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vP*X"
SHADES = "Blues"  # one hue, in order of lightness
FAINTEST = 1e-6  # shares below have its shade
DASH = "\N{EN DASH}"


def differing_share(report: Json) -> Figure:
    """The share of differing elements: a panel for each baseline and tensor, implementations by cases.

    Args:
        report: a full report.
    """
    names, baselines = tensors(report) or ["out_0"], report["baselines"]
    entries = {entry["label"]: entry for entry in report["implementations"]}
    labels = list(entries)
    height = len(baselines) * (0.28 * len(labels) + 0.9) + 0.4
    figure = Figure(figsize=(2.2 + 2.0 * len(names), height), layout="constrained")
    panels = figure.subplots(len(baselines), len(names), squeeze=False, sharey="row", sharex=True)
    for baseline, line in zip(baselines, panels, strict=True):
        others = [label for label in labels if label != baseline]
        found = {(each["a"], each["case"]): each for each in report["comparisons"] if each["b"] == baseline}
        for tensor, axes in zip(names, line, strict=True):
            axes.set_title(f"{tensor_name(tensor)} against {baseline}", fontsize=7)
            _frame(axes, others, report["cases"])
            for y, label in enumerate(others):
                for x, case in enumerate(report["cases"]):
                    about = found.get((label, case), {"tensors": {}})["tensors"].get(tensor)
                    _square(axes, x, y, about, vacuous=inert(entries[label], case, tensor))
    figure.suptitle(
        f"Elements with other bits, in percent. =: none; =*: none, vacuously; {DASH}: not compared"
    )
    figure.supxlabel("rows")
    return figure


def _frame(axes: Axes, labels: list[str], cases: list[int]) -> None:
    axes.set_xticks(range(len(cases)), [str(case) for case in cases])
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xlim(-0.5, len(cases) - 0.5)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.tick_params(length=0)


def _square(axes: Axes, x: int, y: int, found: Json | None, *, vacuous: bool) -> None:
    """One cell of a panel; its number is as legible on its shade as can be."""
    text, shade, ink = DASH, mpl.colors.to_rgb("#e0e0e0"), "black"
    if found is not None and found["equal"]:
        text, shade = "=*" if vacuous else "=", mpl.colors.to_rgb("white")
    elif found is not None:
        text = found["reason"] or share(found["differ"], found["numel"]).removesuffix(" %")
        fraction = 1.0 if found["reason"] else found["differ"] / found["numel"]
        red, green, blue, _ = mpl.colormaps[SHADES](LogNorm(FAINTEST, 1)(max(fraction, FAINTEST)))
        shade, ink = (float(red), float(green), float(blue)), "black" if red + green + blue > 1.3 else "white"
    axes.add_patch(
        mpl.patches.Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=shade, edgecolor="#808080", lw=0.4)
    )
    axes.text(x, y, text, ha="center", va="center", color=ink, fontsize=6.5)


def latency(document: Json) -> Figure:
    """Medians with the 10th to the 90th percentile: a panel for each pass, a group for each case.

    Args:
        document: a latency.json.
    """
    measured = [each for each in document["measurements"] if each["status"] == "measured"]
    labels = list(dict.fromkeys(each["implementation"] for each in measured))
    cases = sorted({each["case"] for each in measured})
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, (part, title) in zip(figure.subplots(1, len(PARTS), sharey=True), PARTS.items(), strict=True):
        axes.set_title(title)
        for number, label in enumerate(labels):
            own = [each for each in measured if each["implementation"] == label]
            offset = 0.8 * ((number + 0.5) / len(labels) - 0.5)
            medians = [each[part]["median"] for each in own]
            axes.errorbar(
                [cases.index(each["case"]) + offset for each in own],
                medians,
                yerr=[
                    [m - each[part]["p10"] for m, each in zip(medians, own, strict=True)],
                    [each[part]["p90"] - m for m, each in zip(medians, own, strict=True)],
                ],
                fmt=MARKERS[number % len(MARKERS)],
                color=COLOURS[number % len(COLOURS)],
                markersize=4,
                elinewidth=1,
                label=label,
            )
        axes.set_yscale("log")
        axes.set_xticks(range(len(cases)), [str(case) for case in cases])
        for edge in range(1, len(cases)):
            axes.axvline(edge - 0.5, color="#808080", linewidth=0.5, linestyle=":")
        axes.grid(axis="y", color="#e0e0e0", linewidth=0.5)
        axes.set_axisbelow(True)
    figure.supxlabel("rows")
    figure.supylabel("microseconds")
    if labels:
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right upper")
    clocks = "; ".join(machines(measured)) or "nothing was measured"
    figure.suptitle(f"Median, 10th to 90th percentile ({clocks})", fontsize=8)
    return figure


FIGURES: dict[str, tuple[Callable[[Path], Json], Callable[[Json], Figure]]] = {
    "differing_share": (read_full_report, differing_share),
    "latency": (read_json, latency),
}


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of the path's suffix; the same figure gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"Date": None} if path.suffix == ".svg" else {}
    figure.savefig(path, dpi=200, metadata=metadata)


def main() -> int:
    """Entry point of the rules of figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figure", choices=FIGURES)
    parser.add_argument("--input", type=Path, required=True, help="report.full.json, or latency.json")
    parser.add_argument("--outputs", type=Path, nargs="+", required=True, help=".svg and .png")
    arguments = parser.parse_args()
    read, draw = FIGURES[arguments.figure]
    with mpl.rc_context({"svg.hashsalt": "bitwise-reuse-audit", "font.size": 8}):
        for path in arguments.outputs:
            save(draw(read(arguments.input)), path)
    return 0


if __name__ == "__main__":
    run_main(main)
