"""The values of all pictures of a page as comma-separated values, for other programs to draw."""

from collections.abc import Iterator

from hbatune.cli.text.csv import Field, csv_text
from hbatune.report.page import Page

HEAD = (
    *("section", "part", "picture", "series", "sign"),
    *("x_axis", "x", "x_end", "y_axis", "y", "trusted"),
)
"""The columns: where a value stands on the page, and the fields of ``ShownValue``."""


def values_csv(page: Page) -> str:
    """Return a line for each point, mark and bar that the page's pictures show."""
    return csv_text(HEAD, _rows(page))


def _rows(page: Page) -> Iterator[tuple[Field, ...]]:
    for section in page.sections:
        for block in section.blocks:
            for figure in block.figures:
                for each in figure.values:
                    where = (section.name, block.name, figure.name, each.series, each.sign)
                    place = (each.x_axis, each.x, each.x_end, each.y_axis, each.y)
                    yield (*where, *place, "yes" if each.trusted else "no")
