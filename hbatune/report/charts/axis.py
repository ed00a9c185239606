"""Axes: their range, their ticks, and the position of a value. Pure."""

import math
from collections.abc import Iterable, Mapping

from msgspec import Struct

_STEPS = (1.0, 2.0, 5.0)
"""Round steps for ticks (Heckbert, "Nice numbers for graph labels", Graphics Gems 1990)."""
_DECADES_FULL = 2.5
"""Decades up to which a logarithmic axis has room for 1, 2 and 5 of each."""
_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


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
    return Axis(title, low, high, tuple(Tick(each, plain(each)) for each in ticks), True)


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
