"""Build adapters and their controls from the sysfs branches of devices, hosts and controllers."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter

from msgspec import Struct, field

from hbatune.facts import attributes
from hbatune.facts.attributes import ABSENT, Attributes, Survey, get_text, parse_integer
from hbatune.facts.families import GENERIC, families, family_named, family_of
from hbatune.facts.family import Family, identify_product
from hbatune.facts.ids import escape_text
from hbatune.facts.model import Adapter, Control, Host, Link, Missing, Module, Pci, TargetKind
from hbatune.facts.routes import PCI_ADDRESS, Branch, Routes, get_class_dir, get_kernel_name


def list_pci_path(address: str) -> tuple[str, ...]:
    """Return the directories of a PCI function and of all ports above it, the root port last."""
    directory = os.path.realpath(f"/sys/bus/pci/devices/{address}")
    functions = []
    while re.fullmatch(PCI_ADDRESS, get_kernel_name(directory)):
        functions.append(directory)
        directory = directory.rpartition("/")[0]
    return tuple(functions)


_LINK = ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width")
_IDS = ("class", "vendor", "device", "subsystem_vendor", "subsystem_device")  # the order of Pci
PCI_ATTRIBUTES = (*_IDS, "numa_node", *_LINK)
_HOST_LIMITS = ("can_queue", "cmd_per_lun", "nr_hw_queues")  # the order of Host
_CONTROLLER = ("queue_count", "transport")

# In search order: a machine that has several of them uses the first.
_REBUILD_COMMANDS = ("update-initramfs -u", "dracut --force", "mkinitcpio -P")


def list_host_attributes(branches: "AdapterBranches") -> tuple[str, ...]:
    """Return the attributes to read from an adapter's hosts: its family's, or all families'."""
    names: list[str] = []
    driver_family = family_of(_read_driver(branches))
    for family in families() if driver_family is GENERIC else (driver_family,):
        names += (*family.model, *family.firmware, *family.version)
    return tuple(dict.fromkeys(("proc_name", *_HOST_LIMITS, *names)))


def list_controller_attributes() -> tuple[str, ...]:
    """Return the attributes read from each NVMe controller."""
    family = family_of("nvme")
    return tuple(dict.fromkeys((*_CONTROLLER, *family.model, *family.firmware)))


class AdapterBranches(Struct):
    """The branches of one adapter, collected before it is built."""

    branches: list[Branch] = field(default_factory=list)

    @property
    def hosts(self) -> list[str]:
        """The directories of its SCSI hosts, ordered by number."""
        return sorted(self._list("host"), key=lambda path: int(get_kernel_name(path)[4:]))

    @property
    def controllers(self) -> list[str]:
        """The directories of its NVMe controllers."""
        return sorted(self._list("controller"))

    def first(self, field_name: str) -> str | None:
        """Return the first directory of any branch in the field with this name."""
        return next(iter(self._list(field_name)), None)

    def _list(self, field_name: str) -> dict[str, None]:
        return dict.fromkeys(filter(None, map(attrgetter(field_name), self.branches)))


def group_branches(branches: Iterable[Branch]) -> dict[str, AdapterBranches]:
    """Group branches by their adapter."""
    groups: dict[str, AdapterBranches] = {}
    for branch in dict.fromkeys(branches):
        if branch.adapter:
            groups.setdefault(branch.adapter, AdapterBranches()).branches.append(branch)
    return groups


def build_adapter(target: str, group: AdapterBranches, survey: Survey) -> Adapter:
    """Build one adapter from the attributes of its PCI function, hosts and controller."""
    hosts = tuple(map(partial(_build_host, survey), group.hosts))
    controller, directory = group.first("controller"), group.first("pci")
    driver = _read_driver(group)
    proc_names = [host.proc_name for host in hosts if isinstance(host.proc_name, str)]
    # Over fabrics no device is bound to a driver, but there is a controller.
    family = family_of(driver or (controller and "nvme"), *proc_names)
    driver = driver or next(iter(proc_names), None)
    function = survey.get(directory or "", {})
    # The controller describes the adapter, or else its first host.
    host = group.hosts[0] if group.hosts else ""
    values = survey.get(controller or get_class_dir(host, "scsi_host"), {})
    hw_queues = hosts[0].hw_queues if hosts else ABSENT
    if controller:
        # nvme/host/pci.c: queue_count includes the admin queue.
        count = parse_integer(values, "queue_count")
        hw_queues = count - 1 if isinstance(count, int) and count else count
    pci = None
    if directory:
        pci = Pci(get_kernel_name(directory), *map(partial(parse_integer, function, base=16), _IDS))
    product, document = _identify_product(family, pci, values)
    node = parse_integer(function, "numa_node")  # -1 if it is not known
    return Adapter(
        target=target,
        family=family.name,
        product=product,
        document=document,
        driver=driver or ABSENT,
        pci=pci,
        numa_node=node if isinstance(node, int) and node >= 0 else None,
        link=_build_link(function),
        driver_version=_read_version(family, values, driver),
        firmware=_get_first(values, family.firmware),
        hosts=hosts,
        controller=get_kernel_name(controller) if controller else None,
        hw_queues=hw_queues,
        transport=escape_text(attributes.get_word(values, "transport")) or None,
    )


