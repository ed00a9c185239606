"""What an adapter itself is set through: its NVMe controller and its SCSI hosts."""

from collections.abc import Iterator, Mapping, Sequence

from hbatune.facts.adapters import Found, host_class
from hbatune.facts.attributes import ABSENT, Attributes
from hbatune.facts.model import Control, TargetKind
from hbatune.facts.place import name_of
from hbatune.facts.routes import Routes


def directories(found: Found) -> Iterator[tuple[TargetKind, str]]:
    """Yield the directories of an adapter's controllers and hosts, with what they are."""
    for kind, directory in _devices(found):
        yield kind, _attributes_of(kind, directory)


def controls(
    groups: Mapping[str, Found],
    survey: Mapping[str, Attributes],
    wanted: Mapping[TargetKind, Sequence[str]],
    routes: Routes,
) -> Iterator[Control]:
    """Yield what each adapter is set through, with the attributes that are wanted of its kind."""
    for adapter, found in groups.items():
        for kind, device in _devices(found):
            directory = _attributes_of(kind, device)
            read = survey.get(directory, {})
            is_host = kind is TargetKind.HOST
            yield Control(
                target=name_of(device),
                id=routes.of_host(device) if is_host else routes.of_controller(device),
                adapter=adapter,
                kind=kind,
                sysfs=directory,
                attributes={each: read.get(each, ABSENT) for each in wanted.get(kind, ())},
            )


def _devices(found: Found) -> Iterator[tuple[TargetKind, str]]:
    for directory in found.controllers:
        yield TargetKind.CONTROLLER, directory
    for directory in found.hosts:
        yield TargetKind.HOST, directory


def _attributes_of(kind: TargetKind, device: str) -> str:
    """Return the directory of what a controller or a host is set through."""
    return host_class(device) if kind is TargetKind.HOST else device
