"""Draws a chart of curves over two axes. Pure."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from xml.etree.ElementTree import Element

from markupsafe import Markup
from msgspec import Struct

from hbatune.report.charts import svg
from hbatune.report.charts.axis import Axis
from hbatune.report.charts.labels import Box, Wish, apart, beside, centred, width
from hbatune.report.charts.svg import LINE, TEXT, WIDTH, LegendEntry, Shape

_PLOT = 200.0
_STYLES = ("s0", "s1", "s2", "s3", "s4")
MOST = len(_STYLES)
"""The most series in one chart."""
_SHAPES = tuple(Shape)
_SAMPLES = 12
"""Points sampled on each line segment, of which a label should cover as few as possible."""


class Dot(Struct, frozen=True):
    """A measured point; ``doubted`` ones are drawn hollow, the ``chosen`` one has a ring."""

    x: float
    y: float
    label: str = ""
    doubted: bool = False
    chosen: bool = False


class Series(Struct, frozen=True):
    """The points of one curve, in the order of its line."""

    name: str
    dots: tuple[Dot, ...]


class Guide(Struct, frozen=True):
    """A value to highlight on one axis: a line across the plot, with a label."""

    value: float
    text: str


class Curves(Struct, frozen=True):
    """The content of a chart: at most ``MOST`` series, and highlights.

    ``band`` is a range on the x axis; ``upright`` is a guide on the x axis, ``level`` on the y.
    """

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    band: tuple[float, float] | None = None
    upright: Guide | None = None
    level: Guide | None = None


def draw(chart: Curves) -> Markup:
    """Return the chart as a picture."""
    return _Drawing(chart).picture()


class _Drawing:
    """The layout of one chart, from which its picture is made."""

    def __init__(self, chart: Curves) -> None:
        self._chart = chart
        several = len(chart.series) > 1
        names = zip(chart.series, _STYLES, _SHAPES, strict=False)
        keys = (
            [LegendEntry(each.name, style, shape) for each, style, shape in names]
            if several
            else []
        )
        self._legend, high = svg.legend(keys, LINE + 4)
        top = LINE + 10 + high + (LINE if chart.upright else 0)
        left = max(width(tick.label, TEXT) for tick in chart.y.ticks) + 10
        right = WIDTH - max(14.0, width(chart.x.ticks[-1].label, TEXT) / 2)
        self._plot = Box(left, top, right, top + _PLOT)

    def picture(self) -> Markup:
        height = self._plot.bottom + 2 * LINE + 8
        parts = [*self._frame(), *self._legend, *self._guides(), *self._curves(), *self._labels()]
        return svg.picture(self._chart.title, height, parts)

    def _at(self, dot: Dot) -> tuple[float, float]:
        return self._x(dot.x), self._y(dot.y)

    def _x(self, value: float) -> float:
        return self._chart.x.place(value, self._plot.left + 8, self._plot.right - 4)

    def _y(self, value: float) -> float:
        return self._chart.y.place(value, self._plot.bottom, self._plot.top)

    def _frame(self) -> Iterator[Element]:
        chart, plot = self._chart, self._plot
        yield svg.text(chart.y.title, 0, LINE - 5, "axis")
        if chart.band is not None:
            low, high = map(self._x, chart.band)
            yield svg.rectangle(low, plot.top, high - low, plot.bottom - plot.top, "band")
        for tick in chart.y.ticks:
            y = self._y(tick.value)
            yield svg.line(plot.left, y, plot.right, y, "grid")
            yield svg.text(tick.label, plot.left - 6, y + 4.5, "tick", "end")
        yield svg.line(plot.left, plot.bottom, plot.right, plot.bottom, "base")
        yield from upright_ticks(chart.x, self._x, plot)

    def _guides(self) -> Iterator[Element]:
        upright, level, plot = self._chart.upright, self._chart.level, self._plot
        if upright is not None:
            x = self._x(upright.value)
            yield svg.line(x, plot.top - 4, x, plot.bottom, "guide")
            half = width(upright.text, TEXT) / 2
            middle = min(max(x, plot.left + half), WIDTH - half)
            yield svg.text(upright.text, middle, plot.top - 8, "strong", "middle")
        if level is not None:
            y = self._y(level.value)
            yield svg.line(plot.left, y, plot.right, y, "guide")
            box = self._level_box(level)
            yield svg.text(level.text, box.left, box.bottom - 4, "strong")

    def _level_box(self, level: Guide) -> Box:
        """Return the place of a level line's label: the end of the line where it covers least."""
        y, across, plot = self._y(level.value), width(level.text, TEXT), self._plot
        boxes = [
            Box(left, top, left + across, top + LINE - 2)
            for top in (y - LINE, y + 2)
            for left in (plot.right - across, plot.left + 6)
            if plot.top <= top and top + LINE - 2 <= plot.bottom
        ]
        points = self._trace()
        return min(boxes, key=lambda box: box.held(points))

    def _curves(self) -> Iterator[Element]:
        for series, style, shape in zip(self._chart.series, _STYLES, _SHAPES, strict=False):
            yield svg.polyline([self._at(dot) for dot in series.dots], f"curve {style}")
            for dot in series.dots:
                x, y = self._at(dot)
                if dot.chosen:
                    yield svg.mark(Shape.CIRCLE, x, y, "chosen")
                yield svg.mark(shape, x, y, f"{style} doubted" if dot.doubted else style)

    def _labels(self) -> Iterator[Element]:
        dots = [dot for series in self._chart.series for dot in series.dots]
        # The chosen one first, so that its label finds room before all others.
        wishes = [dot for dot in sorted(dots, key=lambda dot: not dot.chosen) if dot.label]
        points = [self._at(dot) for dot in dots]
        taken = [Box(x - 5, y - 5, x + 5, y + 5) for x, y in points]
        if self._chart.level is not None:
            taken.append(self._level_box(self._chart.level))
        plot = self._plot
        frame = Box(plot.left + 2, plot.top, WIDTH, plot.bottom - 2)
        asked = [Wish(*self._at(dot), dot.label) for dot in wishes]
        for dot, box in zip(wishes, beside(asked, frame, taken, self._trace(), TEXT), strict=True):
            if box is not None:
                middle = (box.left + box.right) / 2
                style = "strong" if dot.chosen else "dot"
                yield svg.text(dot.label, middle, box.bottom - 2.5, style, "middle")

    def _trace(self) -> list[tuple[float, float]]:
        """Return points along the lines."""
        return [
            (x1 + (x2 - x1) * part / _SAMPLES, y1 + (y2 - y1) * part / _SAMPLES)
            for series in self._chart.series
            for (x1, y1), (x2, y2) in pairwise([self._at(dot) for dot in series.dots])
            for part in range(_SAMPLES + 1)
        ]


def upright_ticks(axis: Axis, place: Callable[[float], float], plot: Box) -> Iterator[Element]:
    """Yield the ticks below a plot, the labels that have room, and the axis's title."""
    places = [place(tick.value) for tick in axis.ticks]
    baseline = plot.bottom + LINE
    boxes = [
        centred(f"{tick.label} ", x, baseline, TEXT)
        for tick, x in zip(axis.ticks, places, strict=True)
    ]
    kept = set(apart(boxes))
    for number, (tick, x) in enumerate(zip(axis.ticks, places, strict=True)):
        yield svg.line(x, plot.bottom, x, plot.bottom + 4, "base")
        if number in kept:
            yield svg.text(tick.label, x, baseline, "tick", "middle")
    yield svg.text(axis.title, plot.right, baseline + LINE, "axis", "end")
