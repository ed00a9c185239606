"""Snapshots of the lab's machines right after a boot, and the differences between two of them."""

from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from hbatune.facts.attributes import ERROR_COUNTER
from hbatune.facts.model import Attribute, Control, Endpoint, Machine, Missing
from hbatune.plan.kernel_changes import ChangeKind, forecast_changes
from hbatune.settings.limits import CONTROLLER_TIMEOUT, NAMESPACE_TIMEOUTS, SCHEDULER_FILE
from hbatune.settings.setting import parse_selected
from hbatune.snapshot.file import load_snapshot

FOLDER = Path(__file__).parent / "lab" / "boots"

# Failed commands so far, and files of the controller and of all its namespaces, which are compared
# as their own.
_NOT_COMPARED = (ERROR_COUNTER, CONTROLLER_TIMEOUT, NAMESPACE_TIMEOUTS)

Place = tuple[str, str]
"""The name of a target and its adapter, and a path below its directory."""

Values = tuple[str | None, str | None]
"""The texts before and after, None if the file does not exist."""


def load_boot(topology: str, series: str) -> Machine:
    """Return a recorded machine."""
    return load_snapshot(FOLDER / f"{topology}-{series}.snap").machine


def find_differences(before: Machine, after: Machine) -> dict[Place, Values]:
    """Return the files of disks and controllers that differ between two boots."""
    texts, texts_after = dict(_iterate_texts(before)), dict(_iterate_texts(after))
    differences: dict[Place, Values] = {}
    for place in texts.keys() | texts_after.keys():
        values = (texts.get(place), texts_after.get(place))
        if values[0] != values[1]:
            differences[place] = values
    return differences


def forecast_differences(before: Machine, series: str) -> dict[Place, Values]:
    """Return the forecast's changes of files, without the options of modules."""
    differences: dict[Place, Values] = {}
    for change in forecast_changes(before, series):
        if change.kind is not ChangeKind.OPTION:
            values = [None if value is None else str(value) for value in (change.now, change.then)]
            differences[_get_name(change.id), change.attribute] = (values[0], values[1])
    return differences


def _iterate_texts(machine: Machine) -> Iterator[tuple[Place, str]]:
    targets: list[Endpoint | Control] = [*machine.endpoints, *machine.controls]
    for target in targets:
        for path, attribute in target.attributes.items():
            is_compared = not any(fnmatch(path, pattern) for pattern in _NOT_COMPARED)
            if is_compared and not isinstance(attribute, Missing):
                yield (_get_name(target.id), path), _get_text(path, attribute)


def _get_text(path: str, attribute: Attribute) -> str:
    # The order of the schedulers differs between kernels.
    return parse_selected(attribute.text) if path == SCHEDULER_FILE else attribute.text


def _get_name(id: str) -> str:
    """Return an id without the route behind the adapter, whose numbers vary between boots."""
    name, _, route = id.partition("@")
    return f"{name}@{route.partition('/')[0]}"
