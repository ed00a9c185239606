"""Keeps the paths of one map alike: finds the value that all of them can take. Pure.

A map chooses a path for each request, so a path that is shallower than the others makes some
requests wait that another path would have served.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from hbatune.settings.table import Value


class PathSetting(Struct, frozen=True):
    """One path's part in one setting.

    ``current`` is None if it could not be read: such a path does not limit the others.
    ``value`` is the planned one, None if the path is not to be changed. ``clamp`` returns the
    nearest value that this path takes; ``lowers`` is whether it may be lowered at all.
    """

    target: str
    current: Value | None
    value: Value | None
    clamp: Callable[[Value], Value]
    lowers: bool


class Decision(Struct, frozen=True):
    """The value for a path in place of the plan's own one, and the reason."""

    value: Value
    limit: str


def level(paths: Sequence[PathSetting]) -> Mapping[str, Decision]:
    """Return, by target, the changes to the plan that make the paths of a map alike.

    The common value is the most that every path takes. It never lowers a path that is only to be
    raised: if nothing else would make them alike, each keeps its planned value, and says so.
    """
    changing = [path for path in paths if path.value is not None and path.current is not None]
    pins = [path for path in paths if path.value is None and path.current is not None]
    values = [path.value for path in changing if path.value is not None]
    if len(changing) + len(pins) < 2 or not changing:
        return {}
    if pins:
        return _with_pins(changing, pins)
    if len(set(values)) == 1:
        return {}
    # Names have no least one among them: paths whose rules want different schedulers stay as
    # they are.
    numbers = [value for value in values if isinstance(value, int)]
    if len(numbers) < len(values):
        return _left(changing, f"the other paths would get {_words(sorted(map(str, set(values))))}")
    return _numbers(changing, max(numbers))


def _numbers(paths: Sequence[PathSetting], goal: int) -> Mapping[str, Decision]:
    # The path that takes least of the highest goal limits all: requests wait at the shallowest.
    least = min(paths, key=lambda path: _number(path.clamp(goal)))
    common = _number(least.clamp(goal))
    if all(_reaches(path, common) for path in paths):
        why = f"alike on all paths: {least.target} takes {common} at most"
        if common == goal:
            deepest = next(path for path in paths if path.value == goal)
            why = f"alike on all paths: {deepest.target} is at {goal}"
        return {path.target: Decision(common, why) for path in paths if path.value != common}
    kept = (
        f"differs from the other paths: {least.target} takes {common} at most, and none is lowered"
    )
    return {path.target: Decision(path.value, kept) for path in paths if path.value is not None}


def _with_pins(paths: Sequence[PathSetting], pins: Sequence[PathSetting]) -> Mapping[str, Decision]:
    """Make all paths like those that are not to be changed if possible, else change none."""
    held = {pin.current for pin in pins}
    names = _words([pin.target for pin in pins])
    if {path.value for path in paths} == held:
        return {}
    if len(held) == 1:
        goal = next(value for value in held if value is not None)
        if all(_reaches(path, goal) and _towards(path, goal) for path in paths):
            why = f"alike on all paths: {names} is not to be changed and has {goal}"
            return {path.target: Decision(goal, why) for path in paths if path.value != goal}
    return _left(paths, f"{names} is not to be changed")


def _left(paths: Sequence[PathSetting], why: str) -> Mapping[str, Decision]:
    """Return the decisions that leave every path at its current value."""
    return {
        path.target: Decision(path.current, f"left like the other paths: {why}")
        for path in paths
        if path.current is not None and path.value != path.current
    }


def _reaches(path: PathSetting, goal: Value) -> bool:
    """Whether the path takes exactly this value, without being lowered against its rule."""
    lowered = isinstance(goal, int) and isinstance(path.current, int) and goal < path.current
    return path.clamp(goal) == goal and (path.lowers or not lowered)


def _towards(path: PathSetting, goal: Value) -> bool:
    """Whether this lies between the path's current and its planned value.

    A path is never moved beyond its own rule, nor away from it, for the sake of the others.
    """
    if not isinstance(goal, int):
        return goal in (path.value, path.current)
    low, high = sorted((_number(path.current), _number(path.value)))
    return low <= goal <= high


def _number(value: Value | None) -> int:
    assert isinstance(value, int)
    return value


def _words(names: Sequence[str]) -> str:
    return " and ".join(names)
