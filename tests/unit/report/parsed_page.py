"""A report as a page, and its elements."""

from html.parser import HTMLParser

from hbatune.report.page import ReportData
from hbatune.report.summary import make_sections, render_page


class Parsed(HTMLParser):
    """The elements of a page with their attributes, and the text of each section."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, str] = {"": ""}
        self._in = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        # Sections without data are in a list of their own.
        if tag == "section" or (tag == "div" and "id" in attributes):
            self._in = attributes["id"] or ""
            self.text[self._in] = ""

    def handle_data(self, data: str) -> None:
        self.text[self._in] += f"{data.strip()} " if data.strip() else ""

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def make_html(report: ReportData) -> str:
    """Return the page of a report."""
    return render_page(report, make_sections(report))


def parse_report(report: ReportData) -> Parsed:
    """Return the elements of a report's page."""
    return Parsed(make_html(report))
