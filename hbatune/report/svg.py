"""Elements of SVG, and the layout of a chart.

Elements of SVG. Text cannot become markup: the serialiser escapes it.

Colours are in the page's style sheet, by class, so that they can follow light and dark.

The layout of a chart: axes with their ticks, and texts of which none overlaps another. Pure.

There is no font to measure with: widths are estimated for the widest font that browsers commonly
use for sans-serif (DejaVu Sans), so that texts turn out shorter than estimated, never longer.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from xml.etree.ElementTree import Element, tostring

from markupsafe import Markup
from msgspec import Struct

WIDTH = 460.0
"""The width of every picture: a phone scales it to three quarters, still readable."""
TEXT = 13.0
"""The font size in pixels; the style sheet must have the same."""
LINE = 18.0
_KEY = 22.0
"""The width of a legend's sign with its gap, in pixels."""


class Shape(StrEnum):
    """The shape of a point's mark; some readers cannot distinguish colours alone."""

    CIRCLE = "circle"
    SQUARE = "square"
    DIAMOND = "diamond"
    TRIANGLE = "triangle"
    CROSS = "cross"


_OUTLINES = {
    Shape.SQUARE: "M-3.8 -3.8H3.8V3.8H-3.8Z",
    Shape.DIAMOND: "M0 -5.4L5.4 0L0 5.4L-5.4 0Z",
    Shape.TRIANGLE: "M0 -5.2L5 3.8H-5Z",
    Shape.CROSS: "M-4.5 -1.5H-1.5V-4.5H1.5V-1.5H4.5V1.5H1.5V4.5H-1.5V1.5H-4.5Z",
}


class LegendEntry(Struct, frozen=True):
    """An entry of a legend: a mark of this shape, or a bar where it is None."""

    text: str
    style: str
    shape: Shape | None


def picture(title: str, height: float, parts: Iterable[Element]) -> Markup:
    """Return a whole picture; screen readers announce its ``title``."""
    svg = Element("svg", {"viewBox": f"0 0 {WIDTH:g} {round(height)}", "role": "img"})
    heading = Element("title")
    heading.text = title
    svg.append(heading)
    svg.extend(parts)
    # Already escaped by the serialiser: Markup keeps the template from escaping it once more.
    return Markup(tostring(svg, encoding="unicode"))


def text(content: str, x: float, y: float, style: str = "", anchor: str = "start") -> Element:
    """Return a text whose baseline starts, ends or is centred at the point."""
    found = _element("text", style, x=x, y=y)
    if anchor != "start":
        found.set("text-anchor", anchor)
    found.text = content
    return found


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> Element:
    """Return a straight line."""
    return _element("line", style, x1=x1, y1=y1, x2=x2, y2=y2)


def rectangle(x: float, y: float, across: float, high: float, style: str) -> Element:
    """Return a rectangle from its upper left corner."""
    return _element("rect", style, x=x, y=y, width=max(across, 0.0), height=high)


def polyline(points: Sequence[tuple[float, float]], style: str) -> Element:
    """Return the line through the points."""
    found = _element("polyline", style)
    found.set("points", " ".join(f"{_number(x)},{_number(y)}" for x, y in points))
    return found


def mark(shape: Shape, x: float, y: float, style: str) -> Element:
    """Return a mark centred on the point."""
    if shape is Shape.CIRCLE:
        return _element("circle", f"mark {style}", cx=x, cy=y, r=4.2)
    found = _element("path", f"mark {style}")
    found.set("d", _OUTLINES[shape])
    found.set("transform", f"translate({_number(x)} {_number(y)})")
    return found


def legend(keys: Sequence[LegendEntry], top: float) -> tuple[list[Element], float]:
    """Return a legend, broken into lines as needed, and its height."""
    found, x, y = list[Element](), 0.0, top
    for key in keys:
        name = fitted(key.text, WIDTH - _KEY, TEXT)
        across = _KEY + width(name, TEXT) + 12
        if x and x + across - 12 > WIDTH:
            x, y = 0.0, y + LINE
        middle = y + LINE / 2
        if key.shape is None:
            found.append(rectangle(x, middle - 4, 14, 8, key.style))
        else:
            found.append(line(x, middle, x + 16, middle, f"curve {key.style}"))
            found.append(mark(key.shape, x + 8, middle, key.style))
        found.append(text(name, x + _KEY, middle + 4.5))
        x += across
    return found, (y + LINE - top) if keys else 0.0


