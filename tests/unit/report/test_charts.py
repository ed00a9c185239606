"""Pictures: a title, axes with units, every point in its place, and names that stay text."""

from itertools import pairwise
from xml.etree.ElementTree import Element, fromstring

from markupsafe import Markup

from hbatune.report import charts
from hbatune.report.charts import Bar, ChartRow, Curves, Dot, Guide, Mark, Rows, Series
from hbatune.report.svg import (
    PICTURE_WIDTH,
    LegendEntry,
    Shape,
    make_linear_axis,
    make_log_axis,
    make_measured_axis,
)

HOSTILE = "<script>alert(1)</script>&\"'"
DEPTHS = (1, 2, 4, 8)


def parsed(picture: Markup) -> Element:
    return fromstring(picture)


def texts(svg: Element) -> list[str]:
    return [label.text or "" for label in svg.iter("text")]


def styled(svg: Element, style: str) -> list[Element]:
    return [element for element in svg.iter() if style in element.get("class", "").split()]


def number(element: Element, name: str) -> float:
    return float(element.get(name, "nan"))


def chart(*dots: Dot, **more: object) -> Element:
    series = Series("IOPS", dots)
    curves = Curves(
        "IOPS over depth",
        make_measured_axis("depth, I/Os in flight", DEPTHS),
        make_linear_axis("IOPS, I/Os per second", [dot.y for dot in dots]),
        (series,),
        **more,  # type: ignore[arg-type]
    )
    return parsed(charts.make_figure(curves, "").picture)


FOUR = tuple(Dot(deep, 100.0 * deep, str(deep)) for deep in DEPTHS)


def test_chart_names_title_and_units() -> None:
    svg = chart(*FOUR)
    assert svg.get("role") == "img"
    assert [title.text for title in svg.iter("title")] == ["IOPS over depth"]
    assert {"depth, I/Os in flight", "IOPS, I/Os per second"} <= set(texts(svg))


def test_points_follow_both_axes() -> None:
    marks = styled(chart(*FOUR), "mark")
    across = [number(mark, "cx") for mark in marks]
    down = [number(mark, "cy") for mark in marks]
    assert across == sorted(across)
    assert down == sorted(down, reverse=True)
    steps = [after - before for before, after in pairwise(across)]
    assert max(steps) - min(steps) < 0.2, "a logarithmic axis gives each doubling as much"


def test_doubted_point_is_hollow() -> None:
    svg = chart(*FOUR[:-1], Dot(8, 800, doubted=True))
    assert len(styled(svg, "doubted")) == 1


def test_knee_has_ring_and_guide() -> None:
    knee = Dot(4, 400, "knee: 4", chosen=True)
    svg = chart(*FOUR[:2], knee, FOUR[3], upright=Guide(4, "knee at 4"), band=(2, 8))
    [ring] = styled(svg, "chosen")
    [guide] = styled(svg, "guide")
    [band] = styled(svg, "band")
    assert number(ring, "cx") == number(guide, "x1")
    assert number(band, "x") < number(guide, "x1") < number(band, "x") + number(band, "width")
    assert {"knee: 4", "knee at 4"} <= set(texts(svg))


def test_overlapping_points_lose_labels() -> None:
    svg = chart(*(Dot(4, 400, f"label {index}") for index in range(9)))
    assert 0 < sum(text.startswith("label") for text in texts(svg)) < 9


def test_curves_differ_in_shape() -> None:
    series = tuple(Series(name, FOUR) for name in ("p50", "p99", "p99.9"))
    axis = make_log_axis("latency, ms", [dot.y for dot in FOUR])
    curves = Curves("x", make_measured_axis("d", DEPTHS), axis, series)
    svg = parsed(charts.make_figure(curves, "").picture)
    assert {"p50", "p99", "p99.9"} <= set(texts(svg))
    shapes = {mark.get("d", mark.tag) for mark in styled(svg, "mark")}
    assert len(shapes) == 3


def test_hostile_names_stay_text() -> None:
    svg = chart(Dot(4, 400, HOSTILE), level=Guide(300, HOSTILE), upright=Guide(4, HOSTILE))
    assert texts(svg).count(HOSTILE) >= 2
    assert not list(svg.iter("script"))


def strip(*chart_rows: ChartRow, **more: object) -> Element:
    axis = make_linear_axis("change, %", [-10, 10])
    keys = (LegendEntry("fine", "s0", Shape.CIRCLE),)
    row_chart = Rows("changes", axis, chart_rows, keys=keys, **more)  # type: ignore[arg-type]
    return parsed(charts.make_figure(row_chart, "").picture)


def test_row_shows_bar_and_mark() -> None:
    row = ChartRow(
        "IOPS", "+5 %", (Bar(0, 10, "s1"),), (Mark(5, LegendEntry("", "s2", Shape.SQUARE)),)
    )
    svg = strip(row, upright=Guide(0, "no change"))
    assert {"IOPS", "+5 %", "fine", "no change", "change, %"} <= set(texts(svg))
    [bar] = styled(svg, "s1")
    [mark] = [element for element in styled(svg, "s2") if element.tag == "path"]
    middle = number(bar, "x") + number(bar, "width") / 2
    assert mark.get("transform", "").startswith(f"translate({middle:.1f}".removesuffix(".0"))


def test_bar_ends_at_axis_edge() -> None:
    [bar] = styled(strip(ChartRow("IOPS", bars=(Bar(-1e9, 1e9, "s1"),))), "s1")
    assert 0 < number(bar, "x") < number(bar, "x") + number(bar, "width") <= PICTURE_WIDTH


def test_thin_rows_are_partly_named() -> None:
    svg = strip(*(ChartRow(f"irq {index}") for index in range(100)), pitch=4.0)
    named = [text for text in texts(svg) if text.startswith("irq")]
    assert named[0] == "irq 0"
    assert named[-1] == "irq 99"
    assert len(named) < 40


def test_long_row_name_is_cut() -> None:
    svg = strip(ChartRow("x" * 500), ChartRow(HOSTILE[:9]))
    assert any(text.endswith("…") for text in texts(svg))
    assert HOSTILE[:9] in texts(svg)
