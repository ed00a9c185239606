"""Draw charts as SVG: curves over two axes, and rows with bars and marks along one axis."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import ClassVar

from markupsafe import Markup
from msgspec import Struct, convert

from hbatune.render import render_template
from hbatune.report import svg
from hbatune.report.page import Figure
from hbatune.shipped import load_texts
from hbatune.text.units import format_digits

_PLOT = 200.0
_STYLES = ("s0", "s1", "s2", "s3", "s4")
MAX_SERIES = len(_STYLES)
_SHAPES = tuple(svg.Shape)
_SAMPLES = 12
"""Points sampled on each line segment. A label should cover as few of them as possible."""
_DENSE = 48
"""Points sampled on a guide, which crosses the entire plot."""

_MAX_NAMES_WIDTH = 190.0
_SIDE = 10.0
_NEAR = 3.0
"""Maximum ratio of a link's ceiling to the highest measured value, if the ceiling is drawn."""
_MIN_BAR_WIDTH = 2.0
"""Minimum width of a bar in pixels, to keep it visible."""


class Dot(Struct, frozen=True):
    """A measured point. A ``doubted`` point is hollow, the ``chosen`` point has a ring."""

    x: float
    y: float
    label: str = ""
    doubted: bool = False
    chosen: bool = False


class Series(Struct, frozen=True):
    """The points of one curve, in order. A nameless one is named after its y axis."""

    name: str
    dots: tuple[Dot, ...]


class Guide(Struct, frozen=True):
    """A value to highlight on one axis: a line across the plot, with a label."""

    value: float
    text: str


def _fit_axis(title: str, values: Iterable[float]) -> svg.Axis:
    """Return an axis over these values: logarithmic for a time in ms, otherwise from zero."""
    make_axis = svg.make_log_axis if title.endswith("ms") else svg.make_linear_axis
    return make_axis(title, values)


class Curves(Struct, dict=True):
    """A chart of series. ``band`` and ``upright`` mark the x axis, ``level`` marks the y axis."""

    TEMPLATE: ClassVar[str] = "curves.html.j2"
    title: str
    x: svg.Axis
    y: svg.Axis
    series: tuple[Series, ...]
    band: tuple[float, float] | None = None
    upright: Guide | None = None
    level: Guide | None = None

    def __post_init__(self) -> None:
        names = [series.name for series in self.series] if len(self.series) > 1 else []
        keys = list(map(svg.LegendEntry, names, _STYLES, _SHAPES))
        self.legend, high = svg.place_legend(keys, svg.LINE_HEIGHT + 4)
        top = svg.LINE_HEIGHT + 10 + high + (svg.LINE_HEIGHT if self.upright else 0)
        left = max(svg.estimate_width(tick.label) for tick in self.y.ticks) + 10
        right = svg.PICTURE_WIDTH - max(14.0, svg.estimate_width(self.x.ticks[-1].label) / 2)
        self.plot = svg.Box(left, top, right, top + _PLOT)
        self.upright_ticks = _place_ticks(self.x, self.place_x)
        self.level_ticks = _place_ticks(self.y, self.place_y, svg.LINE_HEIGHT)
        if self.upright is not None:
            x = self.place_x(self.upright.value)
            self.upright_label = _place_upright_label(self.upright, x, left)
        if self.level is not None:
            self.level_name = svg.fit_text(self.level.text, right - left - 8)
            self.level_box = self._place_level_box(self.place_y(self.level.value))

    def place_x(self, value: float) -> float:
        """Return the position of a value on the x axis."""
        return self.x.place(value, self.plot.left + 8, self.plot.right - 4)

    def place_y(self, value: float) -> float:
        """Return the position of a value on the y axis."""
        return self.y.place(value, self.plot.bottom, self.plot.top)

    @property
    def curves(self) -> Iterator[tuple[str, svg.Shape, list[tuple[Dot, float, float]]]]:
        """The style and shape of each curve, and its dots with their places."""
        for series, style, shape in zip(self.series, _STYLES, _SHAPES, strict=False):
            dots = [(dot, self.place_x(dot.x), self.place_y(dot.y)) for dot in series.dots]
            yield style, shape, dots

    def _place_level_box(self, y: float) -> svg.Box:
        """Return the box of a level line's label, at the end where it covers fewer points."""
        plot, across = self.plot, svg.estimate_width(self.level_name)
        boxes = []
        for top in (y - svg.LINE_HEIGHT, y + 2):
            bottom = top + svg.LINE_HEIGHT - 2
            if plot.top <= top and bottom <= plot.bottom:
                for left in (plot.right - across, plot.left + 6):
                    boxes.append(svg.Box(left, top, left + across, bottom))
        points = self._sample_lines()
        return min(boxes, key=lambda box: box.held(points))

    def list_labels(self) -> Iterator[tuple[Dot, svg.Box]]:
        """Yield the dots whose labels fit, with the boxes of these labels."""
        dots = chain.from_iterable(dots for _, _, dots in self.curves)
        # The label of the chosen point is placed first.
        placed = sorted(dots, key=lambda item: not item[0].chosen)
        obstacles = [svg.Box(x - 5, y - 5, x + 5, y + 5) for _, x, y in placed]
        if self.level is not None:
            obstacles.append(self.level_box)
        plot, lines = self.plot, self._sample_lines()
        frame = svg.Box(plot.left + 2, plot.top, svg.PICTURE_WIDTH, plot.bottom - 2)
        for dot, x, y in placed:
            box = svg.place_label(dot.label, (x, y), frame, obstacles, lines) if dot.label else None
            if box is not None:
                obstacles.append(box)
                yield dot, box

    def _sample_lines(self) -> list[tuple[float, float]]:
        plot, points = self.plot, list[tuple[float, float]]()
        for _, _, dots in self.curves:
            for (_, *start), (_, *end) in pairwise(dots):
                points += _sample_line(start, end, _SAMPLES)
        if self.upright is not None:
            x = self.place_x(self.upright.value)
            points += _sample_line((x, plot.top), (x, plot.bottom), _DENSE)
        if self.level is not None:
            y = self.place_y(self.level.value)
            points += _sample_line((plot.left, y), (plot.right, y), _DENSE)
        return points


