"""The page in a real browser: nothing is fetched, mouse and keyboard reach all, axe finds no fault."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.workflow.support.audits import ROOT
from workflow_scripts.report.html import page as html_of

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

# As root Chromium starts only with --no-sandbox. The rest keeps it from asking anything of a network.
OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
H200 = ROOT / "docs" / "examples" / "h200" / "report.full.json"
WIDTHS = (1280, 390)
A4 = 718  # CSS pixels between the margins of a printed page


@dataclass
class Opened:
    """A page in the browser, with what it said and asked for."""

    page: "sync_api.Page"
    said: list[str] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)

    def open_dialogs(self) -> list[str]:
        return self.page.eval_on_selector_all(
            "dialog", "all => all.filter(one => one.matches(':popover-open')).map(one => one.id)"
        )

    def focused(self) -> str:
        """What the next key goes to: a link's target, a button's dialog and action, or a tag."""
        return self.page.evaluate(
            "(e => e.getAttribute('href') || (e.getAttribute('popovertarget') || '')"
            " + (e.getAttribute('popovertargetaction') || '') || e.tagName)(document.activeElement)"
        )


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator["sync_api.BrowserContext"]:
    with sync_api.sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(tmp_path_factory.mktemp("profile")),
            executable_path=CHROMIUM,
            headless=True,
            args=OPTIONS,
            viewport={"width": WIDTHS[0], "height": 900},
        )
        yield context
        context.close()


@pytest.fixture(scope="module", params=["cpu", pytest.param("h200", marks=pytest.mark.slow)])
def opened(request, browser, tmp_path_factory) -> Iterator[Opened]:
    """The page of the CPU audit, as its run wrote it; and one of a report from an H200."""
    if request.param == "cpu":
        path = request.getfixturevalue("cpu_audit") / "results" / "cpu" / "report" / "report.html"
    else:
        path = tmp_path_factory.mktemp("h200") / "report.html"
        path.write_text(html_of(json.loads(H200.read_text())))
    found = Opened(browser.new_page())
    found.page.on("console", lambda message: found.said.append(message.text))
    found.page.on("pageerror", lambda error: found.said.append(str(error)))
    found.page.on("request", lambda request: found.requested.append(request.url))
    found.page.goto(path.as_uri())
    yield found
    found.page.close()


def test_nothing_is_said_or_fetched(opened):
    assert opened.said == []
    others = [url for url in opened.requested if not url.startswith(("file:", "data:"))]
    assert others == []
    assert len([url for url in opened.requested if url.startswith("file:")]) == 1


@pytest.mark.parametrize("width", WIDTHS)
def test_fits_the_window(opened, width):
    """Only tables in a region of their own scroll sideways."""
    opened.page.set_viewport_size({"width": width, "height": 900})
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    outside = opened.page.eval_on_selector_all(
        "main p, main li, main dd, h1, h2, h3",
        "all => all.filter(e => e.offsetParent && !e.closest('.scroll')"
        " && e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display != 'inline')"
        ".map(e => e.textContent.slice(0, 60))",
    )
    opened.page.set_viewport_size({"width": WIDTHS[0], "height": 900})
    assert outside == []


def test_verdicts_are_on_the_first_screen(opened):
    box = opened.page.locator("table.verdicts").bounding_box()
    assert box["y"] + box["height"] < 900


def fold(opened: Opened, is_open: str) -> None:
    opened.page.evaluate(f"document.querySelectorAll('details').forEach(one => one.open = {is_open})")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(opened, scheme):
    """With everything unfolded, and a difference open."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    opened.page.emulate_media(color_scheme=scheme)
    fold(opened, "true")
    opened.page.locator(".matrix button").first.click()
    found = axe.Axe().run(opened.page).response["violations"]
    opened.page.keyboard.press("Escape")
    fold(opened, "false")
    serious = [
        (fault["id"], [node["html"][:120] for node in fault["nodes"][:3]])
        for fault in found
        if fault["impact"] in ("serious", "critical")
    ]
    assert serious == []


def test_links_work_by_mouse_and_keyboard(opened):
    links = opened.page.locator("nav a")
    assert links.count() >= 6
    for way in ("mouse", "keyboard"):
        for index in range(links.count()):
            link = links.nth(index)
            target = link.get_attribute("href").removeprefix("#")
            opened.page.evaluate("window.scrollTo(0, 0)")
            if way == "mouse":
                link.click()
            else:
                link.focus()
                opened.page.keyboard.press("Enter")
            assert opened.page.url.endswith(f"#{target}")
            top = opened.page.locator(f"[id='{target}']").bounding_box()["y"]
            assert -1 <= top < 900


def test_every_difference_opens_and_closes_by_mouse(opened):
    buttons = opened.page.locator(".matrix button")
    assert buttons.count() > 0
    for index in range(buttons.count()):
        button = buttons.nth(index)
        dialog = button.get_attribute("popovertarget")
        button.click()
        assert opened.open_dialogs() == [dialog]
        opened.page.locator(f"[id='{dialog}'] .close").click()
        assert opened.open_dialogs() == []


def test_every_difference_opens_and_closes_by_keyboard(opened):
    """Enter and Space open, the focus moves in; Close and Escape close, and the focus comes back."""
    buttons = opened.page.locator(".matrix button")
    for index in range(buttons.count()):
        button = buttons.nth(index)
        dialog = button.get_attribute("popovertarget")
        button.focus()
        opened.page.keyboard.press("Enter" if index % 2 else "Space")
        assert opened.open_dialogs() == [dialog]
        assert opened.focused() == f"{dialog}hide"
        opened.page.keyboard.press("Escape" if index % 2 else "Enter")
        assert opened.open_dialogs() == []
        assert opened.focused() == dialog


def test_details_unfold_by_mouse_and_keyboard(opened):
    details = opened.page.locator("details")
    assert details.count() > 3
    for index in range(details.count()):
        one = details.nth(index)
        summary = one.locator("summary")
        for toggle, state in ((summary.click, True), (summary.click, False)):
            toggle()
            assert one.evaluate("e => e.open") is state
        summary.focus()
        for state in (True, False):
            opened.page.keyboard.press("Enter")
            assert one.evaluate("e => e.open") is state


def test_tab_reaches_everything_in_the_order_of_the_page(opened):
    opened.page.locator("a.skip").focus()
    reached, tops = 1, []
    while opened.focused() != "BODY":
        opened.page.keyboard.press("Tab")
        tag, top = opened.page.evaluate(
            "(e => [e.tagName, e.getBoundingClientRect().top + scrollY])(document.activeElement)"
        )
        reached += tag in ("A", "BUTTON", "SUMMARY")
        tops.append(top)
    assert reached == opened.page.locator("a, .matrix button, summary").count()
    assert tops[:-1] == sorted(tops[:-1])  # the last is the body's, after the page


def test_prints_whole(opened):
    """On paper nothing is cut off, and what can't be clicked is not there."""
    opened.page.emulate_media(media="print")
    opened.page.set_viewport_size({"width": A4, "height": 1000})
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= A4
    for selector in ("nav", ".close"):
        assert not opened.page.locator(selector).first.is_visible()
    pdf = opened.page.pdf(format="A4")
    opened.page.emulate_media(media="screen")
    opened.page.set_viewport_size({"width": WIDTHS[0], "height": 900})
    assert pdf.startswith(b"%PDF")
