"""Build adapters with their controls, and find their way to the root of PCI Express.

The way from an adapter to the root of PCI Express, and the errors that its links count.

Builds adapters, and the controls that they have of their own.

Adapters are built from the branches of sysfs that devices, hosts and controllers hang on. Controls
are those of the adapter itself: NVMe controller, SCSI hosts, and its module's options.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct, field

from hbatune.facts.attributes import (
    ABSENT,
    Attributes,
    integer,
    leading_number,
    read,
    text,
    unparsable,
    word,
)
from hbatune.facts.families import GENERIC, declared, family_of
from hbatune.facts.family import Family, identify
from hbatune.facts.health import Errors
from hbatune.facts.ids import escape
from hbatune.facts.model import (
    Adapter,
    Control,
    Host,
    Link,
    Missing,
    Module,
    Pci,
    Reason,
    TargetKind,
)
from hbatune.facts.routes import Branch, Routes, name_of

SEVERITIES = {"correctable": "COR", "nonfatal": "NONFATAL", "fatal": "FATAL"}
"""The severities of errors, with the word for each in the last line of ``aer_dev_*``."""

_ADDRESS = r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$"


def way_to_root(address: str) -> tuple[str, ...]:
    """Return the directories of a PCI function and of all ports above it, the root port last."""
    directory = os.path.realpath(f"/sys/bus/pci/devices/{address}")
    found = []
    while re.match(_ADDRESS, name_of(directory)):
        found.append(directory)
        directory = directory.rpartition("/")[0]
    return tuple(found)


def bus_errors(function: Attributes) -> Errors:
    """Return the totals of ``aer_dev_*``, the last line of each."""
    return Errors(**{name: _total(function, name, word) for name, word in SEVERITIES.items()})


def _total(function: Attributes, name: str, word: str) -> int | Missing:
    found = text(function, f"aer_dev_{name}")
    if isinstance(found, Missing):
        return found
    # The kernel's own total, not the sum of the lines above it: the two may differ.
    for line in found.splitlines():
        label, _, count = line.rpartition(" ")
        if label == f"TOTAL_ERR_{word}" and count.isdecimal():
            return int(count)
    return unparsable(found)


PCI = (
    "class",
    "vendor",
    "device",
    "subsystem_vendor",
    "subsystem_device",
    "numa_node",
    "current_link_speed",
    "current_link_width",
    "max_link_speed",
    "max_link_width",
)
_HOST = ("proc_name", "can_queue", "cmd_per_lun", "nr_hw_queues")
_CONTROLLER = ("queue_count", "transport")

# In the order of the search: a machine that has several of them uses the first.
_REBUILD = {
    "update-initramfs": "update-initramfs -u",
    "dracut": "dracut --force",
    "mkinitcpio": "mkinitcpio -P",
}


def host_attributes(found: "Found") -> tuple[str, ...]:
    """Return the attributes to read from each SCSI host of an adapter: those of its family.

    Where no driver says which that is, they are a few more than any one family has.
    """
    family = family_of(_driver(found))
    if family is GENERIC:
        names = (*declared("model"), *declared("firmware"), *declared("version"))
    else:
        names = (*family.model, *family.firmware, *family.version)
    return tuple(dict.fromkeys((*_HOST, *names)))


def controller_attributes() -> tuple[str, ...]:
    """Return the attributes read from each NVMe controller."""
    family = family_of("nvme")
    return tuple(dict.fromkeys((*_CONTROLLER, *family.model, *family.firmware)))


class Found(Struct):
    """The branches of one adapter, gathered before it is built."""

    branches: list[Branch] = field(default_factory=list)

    @property
    def hosts(self) -> list[str]:
        """The directories of its SCSI hosts, in the order of their numbers."""
        names = {branch.host for branch in self.branches if branch.host}
        return sorted(names, key=lambda directory: int(name_of(directory)[4:]))

    @property
    def controllers(self) -> list[str]:
        """The directories of its NVMe controllers."""
        return sorted({branch.controller for branch in self.branches if branch.controller})

    def first(self, what: str) -> str | None:
        """Return the first directory of this kind that any branch names."""
        return next((value for b in self.branches if (value := getattr(b, what))), None)


def group(branches: Iterable[Branch]) -> dict[str, Found]:
    """Group branches by the adapter that they hang on."""
    found: dict[str, Found] = {}
    for branch in dict.fromkeys(branches):
        if branch.adapter:
            found.setdefault(branch.adapter, Found()).branches.append(branch)
    return found


def host_class(directory: str) -> str:
    """Return the directory of a host's attributes, below the host's own."""
    return f"{directory}/scsi_host/{name_of(directory)}"


def build(target: str, found: Found, survey: dict[str, Attributes]) -> tuple[Adapter, Family]:
    """Build one adapter from the attributes of its PCI function, hosts and controller."""
    hosts = tuple(_host(directory, survey) for directory in found.hosts)
    controller = found.first("controller")
    driver = _driver(found)
    proc_names = [host.proc_name for host in hosts if isinstance(host.proc_name, str)]
    # Over fabrics no device is bound to a driver, but there is a controller.
    family = family_of(driver or (controller and "nvme"), *proc_names)
    directory = found.first("pci")
    function = survey.get(directory, {}) if directory else {}
    pci = _pci(name_of(directory), function) if directory else None
    own = _own(found, survey)
    product, document = _product(family, pci, own)
    return (
        Adapter(
            target=target,
            family=family.name,
            product=product,
            document=document,
            driver=driver or (proc_names[0] if proc_names else ABSENT),
            pci=pci,
            numa_node=_numa_node(function),
            link=_link(function),
            driver_version=_version(family, own, driver or next(iter(proc_names), None)),
            firmware=_first(own, family.firmware),
            hosts=hosts,
            controller=name_of(controller) if controller else None,
            hw_queues=_hw_queues(hosts, controller, survey),
            transport=escape(word(own, "transport")) or None if controller else None,
        ),
        family,
    )


def _own(found: Found, survey: dict[str, Attributes]) -> Attributes:
    """Return the attributes of the controller or of the first host."""
    controller = found.first("controller")
    if controller:
        return survey.get(controller, {})
    return survey.get(host_class(found.hosts[0]), {}) if found.hosts else {}


def _host(directory: str, survey: dict[str, Attributes]) -> Host:
    attributes = survey.get(host_class(directory), {})
    proc_name = text(attributes, "proc_name")
    # The texts of hosts whose driver has no proc_name.
    if proc_name in ("(null)", "<NULL>", ""):
        proc_name = ABSENT
    return Host(
        name=name_of(directory),
        proc_name=proc_name,
        can_queue=integer(attributes, "can_queue"),
        cmd_per_lun=integer(attributes, "cmd_per_lun"),
        hw_queues=integer(attributes, "nr_hw_queues"),
    )


def _driver(found: Found) -> str | None:
    for directory in (found.first("bound"), found.first("pci")):
        with suppress(OSError):
            if directory:
                return name_of(os.readlink(f"{directory}/driver"))
    return None


def _pci(address: str, function: Attributes) -> Pci:
    return Pci(
        address=address,
        class_code=integer(function, "class", 16),
        vendor=integer(function, "vendor", 16),
        device=integer(function, "device", 16),
        subsystem_vendor=integer(function, "subsystem_vendor", 16),
        subsystem_device=integer(function, "subsystem_device", 16),
    )


def _product(family: Family, pci: Pci | None, own: Attributes) -> tuple[str | None, str | None]:
    """Return the product's name, and its name in the documents.

    A product identified by its subsystem ids comes first, then the model that its firmware
    reports; the name of the chip, which many products carry, comes last.
    """
    known = identify(family.products, pci)
    model = _first(own, family.model)
    name = escape(model) if isinstance(model, str) else None
    if known is None:
        return name, None
    exact = known.subsystem is not None
    return (known.name if exact or name is None else name), known.document


def _numa_node(function: Attributes) -> int | None:
    node = integer(function, "numa_node")  # -1 where it is not known
    return node if isinstance(node, int) and node >= 0 else None


def _link(function: Attributes) -> Link | None:
    """Return the link; conventional PCI has none of these files (drivers/pci/pci-sysfs.c)."""
    names = PCI[-4:]
    if all(_is_absent(text(function, name)) for name in names):
        return None
    return Link(
        speed=leading_number(function, "current_link_speed"),
        width=_width(function, "current_link_width"),
        max_speed=leading_number(function, "max_link_speed"),
        max_width=_width(function, "max_link_width"),
    )


def _width(function: Attributes, name: str) -> int | Missing:
    """Return lanes; functions without a link of their own report 0 or 255."""
    lanes = integer(function, name)
    return unparsable(str(lanes)) if lanes in (0, 255) else lanes


def _is_absent(value: object) -> bool:
    return isinstance(value, Missing) and value.reason is Reason.ABSENT


def _version(family: Family, own: Attributes, driver: str | None) -> str | Missing:
    version = _first(own, family.version)
    if isinstance(version, str) or driver is None:
        return version
    # A module's name has no dashes in sysfs. A built-in or unversioned one has no such file.
    with suppress(OSError), open(f"/sys/module/{driver.replace('-', '_')}/version") as file:
        return file.read().strip()
    return version


def _first(own: Attributes, names: tuple[str, ...]) -> str | Missing:
    """Return the first attribute that is not empty, else the reason why the last one is missing."""
    value: str | Missing = ABSENT
    for name in names:
        value = text(own, name)
        if isinstance(value, str) and value:
            return value
    return value if isinstance(value, Missing) else ABSENT


def _hw_queues(
    hosts: tuple[Host, ...], controller: str | None, survey: dict[str, Attributes]
) -> int | Missing:
    if controller:
        # nvme/host/pci.c: queue_count counts the admin queue as well.
        count = integer(survey.get(controller, {}), "queue_count")
        return count - 1 if isinstance(count, int) and count else count
    return hosts[0].hw_queues if hosts else ABSENT


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
    import shutil  # heavy, and rarely needed

    return next((command for tool, command in _REBUILD.items() if shutil.which(tool)), None)
