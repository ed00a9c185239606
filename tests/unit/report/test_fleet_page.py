"""The page of an audit in a real browser: its filters work without scripts, on any screen."""

import re

import pytest
from msgspec.structs import replace

from hbatune.fleet.audit import audit_fleet
from hbatune.fleet.hosts import ReadFailure, UnusableSnapshot, audit_host
from hbatune.report.fleet_page import render_fleet_page
from hbatune.snapshot.file import Snapshot
from tests.elsewhere import keep_state_in
from tests.unit import machines as factory
from tests.unit.fleets import depth, host
from tests.unit.report.browser import DESK, Browser

pytestmark = pytest.mark.programs

PHONE = 390
WIDE_PHONE = 400
SMALL_DESK = 1050
WIDE_DESK = 1400
LONG = "a text of many words that no table can show in one line, " * 4


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    return Browser(tmp_path_factory.mktemp("browser"))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    with pytest.MonkeyPatch.context() as monkeypatch:
        keep_state_in(tmp_path_factory.mktemp("machine"), monkeypatch)
        return _render_page()


def _render_page() -> str:
    balanced = (_with_profile(host(number), "balanced") for number in range(20, 24))
    narrow = host(99, adapter={"link": factory.link(width=4)})
    hosts = [*map(host, range(12)), narrow, host(98, **depth(32)), *balanced]
    hosts.append(host(97, adapter={"product": LONG, "firmware": LONG}))
    audited = [
        audit_host(snapshot, f"{n}.snap", _profile(snapshot)) for n, snapshot in enumerate(hosts)
    ]
    audited += [audit_host(host(number), f"{number}.snap", None) for number in (50, 51)]
    broken = UnusableSnapshot("broken.snap", ReadFailure.INVALID, LONG)
    return render_fleet_page(audit_fleet([*audited, broken]))


def _with_profile(snapshot: Snapshot, name: str) -> Snapshot:
    return replace(snapshot, policy=replace(snapshot.policy, active=name))


def _profile(snapshot: Snapshot) -> str | None:
    return None if snapshot.policy.active else "oltp"


def chosen(page: str, *ids: str) -> str:
    """Return the page with these filters chosen."""
    for id in ids:
        group = id.partition("-")[0]
        page = re.sub(rf'(name="{group}" id="[^"]*") checked', r"\1", page)
        page = page.replace(f'id="{id}"', f'id="{id}" checked')
    return page


@pytest.mark.parametrize(
    ("filters", "matching"),
    [
        ([], 21),
        (["state-odd"], 2),
        (["state-not_set_up"], 2),
        (["state-drift"], 19),
        (["state-warning"], 1),
        (["profile-p2"], 4),
        (["state-odd", "profile-p2"], 0),
        (["state-odd", "group-g1", "profile-p1"], 2),
    ],
)
def test_filter_shows_matching_hosts(
    browser: Browser, page: str, filters: list[str], matching: int
) -> None:
    assert browser.count(chosen(page, *filters), ".hosts tbody tr") == matching


@pytest.mark.parametrize("width", [PHONE, WIDE_PHONE, SMALL_DESK, DESK, WIDE_DESK])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_page_fits_screen_legibly(browser: Browser, page: str, width: int, dark: bool) -> None:
    look = browser.look(page, width, dark=dark)
    assert look.over == [], "parts of the page lie on others"
    assert look.wide == [], "the page is wider than the screen"
    assert look.cut == [], "a part of a table is off the screen"
    assert (look.cards > 30) is (width < SMALL_DESK), "rows are cards on phones only"
    assert look.faint == [], "letters that are hard to see"
    assert look.dark is dark
    assert look.scripts == 1, "the one of this test"


def test_page_starts_with_answer_and_remedies(page: str) -> None:
    sections = re.findall(r'<section id="(\w+)">', page)
    assert sections == ["first", "odd", "drift", "findings", "hosts", "inventory", "unusable"]
    header = " ".join(page.split("<header>")[1].split("</header>")[0].split())
    assert "22 hosts: 19 drifted, 2 not set up, 1 not read. The worst problem is on db99" in header
    assert "Next, run <code>hbatune -H db99 check</code>" in header, "a fault comes before drift"
    assert "<code>ansible-playbook hbatune.hbatune.rollout" in page
    rows = re.findall(r'<td data-label="State" class="second">([^<]*)</td>', page)
    assert rows.count("not set up") == 2
    assert "<code>hbatune -H db50 diff --profile oltp</code>" in page
    assert "do not drift" not in page
