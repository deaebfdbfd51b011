"""Figures: what they show, for any audit, and that the same numbers give the same file."""

import sys

import pytest

from tests.unit.fixtures.report.factory import KERNEL, PLAIN, SGLANG, VLLM, World, witness
from workflow_scripts import figures
from workflow_scripts.report.full import full_report
from workflow_scripts.report.reference import dumps

TENSORS = 4
SPREAD = {"warmup": 20, "runs": 100, "min": 9.0, "p10": 10.0, "median": 20.0, "p90": 50.0}


def measurement(label, case, **changes):
    return {
        "implementation": label,
        "case": case,
        "status": "measured",
        "reason": None,
        "clock": "CUDA events",
        "machine": "NVIDIA H200",
        "threads": 2,
        "forward": SPREAD,
        "forward_backward": {**SPREAD, "median": 40.0},
        **changes,
    }


def document(*measurements):
    return {"audit": "h3", "measurements": list(measurements)}


def world():
    found = World()
    found.other_bits(VLLM, "grad_temb")
    found.stop(SGLANG, "unavailable", "no such library")
    return found


def panel(figure, title):
    return next(axes for axes in figure.axes if axes.get_title() == title)


def texts(figure, title):
    """What each square of a panel says, by implementation and case: labels are left and below."""
    titles = [axes.get_title() for axes in figure.axes]
    line, column = divmod(titles.index(title), TENSORS)
    left, below = figure.axes[line * TENSORS], figure.axes[column - TENSORS]
    implementations = [label.get_text() for label in left.get_yticklabels()]
    cases = [int(label.get_text()) for label in below.get_xticklabels()]
    squares = [(*map(round, text.get_position()), text.get_text()) for text in panel(figure, title).texts]
    return {(implementations[y], cases[x]): text for x, y, text in squares}


def test_every_comparison_is_a_square():
    report = full_report(world().evidence())
    figure = figures.differing_share(report)
    assert len(figure.axes) == TENSORS * len(report["baselines"])
    squares = texts(figure, f"grads.temb against {PLAIN}")
    others = {entry["label"] for entry in report["implementations"]} - {PLAIN}
    assert squares.keys() == {(label, case) for label in others for case in report["cases"]}
    for case in report["cases"]:
        compared = next(
            each
            for each in report["comparisons"]
            if (each["a"], each["b"], each["case"]) == (VLLM, PLAIN, case)
        )
        found = compared["tensors"]["grad_temb"]
        percent = 100 * found["differ"] / found["numel"]
        assert float(squares[VLLM, case]) == pytest.approx(percent, rel=0.05)
        assert squares[SGLANG, case] == "\N{EN DASH}"
        assert squares[KERNEL, case] == "="
    assert set(texts(figure, f"grads.w against {PLAIN}").values()) == {"=", "\N{EN DASH}"}


def test_an_equality_that_says_nothing_is_marked():
    changed = World()
    for case in changed.cases:  # the mode runs what plain runs
        changed.cells[VLLM, case]["witness"] = witness("vllm", kernel="gemm_plain")
    squares = texts(figures.differing_share(full_report(changed.evidence())), f"out[0] against {PLAIN}")
    assert {squares[VLLM, case] for case in changed.cases} == {"=*"}
    assert {squares[SGLANG, case] for case in changed.cases} == {"="}


def test_another_dtype_is_a_word():
    changed = world()
    report = full_report(changed.evidence())
    found = next(each for each in report["comparisons"] if (each["a"], each["b"]) == (VLLM, PLAIN))
    found["tensors"]["out_0"] |= {"equal": False, "differ": None, "reason": "dtype"}
    squares = texts(figures.differing_share(report), f"out[0] against {PLAIN}")
    assert squares[VLLM, found["case"]] == "dtype"


def brightness(colour):
    """Relative luminance of sRGB, https://www.w3.org/TR/WCAG21/#dfn-relative-luminance."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("share", [1e-9, 1e-6, 1e-4, 1e-3, 0.01, 0.1, 0.3, 1.0])
def test_numbers_can_be_read_on_every_shade(share):
    report = full_report(world().evidence())
    for each in report["comparisons"]:
        if each["tensors"]:
            each["tensors"]["out_0"] |= {"equal": False, "differ": share * 1e9, "numel": 1e9, "reason": None}
    axes = panel(figures.differing_share(report), f"out[0] against {PLAIN}")
    for square, text in zip(axes.patches, axes.texts, strict=True):
        ink = 1.0 if text.get_color() == "white" else 0.0
        light, dark = sorted((brightness(square.get_facecolor()), ink), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5  # WCAG 2.1, 1.4.3


def test_medians_and_their_spread():
    given = document(measurement("a", 4), measurement("b", 4), measurement("b", 64))
    figure = figures.latency(given)
    assert [axes.get_title() for axes in figure.axes] == ["forward", "forward and backward"]
    assert "CUDA events, NVIDIA H200, 2 threads" in figure.get_suptitle()
    points = [container for container in figure.axes[0].containers if container.get_label() == "b"]
    (line, _, (bars,)) = points[0]
    assert list(line.get_ydata()) == [20.0, 20.0]
    assert [bar[:, 1].tolist() for bar in bars.get_segments()] == [[10.0, 50.0], [10.0, 50.0]]


def test_implementations_of_one_case_stand_side_by_side():
    labels = [f"implementation_{n}" for n in range(9)]
    figure = figures.latency(document(*(measurement(label, 1) for label in labels)))
    looks = {(c[0].get_marker(), c[0].get_color()) for c in figure.axes[0].containers}
    places = {float(c[0].get_xdata()[0]) for c in figure.axes[0].containers}
    assert len(looks) == len(places) == 9
    assert all(-0.5 < place < 0.5 for place in places)


def test_nothing_measured_is_said():
    unmeasured = measurement("a", 1, status="not measured", clock=None, forward=None, forward_backward=None)
    assert "nothing was measured" in figures.latency(document(unmeasured)).get_suptitle()


@pytest.mark.parametrize("name", figures.FIGURES)
def test_the_same_numbers_give_the_same_files(name, tmp_path, monkeypatch):
    source = tmp_path / "source.json"
    report = full_report(world().evidence())
    source.write_text(dumps(report if name == "differing_share" else document(measurement("a", 1))))
    for folder in ("one", "two"):
        outputs = [str(tmp_path / folder / f"figure.{suffix}") for suffix in ("svg", "png")]
        monkeypatch.setattr(sys, "argv", ["figures", name, "--input", str(source), "--outputs", *outputs])
        assert figures.main() == 0
    one, two = ((tmp_path / folder) for folder in ("one", "two"))
    for suffix in ("svg", "png"):
        assert (one / f"figure.{suffix}").read_bytes() == (two / f"figure.{suffix}").read_bytes()
    assert "<svg" in (one / "figure.svg").read_text()
    assert (one / "figure.png").read_bytes().startswith(b"\x89PNG")
