"""Build adapters with their controls, and find their path to the root of PCI Express.

Adapters are built from the sysfs branches of their devices, hosts and controllers. Controls belong
to the adapter itself: NVMe controller, SCSI hosts, and its module's options. The errors that PCI
Express links count are read here too.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct, field

from hbatune.facts.attributes import (
    ABSENT,
    Attributes,
    get_text,
    get_word,
    make_unparsable,
    parse_integer,
    parse_leading_number,
    read_attributes,
)
from hbatune.facts.families import GENERIC, declared, family_of
from hbatune.facts.family import Family, identify_product
from hbatune.facts.health import Errors
from hbatune.facts.ids import escape_text
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
from hbatune.facts.routes import Branch, Routes, get_kernel_name

SEVERITIES = {"correctable": "COR", "nonfatal": "NONFATAL", "fatal": "FATAL"}
"""The severities of errors, with the name of each in the last line of ``aer_dev_*``."""

_ADDRESS = r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$"


def list_pci_path(address: str) -> tuple[str, ...]:
    """Return the directories of a PCI function and of all ports above it, the root port last."""
    directory = os.path.realpath(f"/sys/bus/pci/devices/{address}")
    functions = []
    while re.match(_ADDRESS, get_kernel_name(directory)):
        functions.append(directory)
        directory = directory.rpartition("/")[0]
    return tuple(functions)


def parse_bus_errors(function: Attributes) -> Errors:
    """Return the totals of ``aer_dev_*``, which are in the last line of each."""
    return Errors(
        **{name: _parse_total(function, name, label) for name, label in SEVERITIES.items()}
    )


def _parse_total(function: Attributes, name: str, severity: str) -> int | Missing:
    counters = get_text(function, f"aer_dev_{name}")
    if isinstance(counters, Missing):
        return counters
    # Use the kernel's own total, not the sum of the lines above it: the two may differ.
    for line in counters.splitlines():
        label, _, count = line.rpartition(" ")
        if label == f"TOTAL_ERR_{severity}" and count.isdecimal():
            return int(count)
    return make_unparsable(counters)


PCI_ATTRIBUTES = (
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

# In search order: a machine that has several of them uses the first.
_REBUILD = {
    "update-initramfs": "update-initramfs -u",
    "dracut": "dracut --force",
    "mkinitcpio": "mkinitcpio -P",
}


def list_host_attributes(branches: "AdapterBranches") -> tuple[str, ...]:
    """Return the attributes to read from each SCSI host of an adapter, according to its family.

    If no driver identifies the family, the attributes of all families are returned.
    """
    family = family_of(_read_driver(branches))
    if family is GENERIC:
        names = (*declared("model"), *declared("firmware"), *declared("version"))
    else:
        names = (*family.model, *family.firmware, *family.version)
    return tuple(dict.fromkeys((*_HOST, *names)))


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
        names = {branch.host for branch in self.branches if branch.host}
        return sorted(names, key=lambda directory: int(get_kernel_name(directory)[4:]))

    @property
    def controllers(self) -> list[str]:
        """The directories of its NVMe controllers."""
        return sorted({branch.controller for branch in self.branches if branch.controller})

    def first(self, field_name: str) -> str | None:
        """Return the first directory of any branch in the field with this name."""
        return next((value for b in self.branches if (value := getattr(b, field_name))), None)


def group_branches(branches: Iterable[Branch]) -> dict[str, AdapterBranches]:
    """Group branches by their adapter."""
    groups: dict[str, AdapterBranches] = {}
    for branch in dict.fromkeys(branches):
        if branch.adapter:
            groups.setdefault(branch.adapter, AdapterBranches()).branches.append(branch)
    return groups


def get_host_class_dir(directory: str) -> str:
    """Return the directory of a host's attributes, below the host's own directory."""
    return f"{directory}/scsi_host/{get_kernel_name(directory)}"


def build_adapter(
    target: str, group: AdapterBranches, survey: dict[str, Attributes]
) -> tuple[Adapter, Family]:
    """Build one adapter from the attributes of its PCI function, hosts and controller."""
    hosts = tuple(_build_host(directory, survey) for directory in group.hosts)
    controller = group.first("controller")
    driver = _read_driver(group)
    proc_names = [host.proc_name for host in hosts if isinstance(host.proc_name, str)]
    # Over fabrics no device is bound to a driver, but there is a controller.
    family = family_of(driver or (controller and "nvme"), *proc_names)
    directory = group.first("pci")
    function = survey.get(directory, {}) if directory else {}
    pci = _build_pci(get_kernel_name(directory), function) if directory else None
    attributes = _get_attributes(group, survey)
    product, document = _identify_product(family, pci, attributes)
    return (
        Adapter(
            target=target,
            family=family.name,
            product=product,
            document=document,
            driver=driver or (proc_names[0] if proc_names else ABSENT),
            pci=pci,
            numa_node=_parse_numa_node(function),
            link=_build_link(function),
            driver_version=_read_version(
                family, attributes, driver or next(iter(proc_names), None)
            ),
            firmware=_get_first(attributes, family.firmware),
            hosts=hosts,
            controller=get_kernel_name(controller) if controller else None,
            hw_queues=_count_hw_queues(hosts, controller, survey),
            transport=escape_text(get_word(attributes, "transport")) or None
            if controller
            else None,
        ),
        family,
    )


def _get_attributes(group: AdapterBranches, survey: dict[str, Attributes]) -> Attributes:
    """Return the attributes of the controller or of the first host."""
    controller = group.first("controller")
    if controller:
        return survey.get(controller, {})
    return survey.get(get_host_class_dir(group.hosts[0]), {}) if group.hosts else {}


def _build_host(directory: str, survey: dict[str, Attributes]) -> Host:
    attributes = survey.get(get_host_class_dir(directory), {})
    proc_name = get_text(attributes, "proc_name")
    # The texts of hosts whose driver has no proc_name.
    if proc_name in ("(null)", "<NULL>", ""):
        proc_name = ABSENT
    return Host(
        name=get_kernel_name(directory),
        proc_name=proc_name,
        can_queue=parse_integer(attributes, "can_queue"),
        cmd_per_lun=parse_integer(attributes, "cmd_per_lun"),
        hw_queues=parse_integer(attributes, "nr_hw_queues"),
    )


def _read_driver(group: AdapterBranches) -> str | None:
    for directory in (group.first("bound"), group.first("pci")):
        with suppress(OSError):
            if directory:
                return get_kernel_name(os.readlink(f"{directory}/driver"))
    return None


def _build_pci(address: str, function: Attributes) -> Pci:
    return Pci(
        address=address,
        class_code=parse_integer(function, "class", 16),
        vendor=parse_integer(function, "vendor", 16),
        device=parse_integer(function, "device", 16),
        subsystem_vendor=parse_integer(function, "subsystem_vendor", 16),
        subsystem_device=parse_integer(function, "subsystem_device", 16),
    )


def _identify_product(
    family: Family, pci: Pci | None, attributes: Attributes
) -> tuple[str | None, str | None]:
    """Return the product's name, and its name in the source documents.

    The order of precedence: a product identified by its subsystem ids, the model that its firmware
    reports, and the name of the chip, which many products carry.
    """
    listed = identify_product(family.products, pci)
    model = _get_first(attributes, family.model)
    name = escape_text(model) if isinstance(model, str) else None
    if listed is None:
        return name, None
    exact = listed.subsystem is not None
    return (listed.name if exact or name is None else name), listed.document


def _parse_numa_node(function: Attributes) -> int | None:
    node = parse_integer(function, "numa_node")  # -1 if it is not known
    return node if isinstance(node, int) and node >= 0 else None


def _build_link(function: Attributes) -> Link | None:
    """Return the link; conventional PCI lacks these files (drivers/pci/pci-sysfs.c)."""
    names = PCI_ATTRIBUTES[-4:]
    if all(_is_absent(get_text(function, name)) for name in names):
        return None
    return Link(
        speed=parse_leading_number(function, "current_link_speed"),
        width=_parse_width(function, "current_link_width"),
        max_speed=parse_leading_number(function, "max_link_speed"),
        max_width=_parse_width(function, "max_link_width"),
    )


def _parse_width(function: Attributes, name: str) -> int | Missing:
    """Return lanes; functions that have no link report 0 or 255."""
    lanes = parse_integer(function, name)
    return make_unparsable(str(lanes)) if lanes in (0, 255) else lanes


def _is_absent(value: object) -> bool:
    return isinstance(value, Missing) and value.reason is Reason.ABSENT


def _read_version(family: Family, attributes: Attributes, driver: str | None) -> str | Missing:
    version = _get_first(attributes, family.version)
    if isinstance(version, str) or driver is None:
        return version
    # A module's name has no dashes in sysfs. A built-in or unversioned module has no such file.
    with suppress(OSError), open(f"/sys/module/{driver.replace('-', '_')}/version") as file:
        return file.read().strip()
    return version


def _get_first(attributes: Attributes, names: tuple[str, ...]) -> str | Missing:
    """Return the first attribute that is not empty, or the reason why the last one is missing."""
    value: str | Missing = ABSENT
    for name in names:
        value = get_text(attributes, name)
        if isinstance(value, str) and value:
            return value
    return value if isinstance(value, Missing) else ABSENT


def _count_hw_queues(
    hosts: tuple[Host, ...], controller: str | None, survey: dict[str, Attributes]
) -> int | Missing:
    if controller:
        # nvme/host/pci.c: queue_count includes the admin queue.
        count = parse_integer(survey.get(controller, {}), "queue_count")
        return count - 1 if isinstance(count, int) and count else count
    return hosts[0].hw_queues if hosts else ABSENT


def list_directories(group: AdapterBranches) -> Iterator[tuple[TargetKind, str]]:
    """Yield the directories of an adapter's controllers and hosts, with their types."""
    for kind, directory in _iterate_devices(group):
        yield kind, _get_attributes_dir(kind, directory)


