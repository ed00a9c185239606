"""What an adapter itself is set through: its NVMe controller and its SCSI hosts."""

from collections.abc import Iterator, Mapping, Sequence

from hbatune.facts.adapters import Found, host_class
from hbatune.facts.attributes import ABSENT, Attributes
from hbatune.facts.model import Control, TargetKind
from hbatune.facts.place import name_of


def directories(found: Found) -> Iterator[tuple[TargetKind, str]]:
    """Yield the directories of an adapter's controllers and hosts, with what they are."""
    for directory in found.controllers:
        yield TargetKind.CONTROLLER, directory
    for directory in found.hosts:
        yield TargetKind.HOST, host_class(directory)


def controls(
    groups: Mapping[str, Found],
    survey: Mapping[str, Attributes],
    wanted: Mapping[TargetKind, Sequence[str]],
) -> Iterator[Control]:
    """Yield what each adapter is set through, with the attributes that are wanted of its kind."""
    for adapter, found in groups.items():
        for kind, directory in directories(found):
            name, read = name_of(directory), survey.get(directory, {})
            yield Control(
                target=name,
                id=name if name == adapter else f"{name}@{adapter}",
                adapter=adapter,
                kind=kind,
                sysfs=directory,
                attributes={each: read.get(each, ABSENT) for each in wanted.get(kind, ())},
            )
