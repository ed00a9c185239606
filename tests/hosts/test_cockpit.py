"""The page in Debian's Cockpit, in a browser, on a described machine with hbatune's own answers."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hosts.cockpit_host import COCKPIT, open_cockpit, server
from tests.hosts.tree import Described
from tests.lab.wheel import CHECKOUT
from tests.page_session import PageSession, open_browser

PICTURES = CHECKOUT / "build/cockpit"
DESKTOP = (1000, 800)

pytestmark = [
    pytest.mark.programs,
    pytest.mark.skipif(not COCKPIT.exists(), reason="needs Cockpit: .ci/packages all installs it"),
]


def wait_for_text(page: PageSession, selector: str, text: str) -> None:
    """Wait until an element shows this text."""
    page.wait_for(f"document.querySelector('{selector}').innerText.includes({json.dumps(text)})")


def take_pictures(page: PageSession, name: str) -> None:
    """Save the page as it is into build/cockpit: of a desktop, and 400 pixels wide."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    is_entire = not page.evaluate("document.querySelector('#confirmation').open")
    page.take_picture(PICTURES / f"{name}.png", is_entire=is_entire)
    page.resize(400, 900)
    is_too_wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not page.evaluate(is_too_wide), name
    page.take_picture(PICTURES / f"{name}-400.png", is_entire=is_entire)
    page.resize(*DESKTOP)


def confirm(page: PageSession, button: str, picture: str) -> None:
    """Press a button, and confirm the change with the keyboard."""
    page.wait_for(f"!document.querySelector('{button}').disabled")
    page.tab_to(button)
    page.press("Enter")
    page.wait_for("document.querySelector('#confirmation').open")
    take_pictures(page, picture)
    page.tab_to("#confirm")
    page.press("Enter")


def test_page_tunes_and_restores_through_cockpit(
    built: Callable[[Described], Path], tmp_path: Path
) -> None:
    root = built(server())
    (root / "proc/diskstats").write_text("")
    depth = root / "sys/class/block/sdb/device/queue_depth"
    assert depth.read_text().split() == ["32"]
    with open_browser(tmp_path) as page, open_cockpit(root) as url:
        page.open(url, *DESKTOP)
        wait_for_text(page, "#headline", "is not set up")
        wait_for_text(page, "#disks", "sdl")
        take_pictures(page, "not-set-up")
        page.wait_for("document.querySelector('#profile').options.length > 1")
        page.tab_to("#profile")
        page.press(*"oltp")
        wait_for_text(page, "#plan-content", "24 to change")
        take_pictures(page, "plan")
        confirm(page, "#apply", "confirm-apply")
        wait_for_text(page, "#apply-result", "Applied oltp: 20 kept, 24 written")
        wait_for_text(page, "#apply-result", "improved")
        wait_for_text(page, "#headline", "is tuned until the next boot")
        take_pictures(page, "verdicts")
        assert depth.read_text().split() == ["64"]
        confirm(page, "#rollback", "confirm-rollback")
        wait_for_text(page, "#rollback-result", "Rolled back: 24 written, 8 kept")
        wait_for_text(page, "#headline", "was rolled back")
        take_pictures(page, "rolled-back")
        assert depth.read_text().split() == ["32"]
        assert page.problems == []
