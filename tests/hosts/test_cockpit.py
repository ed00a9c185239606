"""The page in Debian's Cockpit, in a browser, on a described machine with hbatune's own answers."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hosts.cockpit_host import COCKPIT, open_cockpit, server
from tests.hosts.tree import Described
from tests.page_session import PageSession, open_browser

pytestmark = [
    pytest.mark.programs,
    pytest.mark.skipif(not COCKPIT.exists(), reason="needs Cockpit: .ci/packages all installs it"),
]


def wait_for_text(page: PageSession, selector: str, text: str) -> None:
    """Wait until an element shows this text."""
    page.wait_for(f"document.querySelector('{selector}').innerText.includes({json.dumps(text)})")


def confirm(page: PageSession, button: str) -> None:
    """Press a button, and confirm the change with the keyboard."""
    page.wait_for(f"!document.querySelector('{button}').disabled")
    page.tab_to(button)
    page.press("Enter")
    page.wait_for("document.querySelector('#confirmation').open")
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
        page.open(url)
        wait_for_text(page, "#headline", "is not set up")
        wait_for_text(page, "#disks", "sdl")
        page.wait_for("document.querySelector('#profile').options.length > 1")
        page.tab_to("#profile")
        page.press(*"oltp")
        wait_for_text(page, "#plan-content", "24 to change")
        confirm(page, "#apply")
        wait_for_text(page, "#apply-result", "Applied oltp: 20 kept, 24 written")
        wait_for_text(page, "#apply-result", "improved")
        wait_for_text(page, "#headline", "is tuned until the next boot")
        assert depth.read_text().split() == ["64"]
        confirm(page, "#rollback")
        wait_for_text(page, "#rollback-result", "Rolled back: 24 written, 8 kept")
        wait_for_text(page, "#headline", "was rolled back")
        assert depth.read_text().split() == ["32"]
        assert page.problems == []
