"""Makes the figures of charts: the picture, its caption, and the values that it shows."""

from collections.abc import Iterator

from hbatune.report.charts import Curves, Rows, draw_curves, draw_rows
from hbatune.report.page import Figure, ShownValue


def curves_figure(chart: Curves, caption: str) -> Figure:
    """Return the figure of curves over two axes, named by the chart's title."""
    return Figure(chart.title, draw_curves(chart), caption, tuple(_points(chart)))


def rows_figure(chart: Rows, caption: str) -> Figure:
    """Return the figure of rows along one axis, named by the chart's title."""
    return Figure(chart.title, draw_rows(chart), caption, tuple(_signs(chart)))


def _points(chart: Curves) -> Iterator[ShownValue]:
    for series in chart.series:
        for dot in series.dots:
            yield ShownValue(
                *(series.name, dot.label, chart.x.title, dot.x),
                y_axis=chart.y.title,
                y=dot.y,
                trusted=not dot.doubted,
            )


def _signs(chart: Rows) -> Iterator[ShownValue]:
    keys = {(key.style, key.shape): key.text for key in chart.keys}
    for row in chart.rows:
        name = " ".join(filter(None, (row.name, row.note)))
        for bar in row.bars:
            sign = keys.get((bar.style, None), "range")
            yield ShownValue(name, sign, chart.axis.title, bar.low, bar.high)
        for mark in row.marks:
            sign = keys.get((mark.style, mark.shape), "")
            trusted = not mark.doubted
            yield ShownValue(name, sign, chart.axis.title, mark.value, trusted=trusted)
