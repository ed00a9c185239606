"""Whatever is drawn, no text lies on another or outside of its picture.

The boxes are computed from the picture itself, with letters as wide as they come
(``layout.width``), so that what holds here holds in any browser.
"""

from collections.abc import Callable
from itertools import combinations
from xml.etree.ElementTree import Element, fromstring

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from markupsafe import Markup

from hbatune.report.charts import (
    MAX_SERIES,
    Bar,
    ChartRow,
    Curves,
    Dot,
    Guide,
    Mark,
    Rows,
    Series,
    make_figure,
)
from hbatune.report.page import ReportData
from hbatune.report.summary import make_sections
from hbatune.report.svg import (
    TEXT_SIZE,
    Axis,
    Box,
    LegendEntry,
    Shape,
    estimate_width,
    make_linear_axis,
    make_log_axis,
    make_measured_axis,
)
from tests.unit import report_server as reported

SLACK = 1.0
"""Pixels by which boxes may touch: letters seldom fill their whole height."""
ASCENT, DESCENT = 0.8, 0.22
"""Of digits and capitals, and of letters that go below the line, in DejaVu Sans."""

names = st.one_of(
    st.text(st.characters(codec="ascii", categories=("L", "N", "P", "Zs")), max_size=20),
    st.sampled_from(("W" * 60, "a-very-long-name-" * 12)),
)
figures = st.floats(1e-3, 1e9)
CIRCLE = LegendEntry("p99", "s1", Shape.CIRCLE)


def box(text: Element) -> Box:
    """Return the area that a text of a chart takes."""
    x, y = float(text.get("x", "nan")), float(text.get("y", "nan"))
    across = estimate_width(text.text or "")
    start = {"middle": x - across / 2, "end": x - across}.get(text.get("text-anchor", ""), x)
    return Box(start, y - ASCENT * TEXT_SIZE, start + across, y + DESCENT * TEXT_SIZE)


def smaller(outer: Box) -> Box:
    return Box(outer.left + SLACK, outer.top + SLACK, outer.right - SLACK, outer.bottom - SLACK)


def all_have_room(picture: Markup) -> None:
    svg = fromstring(picture)
    _, _, across, high = map(float, svg.get("viewBox", "").split())
    texts = [
        (element.text, box(element)) for element in svg.iter("text") if (element.text or "").strip()
    ]
    frame = Box(-SLACK, -SLACK, across + SLACK, high + SLACK)
    assert [text for text, place in texts if not place.within(frame)] == [], "outside"
    clashes = [
        (first_text, second_text)
        for (first_text, first), (second_text, second) in combinations(texts, 2)
        if smaller(first).overlaps(smaller(second))
    ]
    assert clashes == []


@st.composite
def curves(draw: st.DrawFn) -> Curves:
    """Return one to five curves of 1 to 500 points, with guides or without."""
    count = draw(st.sampled_from((1, 2, 7, 60, 500)))
    series = []
    for _ in range(draw(st.integers(1, MAX_SERIES))):
        low, step, rise = draw(figures), draw(st.floats(1.0, 1.5)), draw(st.floats(0.8, 1.3))
        dots = tuple(
            Dot(
                min(1e9, (number + 1) * step),
                min(1e12, max(1e-6, low * rise**number)),
                draw(names) if number < 3 else str(number) if number % 20 == 0 else "",
                chosen=number == 1,
            )
            for number in range(count)
        )
        series.append(Series(draw(names), dots))
    x = [dot.x for curve in series for dot in curve.dots]
    y = [dot.y for curve in series for dot in curve.dots]
    over: Axis = make_linear_axis("IOPS, I/Os per second", x)
    if draw(st.booleans()):
        over = make_measured_axis("depth, I/Os in flight", map(round, x))
    upright = Guide(draw(st.sampled_from(x)), draw(names)) if draw(st.booleans()) else None
    level = Guide(draw(st.sampled_from(y)), draw(names)) if draw(st.booleans()) else None
    axis = draw(st.sampled_from((make_linear_axis, make_log_axis)))("latency, ms", y)
    return Curves("a chart", over, axis, tuple(series), upright=upright, level=level)


@st.composite
def rows(draw: st.DrawFn) -> Rows:
    """Return 1 to 200 rows, thick and thin, with names of any length."""
    count = draw(st.sampled_from((1, 2, 40, 200)))
    row_names = draw(st.lists(names, min_size=1, max_size=4))
    chart_rows = [
        ChartRow(
            row_names[number % len(row_names)],
            draw(names) if number < 2 else "",
            (Bar(1.0, draw(figures) + 1, "s0"),),
            (Mark(draw(figures), CIRCLE),),
        )
        for number in range(min(count, 8))
    ]
    chart_rows *= max(1, count // len(chart_rows))
    values = [mark.value for row in chart_rows for mark in row.marks]
    axis = draw(st.sampled_from((make_linear_axis, make_log_axis)))("GB/s", values)
    keys = tuple(
        LegendEntry(name, "s0", draw(st.sampled_from((None, *Shape))))
        for name in draw(st.lists(names, max_size=6))
    )
    noted = any(row.note for row in chart_rows)
    pitch = 46.0 if noted else draw(st.sampled_from((4.0, 26.0, 44.0)))
    upright = Guide(draw(st.sampled_from(values)), draw(names)) if draw(st.booleans()) else None
    return Rows("a chart", axis, tuple(chart_rows), keys, pitch, upright=upright)


# A chart of 500 points takes minutes to be made smaller: a failure is shown as it was found.
FOUND = (Phase.explicit, Phase.generate)


@settings(max_examples=25, deadline=None, phases=FOUND)
@given(curves())
def test_curves_leave_room_for_text(chart: Curves) -> None:
    all_have_room(make_figure(chart, "").picture)


@settings(max_examples=25, deadline=None, phases=FOUND)
@given(rows())
def test_rows_leave_room_for_text(chart: Rows) -> None:
    all_have_room(make_figure(chart, "").picture)


def test_wide_tick_label_fits() -> None:
    row = ChartRow("", marks=(Mark(0.001, CIRCLE), Mark(1.0, CIRCLE)))
    chart = Rows("a chart", make_log_axis("GB/s", [0.001, 1.0]), (row,))
    all_have_room(make_figure(chart, "").picture)


@pytest.mark.parametrize("data", [reported.seen, reported.crowded, reported.many_adapters])
def test_report_pictures_fit_text(
    data: Callable[[], ReportData],
) -> None:
    pictures = [
        figure.picture
        for section in make_sections(data())
        for block in section.blocks
        for figure in block.figures
    ]
    assert len(pictures) > 10
    for picture in pictures:
        all_have_room(picture)