def build_controls(
    groups: Mapping[str, AdapterBranches],
    survey: Mapping[str, Attributes],
    wanted: Mapping[TargetKind, Sequence[str]],
    routes: Routes,
) -> Iterator[Control]:
    """Yield the controls of each adapter, with the attributes wanted for their type."""
    for adapter, group in groups.items():
        for kind, device in _iterate_devices(group):
            directory = _get_attributes_dir(kind, device)
            values = survey.get(directory, {})
            is_host = kind is TargetKind.HOST
            yield Control(
                target=get_kernel_name(device),
                id=routes.of_host(device) if is_host else routes.of_controller(device),
                adapter=adapter,
                kind=kind,
                sysfs=directory,
                attributes={name: values.get(name, ABSENT) for name in wanted.get(kind, ())},
            )


def _iterate_devices(group: AdapterBranches) -> Iterator[tuple[TargetKind, str]]:
    for directory in group.controllers:
        yield TargetKind.CONTROLLER, directory
    for directory in group.hosts:
        yield TargetKind.HOST, directory


def _get_attributes_dir(kind: TargetKind, device: str) -> str:
    """Return the directory of the attributes of a controller or a host."""
    return get_host_class_dir(device) if kind is TargetKind.HOST else device


def read_modules(families: Iterable[Family]) -> tuple[Module, ...]:
    """Return the loaded modules of these families, with the options that each declares.

    A module without an option visible in sysfs (kernel/params.c) has no directory there.
    """
    loaded = []
    for family in families:
        directory = f"/sys/module/{family.name}"
        names = tuple(option.name for option in family.options)
        if names and os.path.isdir(directory):
            wanted = tuple(f"parameters/{name}" for name in names)
            values = read_attributes(directory, wanted)
            loaded.append(
                Module(
                    family.name,
                    {name: values[path] for name, path in zip(names, wanted, strict=True)},
                )
            )
    return tuple(loaded)


def find_initramfs_command() -> str | None:
    """Return the command that rebuilds the initramfs here, or None if no known one is installed."""
    import shutil  # expensive, and rarely needed

    return next((command for tool, command in _REBUILD.items() if shutil.which(tool)), None)
