"""The page: whole, self-contained, escaped, and marked up so that everybody can use it."""

import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from tests.unit.fixtures.report.factory import KERNEL, PLAIN, SGLANG, TENSORS, VLLM, World, witness
from workflow_scripts.report import html
from workflow_scripts.report.full import full_report

STYLE = (Path(html.__file__).parent / "templates" / "style.css").read_text()
VOID = {"meta", "link", "br", "rect", "path", "img", "input"}


class Page(HTMLParser):
    """Elements of a page, with their attributes and text; fails when a tag is left open."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements = [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        element = {"tag": tag, "text": "", **dict(attributes)}
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag, attributes):
        self.elements.append({"tag": tag, "text": "", **dict(attributes)})

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, *tags):
        return [element for element in self.elements if element["tag"] in tags]


def eventful():
    world = World(cases=(1, 4, 64))
    world.other_bits(PLAIN, "grad_temb", 1, 4)
    world.varying_rows(PLAIN, "grad_temb", 1)
    world.stop(SGLANG, "unavailable", "sglang is not installed")
    for case in world.cases:
        world.cells[VLLM, case]["witness"] = witness("vllm", kernel="gemm_plain")
    return world


def page(world):
    return html.page(full_report(world.evidence()))


@pytest.fixture(scope="module")
def parsed():
    return Page(page(eventful()))


def test_nothing_comes_from_elsewhere(parsed):
    assert not parsed.all("script", "iframe", "img", "object")
    for element in parsed.elements:
        for attribute in ("src", "href", "action", "srcset"):
            assert element.get(attribute, "#").startswith(("#", "data:,")), element
    assert "url(" not in STYLE
    assert "@import" not in STYLE


def test_every_link_and_button_has_its_target(parsed):
    ids = [element["id"] for element in parsed.elements if "id" in element]
    assert len(ids) == len(set(ids))
    for element in parsed.elements:
        for attribute in ("popovertarget", "aria-labelledby"):
            assert element.get(attribute, ids[0]) in ids
        if element["tag"] == "a":
            assert element["href"][1:] in ids


def test_every_difference_opens_and_closes(parsed):
    dialogs = [element["id"] for element in parsed.all("dialog")]
    openers = [e for e in parsed.all("button") if e.get("popovertargetaction") != "hide"]
    # plain differs in one tensor at 1 and 4 rows: from rl_kernel, and vllm and rl_kernel from it
    assert len(dialogs) == 2 * 3
    assert sorted(element["popovertarget"] for element in openers) == sorted(dialogs)
    assert sum(element.get("popovertargetaction") == "hide" for element in parsed.all("button")) == len(
        dialogs
    )


def test_headings_are_in_order(parsed):
    levels = [int(element["tag"][1]) for element in parsed.all("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_table_headers_have_a_scope_and_scrolling_regions_take_the_focus(parsed):
    assert all("scope" in element for element in parsed.all("th"))
    for element in parsed.elements:
        if element.get("class") == "scroll":
            assert element["tabindex"] == "0"
            assert "aria-labelledby" in element or "aria-label" in element


def test_pictures_have_words(parsed):
    for element in parsed.all("svg"):
        assert element.get("aria-hidden") == "true" or element["aria-label"]


def test_matrix_says_what_the_comparisons_say(parsed):
    buttons = [e["text"] for e in parsed.all("button") if e.get("popovertargetaction") != "hide"]
    # 3 of 64 elements at 1 row, 3 of 256 at 4
    assert sorted(set(buttons)) == [
        "1.2 % of grads.temb at 4 rows differ: show",
        "4.7 % of grads.temb at 1 row differ: show",
    ]
    cells = [e for e in parsed.all("td") if (e.get("class") or "").split(" ")[0] in ("s0", "absent")]
    # 2 matrices of 3 rows, 12 cells each, less the 6 that differ
    assert len(cells) == 2 * 3 * 12 - 6
    assert sum(cell["text"] == "=*" for cell in cells) == 12 - 2 + 12


def test_what_ran_is_told_by_case_only_where_cases_differ():
    world = World(cases=(1, 4))
    world.cells[VLLM, 1]["witness"] = witness("vllm", kernel="gemm_plain")
    world.cells[VLLM, 4]["repeats"]["differ"] = ["grad_w"]
    items = [element["text"] for element in Page(page(world)).all("li")]
    assert any(item.startswith("Forward at 1 row: inert") for item in items)
    assert any(item.startswith("Forward at 4 rows: effective") for item in items)
    assert sum(item.startswith("Forward: baseline") for item in items) == 2
    assert any("the same bits in 2 runs except grads.w at 4 rows." in item for item in items)


def test_an_effect_that_differs_by_case_is_told_beside_the_kernels_of_the_case():
    world = World(cases=(1, 4))
    world.cells[VLLM, 4]["witness"] = witness("vllm", kernel="gemm_split")
    parsed = Page(page(world))
    items = [element["text"] for element in parsed.all("li")]
    assert "Forward: effective, as told by case below." in items
    reasons = [element["text"] for element in parsed.all("p") if element["text"].startswith("other kernels")]
    assert sum("+gemm_vllm " in reason for reason in reasons) == 1  # forward at 1 row
    assert sum("+gemm_split " in reason for reason in reasons) == 1


def test_deviations_of_all_that_ran_are_left_to_the_trust_line():
    world = World()
    for (label, _), cell in world.cells.items():
        cell["deviations"] = ["torch is 2.11.0", *(["a stand-in"] if label == VLLM else [])]
    world.stop(SGLANG, "unavailable", "sglang is not installed")
    notes = [element["text"] for element in Page(page(world)).all("span") if element.get("class") == "soft"]
    assert "(a stand-in)" in notes
    assert "(torch is 2.11.0)" not in notes


def test_rows_that_were_not_compared_because_nothing_ran():
    world = World()
    world.stop(SGLANG, "unavailable", "sglang is not installed")
    world.stop(VLLM, "error", "raises", 4)
    cells = [element["text"] for element in Page(page(world)).all("td")]
    assert "it did not run" in cells
    assert "it did not run at 4 rows" in cells


def test_what_a_library_says_is_text_not_markup():
    world = World()
    world.stop(SGLANG, "error", "<script>alert('x')</script>")
    world.cells[VLLM, 4]["deviations"] = ['"><img src=x onerror=alert(1)>']
    assert not Page(page(world)).all("script", "img")


def test_optional_sections_are_there_when_measured():
    evidence = eventful().evidence()
    assert not {"accuracy", "latency"} & {
        e.get("id") for e in Page(html.page(full_report(evidence))).elements
    }
    evidence.accuracy[KERNEL, 4] = {
        "status": "measured",
        "reason": None,
        "tensors": {"out_0": {"max_error": 0.00390625, "mean_error": 0.0001, "correctly_rounded": 0.99}},
    }
    runs = {"warmup": 20, "runs": 100, "min": 148.0, "p10": 149.0, "median": 150.0, "p90": 170.0}
    measured = {
        "implementation": KERNEL,
        "case": 4,
        "status": "measured",
        "reason": None,
        "clock": "CUDA events",
        "forward": runs,
        "forward_backward": runs | {"median": 300.0, "runs": 90},
    }
    lacking = dict.fromkeys(("clock", "forward", "forward_backward"))
    unmeasured = measured | lacking | {"implementation": VLLM, "reason": "unavailable: no CUDA device"}
    text = html.page(full_report(evidence), [measured, unmeasured])
    page_ = Page(text)
    assert {"accuracy", "latency"} <= {e.get("id") for e in page_.elements}
    assert "0.0039, 0.0001, <span>99 %</span>" in text
    assert "150.0 (149.0 to 170.0)" in text
    assert "CUDA events, 100 and 90 runs" in text
    assert "unavailable: no CUDA device</td>" in text
    assert 'width="50.0"' in text  # half of the slowest of its case


def test_page_of_the_largest_audit_stays_small():
    modes = ("plain", "vllm", "sglang", "sglang_ieee", "te", "triton", "triton_ieee")
    world = World(labels=(*(f"diffusers[{mode}]" for mode in modes), KERNEL), cases=(1, 4, 64, 2048))
    for label in world.labels:
        for tensor in TENSORS:
            world.other_bits(label, tensor)
    for key, document in world.compared().items():
        for found in document[
            "tensors"
        ].values():  # no two neighbours of the same darkness: the longest paths
            found["detail"]["density"] = [[10 ** ((x + y) % 4) for x in range(64)] for y in range(16)]
        world.compares[key] = document
    assert len(page(world).encode()) < 5_000_000


def luminance(colour):
    """Relative luminance, WCAG 2.2: https://www.w3.org/TR/WCAG22/#dfn-relative-luminance."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def themes():
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#\w{6})", block))
        for block in re.findall(r":root \{(.*?)\n *\}", STYLE, re.DOTALL)
    )
    return {"light": light, "dark": light | dark}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    ("text", "ground"),
    [
        *((text, ground) for text in ("text", "soft", "link", "bad", "good") for ground in ("page", "panel")),
        *(("on-sign", sign) for sign in ("good", "mild", "bad", "open")),
        *(("text", shade) for shade in ("s1", "s2")),
        *((f"t{i}", f"s{i}") for i in (3, 4, 5)),
    ],
)
def test_contrast_is_enough_to_read(theme, text, ground):
    colours = themes()[theme]
    bright, dim = sorted((luminance(colours[text]), luminance(colours[ground])), reverse=True)
    assert (bright + 0.05) / (dim + 0.05) >= 4.5  # WCAG AA
