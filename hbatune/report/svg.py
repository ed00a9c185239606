"""Elements of SVG. Text cannot become markup: the serialiser escapes it.

Colours are in the page's style sheet, by class, so that they can follow light and dark.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from xml.etree.ElementTree import Element, tostring

from markupsafe import Markup
from msgspec import Struct

from hbatune.report.layout import fitted, width

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
