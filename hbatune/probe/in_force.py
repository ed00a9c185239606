"""Which values were in force while something was measured: a result stands on them (D1-3). Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from hbatune.facts.model import Attribute, Endpoint, Machine, Missing, TargetKind
from hbatune.plan.rows import Outcome, Row
from hbatune.probe.model import InForce
from hbatune.settings.table import SETTINGS, Value


def in_force(
    machine: Machine, endpoints: Sequence[Endpoint], adapters: Collection[str]
) -> tuple[InForce, ...]:
    """Return what was read of the settings of these endpoints and of their adapters."""
    return (
        *(
            each
            for one in endpoints
            for each in _values(one.target, TargetKind.ENDPOINT, one.attributes)
        ),
        *(
            each
            for control in machine.controls
            if control.adapter in adapters
            for each in _values(control.target, control.kind, control.attributes)
        ),
    )


def written(before: Iterable[InForce], rows: Iterable[Row]) -> tuple[InForce, ...]:
    """Return the values with those that an apply has written in their place."""
    new = {
        (row.target, row.setting): row.value
        for row in rows
        if row.outcome is Outcome.WRITTEN and row.value is not None
    }
    return tuple(
        InForce(each.target, each.setting, new.get((each.target, each.setting), each.value))
        for each in before
    )


def having(
    before: Iterable[InForce], target: str, setting: str, value: Value
) -> tuple[InForce, ...]:
    """Return the values with that of one setting replaced."""
    return tuple(
        InForce(target, setting, value)
        if (each.target, each.setting) == (target, setting)
        else each
        for each in before
    )


def _values(
    target: str, kind: TargetKind, attributes: Mapping[str, Attribute | Missing]
) -> Iterator[InForce]:
    for setting in SETTINGS.values():
        found = attributes.get(setting.path)
        if setting.on is kind and isinstance(found, Attribute):
            try:
                yield InForce(target, setting.name, setting.parse(found.text))
            except ValueError:
                continue  # shown as unreadable elsewhere