def _build_host(survey: Survey, directory: str) -> Host:
    values = survey.get(get_class_dir(directory, "scsi_host"), {})
    proc_name = get_text(values, "proc_name")
    # The texts of hosts whose driver has no proc_name.
    if proc_name in ("(null)", "<NULL>", ""):
        proc_name = ABSENT
    limits = map(partial(parse_integer, values), _HOST_LIMITS)
    return Host(get_kernel_name(directory), proc_name, *limits)


def _read_driver(group: AdapterBranches) -> str | None:
    for directory in (group.first("bound"), group.first("pci")):
        with suppress(OSError):
            if directory:
                return get_kernel_name(os.readlink(f"{directory}/driver"))
    return None


def _identify_product(
    family: Family, pci: Pci | None, values: Attributes
) -> tuple[str | None, str | None]:
    """Return the product's name, and its name in the source documents.

    The order of precedence: a product identified by its subsystem ids, the model that its firmware
    reports, and the name of the chip, which many products carry.
    """
    listed = identify_product(family.products, pci)
    model = _get_first(values, family.model)
    name = escape_text(model) if isinstance(model, str) else None
    if listed is None:
        return name, None
    exact = listed.subsystem is not None
    return (listed.name if exact or name is None else name), listed.document


def _build_link(function: Attributes) -> Link | None:
    """Return the link; conventional PCI lacks these files (drivers/pci/pci-sysfs.c)."""
    if set(map(partial(get_text, function), _LINK)) == {ABSENT}:
        return None
    return Link(
        speed=attributes.parse_leading_number(function, "current_link_speed"),
        width=_parse_width(function, "current_link_width"),
        max_speed=attributes.parse_leading_number(function, "max_link_speed"),
        max_width=_parse_width(function, "max_link_width"),
    )


def _parse_width(function: Attributes, name: str) -> int | Missing:
    """Return lanes; functions that have no link report 0 or 255."""
    lanes = parse_integer(function, name)
    return attributes.make_unparsable(str(lanes)) if lanes in (0, 255) else lanes


def _read_version(family: Family, values: Attributes, driver: str | None) -> str | Missing:
    version = _get_first(values, family.version)
    if isinstance(version, str) or driver is None:
        return version
    # A module's name has no dashes in sysfs. A built-in or unversioned module has no such file.
    file = f"/sys/module/{driver.replace('-', '_')}/version"
    return attributes.read_text(file).strip() or version


def _get_first(values: Attributes, names: tuple[str, ...]) -> str | Missing:
    """Return the first attribute that is not empty, or the reason why the last one is missing."""
    value: str | Missing = ABSENT
    for name in names:
        value = get_text(values, name)
        if isinstance(value, str) and value:
            return value
    return value if isinstance(value, Missing) else ABSENT


def list_directories(group: AdapterBranches) -> Iterator[tuple[TargetKind, str]]:
    """Yield the directories of an adapter's controllers and hosts, with their types."""
    for directory in group.controllers:
        yield TargetKind.CONTROLLER, directory
    for directory in group.hosts:
        yield TargetKind.HOST, get_class_dir(directory, "scsi_host")


def build_controls(
    groups: Mapping[str, AdapterBranches],
    survey: Survey,
    wanted: Mapping[TargetKind, Sequence[str]],
    routes: Routes,
) -> Iterator[Control]:
    """Yield the controls of each adapter, with the attributes wanted for their type."""
    for adapter, group in groups.items():
        for kind, directory in list_directories(group):
            values = survey.get(directory, {})
            device = directory.partition("/scsi_host/")[0]
            yield Control(
                target=get_kernel_name(device),
                id=routes.of_control(device),
                adapter=adapter,
                kind=kind,
                sysfs=directory,
                attributes={name: values.get(name, ABSENT) for name in wanted.get(kind, ())},
            )


def read_modules(adapters: Iterable[Adapter]) -> tuple[Module, ...]:
    """Return the loaded modules of these adapters, with the options that each family declares."""
    modules = []
    for name in dict.fromkeys(map(attrgetter("family"), adapters)):
        family, directory = family_named(name), f"/sys/module/{name}"
        # kernel/params.c: without a visible option, a module has no directory.
        if family.options and os.path.isdir(directory):
            paths = tuple(f"parameters/{option.name}" for option in family.options)
            values = attributes.read_attributes(directory, paths)
            parameters = {path.removeprefix("parameters/"): values[path] for path in paths}
            modules.append(Module(name, parameters))
    return tuple(modules)


def find_initramfs_command() -> str | None:
    """Return the command that rebuilds the initramfs here, or None if no known one is installed."""
    import shutil  # expensive, and rarely needed

    return next((tool for tool in _REBUILD_COMMANDS if shutil.which(tool.split()[0])), None)