def _element(tag: str, style: str, **numbers: float) -> Element:
    found = Element(tag, {name: _number(value) for name, value in numbers.items()})
    if style:
        found.set("class", style)
    return found


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


_STEPS = (1.0, 2.0, 5.0)
"""Round steps for ticks (Heckbert, "Nice numbers for graph labels", Graphics Gems 1990)."""
_DECADES_FULL = 2.5
"""Decades up to which a logarithmic axis has room for 1, 2 and 5 of each."""
_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))

_NARROW, _WIDE = frozenset("iljtf.,:;'|!()[] "), frozenset("mwMW@%&—…µ")
_GAP = 9.0
"""Pixels between a point and its label."""
_HEIGHT = 1.17
"""The height of a text over its font size, from the ascent to the descent of DejaVu Sans."""
ELLIPSIS = "…"


class Tick(Struct, frozen=True):
    """A marked value on an axis, and its label."""

    value: float
    label: str


class Axis(Struct, frozen=True):
    """The range of an axis with its ticks; ``title`` names its quantity and unit."""

    title: str
    low: float
    high: float
    ticks: tuple[Tick, ...]
    logarithmic: bool = False

    def place(self, value: float, start: float, end: float) -> float:
        """Return the position of a value on an axis drawn from ``start`` to ``end``.

        A value beyond the axis is put at its end.
        """
        held = min(max(value, self.low), self.high)
        low, high = self.low, self.high
        if self.logarithmic:
            held, low, high = math.log(held), math.log(low), math.log(high)
        return start + (held - low) / (high - low) * (end - start)


def linear(title: str, values: Iterable[float], *, count: int = 5, whole: bool = False) -> Axis:
    """Return an axis from zero, or the least negative value, to just beyond the greatest value.

    It has about ``count`` ticks; with ``whole`` their distance is at least one.
    """
    found = [0.0, *values]
    low, high = min(found), max(found)
    if low == high:
        high = 1.0
    step = _nice((high - low) / count)
    step = max(1.0, step) if whole else step
    # The small terms keep rounding errors from adding an empty step at either end.
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [number * step for number in range(first, last + 1)]
    return Axis(title, ticks[0], ticks[-1], _labelled(ticks, step))


def logarithmic(title: str, values: Iterable[float]) -> Axis:
    """Return an axis over positive values, in steps of 1, 2 and 5 where they fit, else of 10.

    ValueError where no value is positive.
    """
    found = [value for value in values if value > 0]
    low, high = _below(min(found)), _above(max(found))
    if low >= high:
        # A single value, or values on one step, still need an axis with a length.
        high = _above(low * 1.01)
    full = math.log10(high / low) <= _DECADES_FULL
    ticks = _decades(low, high, _STEPS if full else _STEPS[:1])
    return Axis(title, low, high, tuple(Tick(tick, plain(tick)) for tick in ticks), True)


def measured(title: str, labels: Mapping[int, str]) -> Axis:
    """Return a logarithmic axis with a tick at each value that was measured, all positive."""
    ticks = tuple(Tick(value, labels[value]) for value in sorted(labels))
    low, high = ticks[0].value, ticks[-1].value
    if low == high:
        low, high = low / 2, high * 2
    return Axis(title, low, high, ticks, True)


def plain(value: float) -> str:
    """Return a number in short form: ``0.5``, ``20``, ``1.5k``."""
    factor, prefix = next((each for each in _PREFIXES if abs(value) >= each[0]), (1.0, ""))
    return f"{value / factor:.3g}{prefix}"


def _labelled(ticks: list[float], step: float) -> tuple[Tick, ...]:
    """Write all ticks of an axis with the same prefix and the same decimals."""
    most = max(map(abs, ticks))
    factor, prefix = next((each for each in _PREFIXES if most >= 2 * each[0]), (1.0, ""))
    decimals = max(0, -math.floor(math.log10(step / factor) + 1e-9))
    return tuple(
        Tick(value, f"{value / factor:.{decimals}f}{prefix}" if value else "0") for value in ticks
    )


def _nice(rough: float) -> float:
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next((each * power for each in _STEPS if each * power >= rough * 0.999), 10 * power)


