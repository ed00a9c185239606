"""The controls of an adapter itself: NVMe controller, SCSI hosts, and its module's options."""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence

from hbatune.facts.adapters import Found, host_class
from hbatune.facts.attributes import ABSENT, Attributes, read
from hbatune.facts.family import Family
from hbatune.facts.model import Control, Module, TargetKind
from hbatune.facts.place import name_of
from hbatune.facts.routes import Routes

# In the order of the search: a machine that has several of them uses the first.
_REBUILD = {
    "update-initramfs": "update-initramfs -u",
    "dracut": "dracut --force",
    "mkinitcpio": "mkinitcpio -P",
}


def directories(found: Found) -> Iterator[tuple[TargetKind, str]]:
    """Yield the directories of an adapter's controllers and hosts, with their kinds."""
    for kind, directory in _devices(found):
        yield kind, _attributes_of(kind, directory)


def controls(
    groups: Mapping[str, Found],
    survey: Mapping[str, Attributes],
    wanted: Mapping[TargetKind, Sequence[str]],
    routes: Routes,
) -> Iterator[Control]:
    """Yield the controls of each adapter, with the attributes that are wanted of their kind."""
    for adapter, found in groups.items():
        for kind, device in _devices(found):
            directory = _attributes_of(kind, device)
            values = survey.get(directory, {})
            is_host = kind is TargetKind.HOST
            yield Control(
                target=name_of(device),
                id=routes.of_host(device) if is_host else routes.of_controller(device),
                adapter=adapter,
                kind=kind,
                sysfs=directory,
                attributes={each: values.get(each, ABSENT) for each in wanted.get(kind, ())},
            )


def _devices(found: Found) -> Iterator[tuple[TargetKind, str]]:
    for directory in found.controllers:
        yield TargetKind.CONTROLLER, directory
    for directory in found.hosts:
        yield TargetKind.HOST, directory


def _attributes_of(kind: TargetKind, device: str) -> str:
    """Return the directory of the attributes of a controller or a host."""
    return host_class(device) if kind is TargetKind.HOST else device


def modules(families: Iterable[Family]) -> tuple[Module, ...]:
    """Return the loaded modules of these families, with the options that each declares.

    A module without an option that can be seen in sysfs (kernel/params.c) has no directory there.
    """
    found = []
    for family in families:
        directory = f"/sys/module/{family.name}"
        names = tuple(option.name for option in family.options)
        if names and os.path.isdir(directory):
            wanted = tuple(f"parameters/{name}" for name in names)
            values = read(directory, wanted)
            found.append(
                Module(
                    family.name,
                    {name: values[path] for name, path in zip(names, wanted, strict=True)},
                )
            )
    return tuple(found)


def rebuild_initramfs() -> str | None:
    """Return the command that rebuilds the initramfs here, None if no known one is installed."""
    return next((command for tool, command in _REBUILD.items() if shutil.which(tool)), None)
