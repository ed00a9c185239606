"""docs/settings.md is what the table of settings says."""

from pathlib import Path

from hbatune.settings.table import SETTINGS
from tools.settings_page import page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "make docs"


def test_every_setting_has_a_section_with_its_source_in_the_kernel() -> None:
    text = page()
    for name, found in SETTINGS.items():
        assert f"\n### {name}\n" in text
        assert f"- in the kernel: {found.source}\n" in text


def test_the_limit_of_a_device_is_said_in_words() -> None:
    assert "limit of the device: Whole pages of 4 KiB" in page()
