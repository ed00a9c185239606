"""Draws a chart of rows: each has a name, and bars and marks along one axis. Pure."""

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from markupsafe import Markup
from msgspec import Struct

from hbatune.report.charts import svg
from hbatune.report.charts.axis import Axis
from hbatune.report.charts.curve import Guide, upright_ticks
from hbatune.report.charts.labels import Box, apart, fitted, width
from hbatune.report.charts.svg import LINE, TEXT, WIDTH, LegendEntry, Shape

_NAMES = 190.0
"""The most pixels that names may take."""
_SIDE = 10.0
_SEEN = 2.0
"""The least width of a bar in pixels, so that it stays visible."""


class Bar(Struct, frozen=True):
    """A range on the axis, drawn ``thickness`` pixels high."""

    low: float
    high: float
    style: str
    thickness: float = 2.0


class Mark(Struct, frozen=True):
    """A marked value."""

    value: float
    shape: Shape
    style: str


class ChartRow(Struct, frozen=True):
    """A row: its name, an optional second line below it, bars and marks."""

    name: str
    note: str = ""
    bars: tuple[Bar, ...] = ()
    marks: tuple[Mark, ...] = ()


class Rows(Struct, frozen=True):
    """The content of a chart; ``pitch`` is the distance from row to row in pixels.

    ``bands`` are ranges on the axis behind all rows, and ``upright`` is a value to highlight.
    """

    title: str
    axis: Axis
    rows: tuple[ChartRow, ...]
    keys: tuple[LegendEntry, ...] = ()
    pitch: float = 26.0
    bands: tuple[tuple[float, float], ...] = ()
    upright: Guide | None = None


def draw(chart: Rows) -> Markup:
    """Return the chart as a picture."""
    return _Drawing(chart).picture()


class _Drawing:
    """The layout of one chart, from which its picture is made."""

    def __init__(self, chart: Rows) -> None:
        self._chart = chart
        self._legend, high = svg.legend(chart.keys, 0)
        top = high + 8 + (LINE if chart.upright else 0)
        names = [text for row in chart.rows for text in (row.name, row.note)]
        self._names = min(_NAMES, max(width(each, TEXT) for each in names))
        right = WIDTH - max(_SIDE, width(chart.axis.ticks[-1].label, TEXT) / 2)
        bottom = top + chart.pitch * len(chart.rows) + 6
        self._plot = Box(self._names + 12, top, right, bottom)

    def picture(self) -> Markup:
        height = self._plot.bottom + 2 * LINE + 8
        return svg.picture(self._chart.title, height, [*self._frame(), *self._legend, *self._all()])

    def _x(self, value: float) -> float:
        return self._chart.axis.place(value, self._plot.left, self._plot.right)

    def _middle(self, number: int) -> float:
        return self._plot.top + 3 + (number + 0.5) * self._chart.pitch

    def _frame(self) -> Iterator[Element]:
        chart, plot = self._chart, self._plot
        for low, high in chart.bands:
            x = self._x(low)
            yield svg.rectangle(x, plot.top, self._x(high) - x, plot.bottom - plot.top, "band")
        for tick in chart.axis.ticks:
            x = self._x(tick.value)
            yield svg.line(x, plot.top, x, plot.bottom, "grid")
        yield svg.line(plot.left, plot.bottom, plot.right, plot.bottom, "base")
        yield from upright_ticks(chart.axis, self._x, plot)
        if chart.upright is not None:
            x = self._x(chart.upright.value)
            half = width(chart.upright.text, TEXT) / 2
            middle = min(x, WIDTH - half)
            yield svg.line(x, plot.top - 4, x, plot.bottom, "guide")
            yield svg.text(chart.upright.text, middle, plot.top - 8, "strong", "middle")

    def _all(self) -> Iterator[Element]:
        rows = self._chart.rows
        boxes = [
            Box(0, self._middle(number) - TEXT / 2, 1, self._middle(number) + TEXT / 2)
            for number in range(len(rows))
        ]
        # Rows can be thinner than text; then only as many names are written as have room.
        named = set(apart(boxes))
        for number, row in enumerate(rows):
            y = self._middle(number)
            if number in named:
                yield from self._name(row, y)
            yield from self._drawn(row, y)

    def _name(self, row: ChartRow, y: float) -> Iterator[Element]:
        shift = LINE / 2 if row.note else 0
        name = fitted(row.name, self._names, TEXT)
        yield svg.text(name, 0, y + 4.5 - shift, "strong" if row.note else "name")
        if row.note:
            yield svg.text(fitted(row.note, self._names, TEXT), 0, y + 4.5 + shift, "tick")

    def _drawn(self, row: ChartRow, y: float) -> Iterator[Element]:
        for bar in row.bars:
            x = self._x(bar.low)
            across = max(self._x(bar.high) - x, _SEEN)
            yield svg.rectangle(x, y - bar.thickness / 2, across, bar.thickness, bar.style)
        for each in row.marks:
            yield svg.mark(each.shape, self._x(each.value), y, each.style)
