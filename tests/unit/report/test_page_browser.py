"""The report in a real browser: on a phone, on a desk and on paper, light and dark."""

from pathlib import Path

import pytest

from hbatune.report.page import ReportData
from hbatune.report.summary import make_sections, render_page
from tests.unit import report_server as reported
from tests.unit.report.browser import DESK, Browser, Look

pytestmark = pytest.mark.programs

PHONE = 400
WIDE_DESK = 1400
PAPER = 688
"""Pixels between the margins of an A4 sheet."""
READABLE = 9.0
"""Pixels that letters in a picture have at least."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    return Browser(tmp_path_factory.mktemp("browser"))


def html(report: ReportData) -> str:
    return render_page(report, make_sections(report))


@pytest.fixture(scope="module")
def full() -> str:
    return html(reported.seen())


def nothing_wrong(look: Look, width: int) -> None:
    assert look.width == width, "the browser is as wide as it was asked to be"
    assert look.overlaps == [], "texts lie on texts"
    assert look.outside == [], "texts lie outside of their picture"
    assert look.over == [], "parts of the page lie on others"
    assert look.wide == [], "wider than the page"
    assert look.faint == [], "too little contrast (WCAG 2: 4.5 for text, 3 for lines)"
    assert look.smallest >= READABLE
    assert look.scripts == 1, "a name has become a script beside the one that looks"
    assert look.pictures > 0


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, WIDE_DESK])
def test_screen_has_no_overlaps(browser: Browser, full: str, width: int, dark: bool) -> None:
    look = browser.look(full, width, dark=dark)
    nothing_wrong(look, width)
    assert look.dark == dark
    assert (look.cards > 30) is (width == PHONE), "rows are cards on phones only"
    assert look.cut == [] or width != PHONE, "a part of a table is off the screen"


@pytest.mark.parametrize("width", [PHONE, WIDE_DESK])
def test_unmeasured_page_has_no_overlaps(browser: Browser, width: int) -> None:
    look = browser.look(html(reported.unmeasured()), width)
    assert (look.over, look.wide, look.faint, look.cut) == ([], [], [], [])


def test_paper_has_no_overlaps(browser: Browser, full: str) -> None:
    nothing_wrong(browser.look(full, PAPER, paper=True), PAPER)


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_crowded_page_has_no_overlaps(browser: Browser, width: int) -> None:
    nothing_wrong(browser.look(html(reported.crowded()), width), width)


def test_forty_adapters_have_no_overlaps(browser: Browser) -> None:
    nothing_wrong(browser.look(html(reported.many_adapters()), PHONE), PHONE)


@pytest.mark.parametrize(("dark", "least", "most"), [(False, 250, 255), (True, 0, 40)])
def test_page_follows_colour_scheme(
    browser: Browser, full: str, dark: bool, least: int, most: int
) -> None:
    corner = browser.picture(full, PHONE, dark=dark)
    assert all(least <= level <= most for level in corner)


def test_page_prints_to_pdf(browser: Browser, full: str, tmp_path: Path) -> None:
    printed = browser.printed(full)
    assert printed.startswith(b"%PDF-")
    assert 3 <= printed.count(b"/Type /Page\n") <= 16
