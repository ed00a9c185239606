"""The layout of a chart: axes with ticks, a legend, and labels that do not overlap. Pure.

The templates of charts draw it. Text cannot become markup, because they escape it. The page's style
sheet sets the colours by class, for light and dark mode.

Text widths are estimates, since no font is available. They use the widest common sans-serif font
(DejaVu Sans), so a text may be shorter than estimated, but never longer.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

from msgspec import Struct

PICTURE_WIDTH = 460.0
"""The width of every picture. A phone scales it to three quarters, which is still readable."""
TEXT_SIZE = 13.0
"""The font size in pixels. The style sheet must use the same size."""
LINE_HEIGHT = 18.0
KEY_WIDTH = 22.0
"""The width of a legend's mark with its gap, in pixels."""


class Shape(StrEnum):
    """The shape of a point's mark, for readers who cannot distinguish the colours."""

    CIRCLE = "circle"
    SQUARE = "square"
    DIAMOND = "diamond"
    TRIANGLE = "triangle"
    CROSS = "cross"


class LegendEntry(Struct, frozen=True):
    """An entry of a legend: a mark of this shape, or a bar if ``shape`` is None."""

    text: str
    style: str
    shape: Shape | None = None


class PlacedKey(Struct, frozen=True):
    """An entry of a legend, its name as far as it fits, its left end and the middle of its line."""

    entry: LegendEntry
    name: str
    x: float
    y: float


def place_legend(entries: Sequence[LegendEntry], top: float) -> tuple[list[PlacedKey], float]:
    """Return a legend, broken into lines as needed, and its height."""
    keys, x, y = list[PlacedKey](), 0.0, top
    for entry in entries:
        name = fit_text(entry.text, PICTURE_WIDTH - KEY_WIDTH)
        across = KEY_WIDTH + estimate_width(name) + 12
        if x and x + across - 12 > PICTURE_WIDTH:
            x, y = 0.0, y + LINE_HEIGHT
        keys.append(PlacedKey(entry, name, x, y + LINE_HEIGHT / 2))
        x += across
    return keys, (y + LINE_HEIGHT - top) if keys else 0.0


_STEPS = (1.0, 2.0, 5.0)
"""Round steps for ticks (Heckbert, "Nice numbers for graph labels", Graphics Gems 1990)."""
_DECADES_FULL = 2.5
"""Maximum number of decades on a logarithmic axis with 1, 2 and 5 of each decade."""
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
    """The range of an axis with its ticks. ``title`` names its quantity and unit."""

    title: str
    low: float
    high: float
    ticks: tuple[Tick, ...]
    logarithmic: bool = False

    def place(self, value: float, start: float, end: float) -> float:
        """Return a value's position on an axis from ``start`` to ``end``, limited to these."""
        clamped = min(max(value, self.low), self.high)
        low, high = self.low, self.high
        if self.logarithmic:
            clamped, low, high = math.log(clamped), math.log(low), math.log(high)
        return start + (clamped - low) / (high - low) * (end - start)


def make_linear_axis(
    title: str, values: Iterable[float], *, count: int = 5, integral: bool = False
) -> Axis:
    """Return an axis from zero, or below, to just beyond the values, with about ``count`` ticks."""
    all_values = [0.0, *values]
    low, high = min(all_values), max(all_values)
    if low == high:
        high = 1.0
    smallest = (high - low) / count
    decade = 10.0 ** math.floor(math.log10(smallest))
    steps = [factor * decade for factor in (*_STEPS, 10.0)]
    step = min(step for step in steps if step >= smallest * 0.999)
    step = max(1.0, step) if integral else step
    # The small terms prevent rounding errors from adding an empty step at either end.
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [number * step for number in range(first, last + 1)]
    return Axis(title, ticks[0], ticks[-1], _label_ticks(ticks, step))


def make_log_axis(title: str, values: Iterable[float]) -> Axis:
    """Return an axis in steps of 1, 2 and 5 if they fit, or 10; ValueError if none is positive."""
    positive = [value for value in values if value > 0]
    # The small terms prevent rounding errors from adding an empty step at either end.
    lowest, highest = min(positive) * (1 + 1e-9), max(positive) * (1 - 1e-9)
    first, last = (math.floor(math.log10(value)) for value in (lowest, highest))
    decades = [10.0**power for power in range(first, last + 2)]
    steps = [step * decade for decade in decades for step in _STEPS]
    low = max(step for step in steps if step <= lowest)
    # A single value, or values on one step, still need an axis with a length.
    high = min(step for step in steps if step >= highest and step > low)
    full = math.log10(high / low) <= _DECADES_FULL
    ticks = [step for step in (steps if full else decades) if low <= step <= high]
    labelled = tuple(Tick(tick, format_short_number(tick)) for tick in ticks)
    return Axis(title, low, high, labelled, True)