def _below(value: float) -> float:
    power: float = 10.0 ** math.floor(math.log10(value) + 1e-9)
    return max(each * power for each in _STEPS if each * power <= value * (1 + 1e-9))


def _above(value: float) -> float:
    power: float = 10.0 ** math.floor(math.log10(value) + 1e-9)
    return min(each * power for each in (*_STEPS, 10.0) if each * power >= value * (1 - 1e-9))


def _decades(low: float, high: float, steps: Iterable[float]) -> list[float]:
    powers = range(math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9) + 1)
    every = [step * 10.0**power for power in powers for step in steps]
    return sorted(each for each in every if low * 0.999 <= each <= high * 1.001)


class Box(Struct, frozen=True):
    """A rectangle, y growing downwards as in SVG."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "Box") -> bool:
        """Whether the two share more than an edge."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom

    def within(self, other: "Box") -> bool:
        """Whether it lies wholly inside the other."""
        across = other.left <= self.left and self.right <= other.right
        return across and other.top <= self.top and self.bottom <= other.bottom

    def held(self, points: Iterable[tuple[float, float]]) -> int:
        """Return how many of the points lie in it."""
        # Without a call for each point: there are thousands of them, for each of many boxes.
        left, top, right, bottom = self.left, self.top, self.right, self.bottom
        return sum(1 for x, y in points if left <= x <= right and top <= y <= bottom)


class Wish(Struct, frozen=True):
    """A point that wants a label beside it."""

    x: float
    y: float
    text: str


def width(text: str, size: float) -> float:
    """Return the greatest width of a text in pixels, in a font of this size."""
    return size * sum(map(_em, text))


def _em(char: str) -> float:
    if char in _NARROW:
        return 0.42
    if char in _WIDE:
        return 1.0
    if char.isupper():
        return 0.76
    return 0.65 if char.isascii() else 1.05


def fitted(text: str, room: float, size: float) -> str:
    """Return the text, cut with an ellipsis where it is wider than there is room."""
    if width(text, size) <= room:
        return text
    while text and width(text + ELLIPSIS, size) > room:
        text = text[:-1]
    return text + ELLIPSIS


def centred(text: str, x: float, baseline: float, size: float) -> Box:
    """Return the box of a text in the middle of ``x``."""
    half = width(text, size) / 2
    return Box(x - half, baseline - 0.8 * size, x + half, baseline + 0.25 * size)


def apart(boxes: Sequence[Box]) -> list[int]:
    """Return the numbers of the boxes that can stay without overlap.

    The first and the last have priority, then earlier ones over later ones.
    """
    order = [*dict.fromkeys((0, len(boxes) - 1)), *range(1, len(boxes) - 1)] if boxes else []
    kept: list[int] = []
    for number in order:
        if not any(boxes[number].overlaps(boxes[other]) for other in kept):
            kept.append(number)
    return sorted(kept)


def beside(
    wishes: Iterable[Wish],
    frame: Box,
    taken: Sequence[Box],
    lines: Sequence[tuple[float, float]],
    size: float,
) -> list[Box | None]:
    """Return the place of each wish's label, None where there is no room; earlier ones go first.

    A label lies within ``frame`` and overlaps neither a box in ``taken`` nor another label. Of the
    free places it takes the one that covers the fewest points of ``lines``.
    """
    occupied, found = list(taken), list[Box | None]()
    for wish in wishes:
        free = [
            box
            for box in _around(wish, size)
            if box.within(frame) and not any(box.overlaps(other) for other in occupied)
        ]
        best = min(free, key=lambda box: box.held(lines), default=None)
        occupied += [] if best is None else [best]
        found.append(best)
    return found


def _around(wish: Wish, size: float) -> list[Box]:
    """Return the places beside a point: above, right, left, below, and the four corners."""
    across, high = width(wish.text, size), _HEIGHT * size
    middles = [(0, -1), (1, 0), (-1, 0), (0, 1), (1, -1), (-1, -1), (1, 1), (-1, 1)]
    boxes = []
    for right, down in middles:
        part = 0.7 if right and down else 1.0
        x = wish.x + right * (part * _GAP + across / 2)
        y = wish.y + down * (part * _GAP + high / 2)
        boxes.append(Box(x - across / 2, y - high / 2, x + across / 2, y + high / 2))
    return boxes
