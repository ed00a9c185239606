"""The sections on adapters and interrupts."""

from tests.unit.report.parsed_page import Parsed


def test_slow_links_are_reported(full: Parsed) -> None:
    assert "link 8 GT/s x8 where 16 GT/s x16 can be" in full.text["adapters"]
    assert "sda..sdl (12)" in full.text["adapters"]
    assert "Isolated CPUs: 30-31" in full.text["interrupts"]
    assert "nvme0q1" in full.text["interrupts"]