def make_measured_axis(
    title: str, values: Iterable[int], label: Callable[[int], str] = str
) -> Axis:
    """Return a logarithmic axis with a tick at each measured value. All are positive."""
    ticks = tuple(Tick(value, label(value)) for value in sorted(set(values)))
    low, high = ticks[0].value, ticks[-1].value
    if low == high:
        low, high = low / 2, high * 2
    return Axis(title, low, high, ticks, True)


def format_short_number(value: float) -> str:
    """Format a number in short form: ``0.5``, ``20``, ``1.5k``."""
    factor, prefix = _choose_prefix(abs(value))
    return f"{value / factor:.3g}{prefix}"


def _label_ticks(ticks: list[float], step: float) -> tuple[Tick, ...]:
    """Label all ticks of an axis with the same prefix and the same decimals."""
    factor, prefix = _choose_prefix(max(map(abs, ticks)) / 2)
    decimals = max(0, -math.floor(math.log10(step / factor) + 1e-9))
    return tuple(
        Tick(value, f"{value / factor:.{decimals}f}{prefix}" if value else "0") for value in ticks
    )


def _choose_prefix(value: float) -> tuple[float, str]:
    for factor, prefix in _PREFIXES:
        if value >= factor:
            return factor, prefix
    return 1.0, ""


class Box(Struct, frozen=True):
    """A rectangle, y growing downwards as in SVG."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, box: "Box") -> bool:
        """Return whether the two boxes share more than an edge."""
        across = self.left < box.right and box.left < self.right
        return across and self.top < box.bottom and box.top < self.bottom

    def within(self, box: "Box") -> bool:
        """Return whether the box is completely inside another box."""
        across = box.left <= self.left and self.right <= box.right
        return across and box.top <= self.top and self.bottom <= box.bottom

    def held(self, points: Iterable[tuple[float, float]]) -> int:
        """Return the number of points in the box."""
        # No call for each point: many boxes are checked against thousands of points.
        left, top, right, bottom = self.left, self.top, self.right, self.bottom
        return sum(1 for x, y in points if left <= x <= right and top <= y <= bottom)


def estimate_width(text: str) -> float:
    """Return the maximum width of a text in pixels."""
    return TEXT_SIZE * sum(map(_estimate_em, text))


def _estimate_em(char: str) -> float:
    if char in _NARROW:
        return 0.42
    if char in _WIDE:
        return 1.0
    if char.isupper():
        return 0.76
    return 0.65 if char.isascii() else 1.05


def fit_text(text: str, room: float) -> str:
    """Return the text, cut with an ellipsis if it is wider than ``room``."""
    if estimate_width(text) <= room:
        return text
    while text and estimate_width(text + ELLIPSIS) > room:
        text = text[:-1]
    return text + ELLIPSIS


def select_apart(middles: Sequence[float], sizes: Sequence[float]) -> set[int]:
    """Return the indices of texts along a line that do not overlap: first, last, then others."""
    order = [*dict.fromkeys((0, len(middles) - 1)), *range(1, len(middles) - 1)] if middles else []
    selected: set[int] = set()
    for number in order:
        distances = ((other, abs(middles[number] - middles[other])) for other in selected)
        if all(distance >= (sizes[number] + sizes[other]) / 2 for other, distance in distances):
            selected.add(number)
    return selected


def place_label(
    text: str,
    point: tuple[float, float],
    frame: Box,
    obstacles: Iterable[Box],
    lines: Sequence[tuple[float, float]],
) -> Box | None:
    """Return the free box in ``frame`` that covers the fewest points of ``lines``, or None."""
    across, high = estimate_width(text), _HEIGHT * TEXT_SIZE
    middles = [(0, -1), (1, 0), (-1, 0), (0, 1), (1, -1), (-1, -1), (1, 1), (-1, 1)]
    free = []
    for right, down in middles:
        factor = 0.7 if right and down else 1.0
        x = point[0] + right * (factor * _GAP + across / 2)
        y = point[1] + down * (factor * _GAP + high / 2)
        box = Box(x - across / 2, y - high / 2, x + across / 2, y + high / 2)
        if box.within(frame) and not any(map(box.overlaps, obstacles)):
            free.append(box)
    return min(free, key=lambda box: box.held(lines), default=None)