def _sample_line(
    start: Sequence[float], end: Sequence[float], parts: int
) -> Iterator[tuple[float, float]]:
    (x1, y1), (x2, y2) = start, end
    for part in range(parts + 1):
        yield x1 + (x2 - x1) * part / parts, y1 + (y2 - y1) * part / parts


def _place_upright_label(guide: Guide, x: float, left: float) -> tuple[str, float]:
    """Return the label of a guide at ``x``, and its middle, with both ends right of ``left``."""
    name = svg.fit_text(guide.text, svg.PICTURE_WIDTH - left)
    half = svg.estimate_width(name) / 2
    return name, min(max(x, left + half), svg.PICTURE_WIDTH - half)


def _place_ticks(
    axis: svg.Axis, place: Callable[[float], float], size: float | None = None
) -> list[tuple[float, str]]:
    """Return the places of ticks, and the labels that fit, each with this size or its width."""
    places = [place(tick.value) for tick in axis.ticks]
    sizes = [size or svg.estimate_width(f"{tick.label} ") for tick in axis.ticks]
    visible = svg.select_apart(places, sizes)
    labels = [tick.label if number in visible else "" for number, tick in enumerate(axis.ticks)]
    return list(zip(places, labels, strict=True))


class Bar(Struct, frozen=True):
    """A range on the axis, drawn ``thickness`` pixels high."""

    low: float
    high: float
    style: str
    thickness: float = 2.0


class Mark(Struct, frozen=True):
    """A marked value, drawn as its entry in the legend. A ``doubted`` mark is hollow."""

    value: float
    key: svg.LegendEntry
    doubted: bool = False


class ChartRow(Struct, frozen=True):
    """A row: its name, an optional second line below it, bars and marks."""

    name: str
    note: str = ""
    bars: tuple[Bar, ...] = ()
    marks: tuple[Mark, ...] = ()


def make_spread_row(name: str, note: str, marks: Sequence[Mark]) -> ChartRow:
    """Return a row with a bar from its lowest to its highest mark."""
    values = [mark.value for mark in marks]
    bars = (Bar(min(values), max(values), "spread", 3),) if values else ()
    return ChartRow(name, note, bars, tuple(marks))


class Rows(Struct, dict=True):
    """A chart of rows, ``pitch`` pixels apart. ``bands`` are ranges on the axis behind all rows."""

    TEMPLATE: ClassVar[str] = "rows.html.j2"
    title: str
    axis: svg.Axis
    rows: tuple[ChartRow, ...]
    keys: tuple[svg.LegendEntry, ...] = ()
    pitch: float = 44.0
    bands: tuple[tuple[float, float], ...] = ()
    upright: Guide | None = None

    def __post_init__(self) -> None:
        self.legend, high = svg.place_legend(self.keys, 0)
        top = high + 8 + (svg.LINE_HEIGHT if self.upright else 0)
        names = chain.from_iterable((row.name, row.note) for row in self.rows)
        self._names = min(_MAX_NAMES_WIDTH, max(map(svg.estimate_width, names), default=0.0))
        # Half of each outer tick's label extends beyond the plot.
        first, last = self.axis.ticks[0].label, self.axis.ticks[-1].label
        left = max(self._names + 12, svg.estimate_width(first) / 2)
        right = svg.PICTURE_WIDTH - max(_SIDE, svg.estimate_width(last) / 2)
        self.plot = svg.Box(left, top, right, top + self.pitch * len(self.rows) + 6)
        self.upright_ticks = _place_ticks(self.axis, self.place_x)
        if self.upright is not None:
            x = self.place_x(self.upright.value)
            self.upright_label = _place_upright_label(self.upright, x, 0)

    def place_x(self, value: float) -> float:
        """Return the position of a value on the axis."""
        return self.axis.place(value, self.plot.left, self.plot.right)

    def list_rows(self) -> Iterator[tuple[ChartRow, float, list[tuple[str, str, float]]]]:
        """Yield each row, the middle of its height, and its texts with style and distance to it."""
        rows, top, pitch = self.rows, self.plot.top + 3, self.pitch
        middles = [top + (number + 0.5) * pitch for number in range(len(rows))]
        # Rows can be thinner than text. In this case only the names that fit are drawn.
        visible = svg.select_apart(middles, [svg.TEXT_SIZE] * len(rows))
        for number, (row, y) in enumerate(zip(rows, middles, strict=True)):
            name, note = svg.fit_text(row.name, self._names), svg.fit_text(row.note, self._names)
            shift = svg.LINE_HEIGHT / 2
            texts = [(name, "strong", -shift), (note, "tick", shift)]
            if not row.note:
                texts = [(name, "name", 0.0)]
            yield row, y, texts if number in visible else []


