"""Keeps the paths of one map alike: what each may be set to so that none differs from the others.

A map sends a request down whichever path it likes, so a path that is shallower than its siblings
makes some requests wait that the others would have served. Pure.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from hbatune.settings.table import Value


class PathSetting(Struct, frozen=True):
    """One path's part in one setting.

    ``current`` is None where it could not be read: such a path costs its siblings nothing.
    ``value`` is what the plan would set, None where the path is not to be changed. ``takes`` says
    what becomes of a value on this path; ``lowers`` whether it may be lowered at all.
    """

    target: str
    current: Value | None
    value: Value | None
    takes: Callable[[Value], Value]
    lowers: bool


class Decision(Struct, frozen=True):
    """What a path is set to instead of the plan's own value, and why."""

    value: Value
    limit: str


def level(ways: Sequence[PathSetting]) -> Mapping[str, Decision]:
    """Return, by target, what has to differ from the plan for the paths of a map to be alike.

    The level is the most that every path takes. It never lowers a path that is only to be raised:
    where nothing else would make them alike, each keeps what was planned for it, and says so.
    """
    changing = [way for way in ways if way.value is not None and way.current is not None]
    pins = [way for way in ways if way.value is None and way.current is not None]
    values = [way.value for way in changing if way.value is not None]
    if len(changing) + len(pins) < 2 or not changing:
        return {}
    if pins:
        return _with_pins(changing, pins)
    if len(set(values)) == 1:
        return {}
    numbers = [value for value in values if isinstance(value, int)]
    if len(numbers) < len(values):
        return _left(changing, f"its siblings would get {_words(sorted(map(str, set(values))))}")
    return _numbers(changing, max(numbers))


def _numbers(ways: Sequence[PathSetting], goal: int) -> Mapping[str, Decision]:
    least = min(ways, key=lambda way: _number(way.takes(goal)))
    common = _number(least.takes(goal))
    if all(_reaches(way, common) for way in ways):
        why = f"alike on all paths: {least.target} takes {common} at most"
        if common == goal:
            deepest = next(way for way in ways if way.value == goal)
            why = f"alike on all paths: {deepest.target} is at {goal}"
        return {way.target: Decision(common, why) for way in ways if way.value != common}
    kept = f"differs from its siblings: {least.target} takes {common} at most, and none is lowered"
    return {way.target: Decision(way.value, kept) for way in ways if way.value is not None}


def _with_pins(ways: Sequence[PathSetting], pins: Sequence[PathSetting]) -> Mapping[str, Decision]:
    """Join the paths that nobody changes where that can be done, else leave all as they are."""
    held = {pin.current for pin in pins}
    names = _words([pin.target for pin in pins])
    if {way.value for way in ways} == held:
        return {}
    if len(held) == 1:
        goal = next(value for value in held if value is not None)
        if all(_reaches(way, goal) and _towards(way, goal) for way in ways):
            why = f"alike on all paths: {names} is not to be changed and has {goal}"
            return {way.target: Decision(goal, why) for way in ways if way.value != goal}
    return _left(ways, f"{names} is not to be changed")


def _left(ways: Sequence[PathSetting], why: str) -> Mapping[str, Decision]:
    """Leave every path at what it is now."""
    return {
        way.target: Decision(way.current, f"left like its siblings: {why}")
        for way in ways
        if way.current is not None and way.value != way.current
    }


def _reaches(way: PathSetting, goal: Value) -> bool:
    """Whether the path takes exactly this, without being lowered where it is not to be."""
    lowered = isinstance(goal, int) and isinstance(way.current, int) and goal < way.current
    return way.takes(goal) == goal and (way.lowers or not lowered)


def _towards(way: PathSetting, goal: Value) -> bool:
    """Whether this is on the way from what the path has to what it was to get."""
    if not isinstance(goal, int):
        return goal in (way.value, way.current)
    low, high = sorted((_number(way.current), _number(way.value)))
    return low <= goal <= high


def _number(value: Value | None) -> int:
    assert isinstance(value, int)
    return value


def _words(names: Sequence[str]) -> str:
    return " and ".join(names)
