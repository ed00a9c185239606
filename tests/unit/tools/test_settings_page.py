"""docs/settings.md is what the table of settings says."""

from pathlib import Path

from hbatune.settings.table import SETTINGS
from tools.settings_page import page

PAGE = Path(__file__).resolve().parents[3] / "docs" / "settings.md"


def test_page_is_current() -> None:
    assert PAGE.read_text() == page(), "make docs"


def test_settings_cite_kernel_source() -> None:
    text = page()
    for name, setting in SETTINGS.items():
        assert f"\n### {name}\n" in text
        assert f"- in the kernel: {setting.source}\n" in text


def test_device_limit_is_explained() -> None:
    assert "limit of the device: Whole pages of 4 KiB" in page()