def _read_texts(name: str, notes: Iterable[str], facts: Mapping[str, object]) -> dict[str, str]:
    """Return the title, ``x``, ``y`` and caption of a picture with ``notes``, filled with facts."""
    shipped = load_texts("report.toml")
    facts = {**shipped["axes"], **facts}
    texts = {part: text.format(**facts) for part, text in shipped["pictures"][name].items()}
    sentences = [texts.get("caption", "")]
    for note in notes:
        sentences.append(shipped["notes"][note].format(**facts))
    return {"x": "", "y": "", **texts, "caption": " ".join(filter(None, sentences))}


def load_keys(name: str) -> tuple[svg.LegendEntry, ...]:
    """Return the legend of this ``name`` in templates/report.toml."""
    return convert(load_texts("report.toml")["keys"][name], tuple[svg.LegendEntry, ...])


def draw_curves(
    name: str,
    curves: Iterable[Series],
    x: svg.Axis | None = None,
    *,
    notes: Iterable[str] = (),
    band: tuple[float, float] | None = None,
    upright: Guide | None = None,
    level: Guide | None = None,
    ceiling: float | None = None,
    **facts: object,
) -> Figure:
    """Return the figure of this ``name`` in templates/report.toml, with these curves.

    Without ``x``, that axis covers the points. ``notes`` are sentences after the caption, and
    ``facts`` fill the texts. ``ceiling`` is the throughput of a link in GB/s.
    """
    series, names = tuple(curves), list(notes)
    dots = list(chain.from_iterable(curve.dots for curve in series))
    if ceiling is not None:
        names.append("link")
        facts["ceiling"] = format_digits(ceiling)
        # A far ceiling would flatten the curves.
        if ceiling <= _NEAR * max(dot.y for dot in dots):
            level = Guide(ceiling, f"link: {format_digits(ceiling)} GB/s")
    if any(dot.doubted for dot in dots):
        names.append("doubted")
    texts = _read_texts(name, names, facts)
    x = x or _fit_axis(texts["x"], [dot.x for dot in dots])
    highlights = [] if level is None else [level.value]
    y = _fit_axis(texts["y"], [*highlights, *(dot.y for dot in dots)])
    chart = Curves(texts["title"], x, y, series, band, upright, level)
    return make_figure(chart, texts["caption"])


def draw_rows(
    name: str,
    rows: Iterable[ChartRow],
    keys: Iterable[svg.LegendEntry],
    axis: svg.Axis | None = None,
    *,
    pitch: float = 44.0,
    bands: tuple[tuple[float, float], ...] = (),
    upright: Guide | None = None,
    notes: Iterable[str] = (),
    **facts: object,
) -> Figure:
    """Return the figure of this ``name`` with rows; the other values are as for ``draw_curves``."""
    drawn, names, values = tuple(rows), list(notes), list[float]()
    for row in drawn:
        values += [mark.value for mark in row.marks]
        values += chain.from_iterable((bar.low, bar.high) for bar in row.bars)
    if any(mark.doubted for row in drawn for mark in row.marks):
        names.append("doubted")
    texts = _read_texts(name, names, facts)
    axis = axis or _fit_axis(texts["x"], values)
    chart = Rows(texts["title"], axis, drawn, tuple(keys), pitch, bands, upright)
    return make_figure(chart, texts["caption"])


def make_figure(chart: Curves | Rows, caption: str) -> Figure:
    """Return a figure of a chart, named after its title."""
    text = render_template(
        "templates",
        chart.TEMPLATE,
        chart=chart,
        width=svg.PICTURE_WIDTH,
        line_height=svg.LINE_HEIGHT,
        key_width=svg.KEY_WIDTH,
        min_bar_width=_MIN_BAR_WIDTH,
    )
    # The template has escaped it: Markup prevents the page's template from escaping it again.
    return Figure(chart.title, Markup(text), caption)
