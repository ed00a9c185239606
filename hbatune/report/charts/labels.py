"""Places texts in a picture so that none overlaps another. Pure.

There is no font to measure with: widths are estimated for the widest font that browsers commonly
use for sans-serif (DejaVu Sans), so that texts turn out shorter than estimated, never longer.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

_NARROW, _WIDE = frozenset("iljtf.,:;'|!()[] "), frozenset("mwMW@%&—…µ")
_GAP = 9.0
"""Pixels between a point and its label."""
ELLIPSIS = "…"


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
    across, high = width(wish.text, size), size
    middles = [(0, -1), (1, 0), (-1, 0), (0, 1), (1, -1), (-1, -1), (1, 1), (-1, 1)]
    boxes = []
    for right, down in middles:
        part = 0.7 if right and down else 1.0
        x = wish.x + right * (part * _GAP + across / 2)
        y = wish.y + down * (part * _GAP + high / 2)
        boxes.append(Box(x - across / 2, y - high / 2, x + across / 2, y + high / 2))
    return boxes
