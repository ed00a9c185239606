"""Builds adapters from the branches of sysfs that devices, hosts and controllers hang on."""

import os
from collections.abc import Iterable
from contextlib import suppress

from msgspec import Struct, field

from hbatune.facts.attributes import ABSENT, Attributes, integer, leading_number, text, unparsable
from hbatune.facts.families import declared, family_of
from hbatune.facts.family import Family, identify
from hbatune.facts.ids import escape
from hbatune.facts.model import Adapter, Host, Link, Missing, Pci, Reason
from hbatune.facts.place import Branch, name_of

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
_CONTROLLER = ("queue_count",)


def host_attributes() -> tuple[str, ...]:
    """Return the attributes read from each SCSI host: a few more than any one driver has."""
    names = (*declared("model"), *declared("firmware"), *declared("version"))
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
