"""Gather the health of a machine for the checks; its adapters and endpoints are already known.

The health includes other tools that change hbatune's settings, or that can measure their effect.
Bus errors may be counted at the adapter, at the port above it, and at the root port, which counts
the messages of everything below it. All three are read (drivers/pci/pcie/aer.c).
"""

import errno
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain, starmap
from operator import attrgetter
from pathlib import Path

from hbatune import loader
from hbatune.facts import adapters, attributes, families, health, processors, routes, services, udev
from hbatune.facts.attributes import ABSENT, Attributes, Survey, get_text, get_word, parse_integer
from hbatune.facts.devices import list_names, read_mount_options
from hbatune.facts.ids import escape_text
from hbatune.facts.kernel_log import Counts, add_counts, read_kernel_log
from hbatune.facts.model import Adapter, Endpoint, Machine, Missing, Protocol, Reason, get_fact
from hbatune.facts.services import IRQBALANCE, TUNED, Irqbalance, ProvenService
from hbatune.facts.survey import survey_requests
from hbatune.facts.tuned import is_one_shot, read_tuned_profile
from hbatune.workers import WorkerPool

# The MSI and MSI-X vectors of a function; absent if it has a line instead.
_VECTORS = "msi_irqs/"
# The totals of a root port, in the order of Errors.
_ROOT_TOTALS = (
    *("aer_rootport_total_err_cor", "aer_rootport_total_err_nonfatal"),
    "aer_rootport_total_err_fatal",
)
# The attributes read from an adapter's PCI function and from the ports above it.
_PORT_ATTRIBUTES = (
    *("max_link_speed", "max_link_width", _VECTORS),
    *health.BUS_ERROR_ATTRIBUTES,
    *_ROOT_TOTALS,
)
_STATUS, _HAS_LIST = 0x06, 1 << 4  # include/uapi/linux/pci_regs.h: PCI_STATUS_CAP_LIST
_LIST_START, _HEADER = 0x34, 0x40  # PCI_CAPABILITY_LIST, PCI_STD_HEADER_SIZEOF
_MSI = frozenset({0x05, 0x11})  # PCI_CAP_ID_MSI, PCI_CAP_ID_MSIX
_NO_ANSWER = 0xFF

DAEMONS = (IRQBALANCE, TUNED)
TOOLS = ("fio", "iotune")

# In the order of precedence: for files with the same name, the first is used (udev(7)).
_FOLDERS = ("/etc/udev/rules.d", "/run/udev/rules.d", "/usr/lib/udev/rules.d", "/lib/udev/rules.d")
_DISTRIBUTION_FOLDERS = _FOLDERS[2:]
_MODPROBE_FOLDERS = ("/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d")
_ASSIGNED = re.compile(r'\bATTR\{([^}"]*)\}\s*:?=(?!=)\s*"((?:[^"\\]|\\.)*)"')
_RUN = re.compile(r'\b(?:RUN|PROGRAM)(?:\{\w+\})?\s*(?:\+|:)?=(?!=)\s*"((?:[^"\\]|\\.)*)"')
# The matches that identify a device; other matches select an event or a type.
_IDENTITY = re.compile(
    r"\b(?:ATTRS?\{(?:device/)?(?:vendor|model|subsysnqn)\}"
    r"|ENV\{(?:ID_VENDOR|ID_MODEL|ID_SERIAL|SCSI_VENDOR|SCSI_MODEL|DM_UUID|DM_NAME)\w*\})"
    r'\s*([!=])=\s*"((?:[^"\\]|\\.)*)"'
)
_GOTO = re.compile(r"\bGOTO\s*=")
_MATCH = re.compile(r'\b([A-Z]+)(?:\{([^}"]*)\})?\s*([!=])=\s*"((?:[^"\\]|\\.)*)"')
# The properties of the event of a whole disk that appears.
_DISK_ADDED = {"ACTION": "add", "SUBSYSTEM": "block", "DEVTYPE": "disk"}
_WRITTEN = re.compile(r">\s*\S*?((?:queue|device)/\w+)")
_OURS = re.compile(r"\bhbatune\b")
_MAX_RULES_BYTES = 1 << 20

_COUNTERS = ("device/iodone_cnt", attributes.ERROR_COUNTER, "device/iotmo_cnt")
# The counters of an NVMe disk and of its controller. command_error_count is not evidence: it
# includes commands of user space.
_NVME_COUNTERS = (
    *("device/diag/reset_count", "device/diag/reconnect_count"),
    *map("diag/{}".format, health.NVME_COUNTERS),
)
# The error counters of a Fibre Channel link (drivers/scsi/scsi_transport_fc.c).
_LINK_ERRORS = (
    *("statistics/error_frames", "statistics/invalid_crc_count", "statistics/link_failure_count"),
    *("statistics/loss_of_signal_count", "statistics/loss_of_sync_count"),
)
# The error counters of a SAS phy (drivers/scsi/scsi_transport_sas.c: sas_phy_linkerror_attr).
PHY_ERRORS = (
    *("invalid_dword_count", "loss_of_dword_sync_count"),
    *("phy_reset_problem_count", "running_disparity_error_count"),
)
# A port's current and supported speeds (drivers/scsi/scsi_transport_fc.c: fc_port_speed_names).
_FC_RATES = ("speed", "supported_speeds")
# A phy's current and maximum rate (drivers/scsi/scsi_transport_sas.c: sas_linkspeed_names).
_PHY_RATES = ("negotiated_linkrate", "maximum_linkrate_hw")
_HOSTS = "/sys/class/scsi_host"
_FC_HOSTS = "/sys/class/fc_host"
_PHYS = "/sys/class/sas_phy"
_UNSUPPORTED = (1 << 64) - 1  # (u64)-1: a driver that does not count

_get_escaped = partial(attributes.parse_text, convert=escape_text)


def has_msi(function: Attributes) -> bool | Missing:
    """Return whether the function has MSI or MSI-X capabilities (PCI Local Bus 3.0, 6.7, 6.8).

    Only root may read beyond the first 64 bytes (drivers/pci/pci-sysfs.c: pci_read_config).
    """
    attribute = function.get(attributes.PCI_CONFIG, ABSENT)
    if isinstance(attribute, Missing):
        return attribute
    config = attributes.get_bytes(function, attributes.PCI_CONFIG)
    if len(config) <= _HEADER:
        return Missing(Reason.UNREADABLE, errno.EACCES)
    if config[0] == config[1] == _NO_ANSWER:  # a card that does not answer reads as ones
        return Missing(Reason.UNREADABLE, errno.EIO)
    place = config[_LIST_START] if config[_STATUS] & _HAS_LIST else 0
    visited: set[int] = set()
    while place >= _HEADER and place not in visited and place + 1 < len(config):
        visited.add(place)
        if config[place] in _MSI:
            return True
        place = config[place + 1] & ~3
    return False


def read_udev_rules() -> tuple[health.UdevRule, ...]:
    """Return the lines of the machine's udev rules that set attributes, except hbatune's own."""
    files = _read_files(_FOLDERS, ".rules")
    return tuple(chain.from_iterable(starmap(parse_assignments, files)))


def read_module_options(modules: Collection[str]) -> tuple[health.ModuleOptionLine, ...]:
    """Return the options of these modules in modprobe.d(5), except hbatune's own."""
    options: list[health.ModuleOptionLine] = []
    for file, text in _read_files(_MODPROBE_FOLDERS, ".conf"):
        for number, line in _join_lines(text):
            command, name, *words = (*line.split(), "", "")
            module = name.replace("-", "_")
            if command == "options" and module in modules:
                place = (escape_text(file), number, module)
                for word in filter(None, words):
                    option, _, value = escape_text(word).partition("=")
                    options.append(health.ModuleOptionLine(*place, option, value))
    return tuple(options)


def _read_files(folders: Iterable[str], suffix: str) -> Iterator[tuple[str, str]]:
    """Yield path and text of each file except hbatune's own: of one name, the first folder's."""
    files: dict[str, str] = {}
    for folder in folders:
        for name in list_names(folder):
            if name.endswith(suffix):
                files.setdefault(name, f"{folder}/{name}")
    for name, file in sorted(files.items()):
        if not _OURS.search(name):
            # An entry in such a directory may be a FIFO, or a link to a device.
            opened = loader.open_file(Path(file))
            with suppress(OSError, loader.UnusableFileError), opened as descriptor:
                text = loader.read_beginning(descriptor, _MAX_RULES_BYTES)
                yield file, text.decode("utf-8", "backslashreplace")


def find_distribution_rules(disks: Iterable[Endpoint]) -> dict[str, str]:
    """Return, by id, the distribution's rules file that sets a disk's scheduler to bfq.

    Return nothing if a unit uses I/O weights or priorities. A rule with unknown conditions, such as
    SUSE's, counts for rotational disks.
    """
    files: dict[str, str] = {}
    for rule in () if services.find_io_shares() else read_udev_rules():
        if rule.attribute == "queue/scheduler" and rule.value is not None:
            for disk in disks:
                if rule.disks.include(disk) if rule.disks else disk.rotational is True:
                    files[disk.id] = rule.file if rule.value == "bfq" else ""
    return {id: file for id, file in files.items() if file.startswith(_DISTRIBUTION_FOLDERS)}


def parse_assignments(file: str, text: str) -> Iterator[health.UdevRule]:
    """Yield the attributes that rules set, directly or through a shell; lines may be continued."""
    # The patterns of earlier jumps, without duplicates: other devices skip the rules after a jump.
    jump_patterns: dict[str, None] = {}
    has_jumps = False
    for number, line in _join_lines(text):
        disks = parse_disk_match(line)
        certain = None if has_jumps else disks
        patterns: dict[str, list[str]] = {"=": [], "!": []}
        for sign, glob in _IDENTITY.findall(line):
            patterns[sign].append(escape_text(glob))
        required = tuple(patterns["="] or jump_patterns)
        make_rule = partial(health.UdevRule, escape_text(file), number, of=required, disks=certain)
        for attribute, value in _ASSIGNED.findall(line):
            yield make_rule(escape_text(attribute), escape_text(value))
        for program in _RUN.findall(line):
            for attribute in _WRITTEN.findall(program):
                yield make_rule(escape_text(attribute), None)
        if _GOTO.search(line):
            has_jumps = has_jumps or disks is None or bool(disks.kernels)
            jump_patterns |= dict.fromkeys(patterns["!"])


def parse_disk_match(line: str) -> health.UdevDisks | None:
    """Return the disks that a line applies to when they appear, or None if that is unknown."""
    kernels: tuple[str, ...] = ("*",)
    rotational = None
    for key, name, sign, glob in _MATCH.findall(line):
        is_equal = sign == "="
        if (key if key != "ENV" else name) in _DISK_ADDED:
            text = _DISK_ADDED[name or key]
            if any(fnmatchcase(text, part) for part in glob.split("|")) is not is_equal:
                return health.UdevDisks(())
        elif key == "KERNEL" and is_equal:
            kernels = tuple(map(escape_text, glob.split("|")))
        elif (key, name) == ("ATTR", "queue/rotational") and glob in ("0", "1"):
            rotational = (glob == "1") is is_equal
        else:
            return None
    return health.UdevDisks(kernels, rotational)


def _join_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each rule with the number of its first line."""
    start = 1
    parts: list[str] = []
    # An empty line ends the last rule.
    for number, line in enumerate((*text.splitlines(), ""), start=1):
        if not parts:
            start = number
        # A comment within a continued rule is skipped and does not end the rule.
        if line.lstrip().startswith("#"):
            continue
        parts.append(line.removesuffix("\\"))
        if not line.endswith("\\"):
            yield start, "".join(parts)
            parts = []


def observe_health(
    machine: Machine,
    *,
    deadline: float = 10.0,
    avoid: Mapping[str, str] | None = None,
    with_log: bool = True,
    worker_pool: WorkerPool | None = None,
) -> health.Health:
    """Read the health of the machine's adapters and endpoints, and find other tools.

    ``deadline``, ``avoid`` and ``worker_pool`` are the same as of ``machine.gather_machine``.
    Without the kernel's log, it counts as absent.
    """
    paths: dict[str, tuple[str, ...]] = {}
    for adapter in machine.adapters:
        paths[adapter.target] = adapters.list_pci_path(adapter.pci.address) if adapter.pci else ()
    avoided = avoid or {}
    survey = survey_requests(
        dict(_build_requests(machine, paths)),
        deadline=deadline,
        avoid={e.sysfs: avoided[e.target] for e in machine.endpoints if e.target in avoided},
        worker_pool=worker_pool,
    )
    # The card's capabilities matter only if no vector is in use.
    configs = {}
    for path in filter(None, paths.values()):
        if isinstance(get_text(survey.get(path[0], {}), _VECTORS), Missing):
            configs[path[0]] = (attributes.PCI_CONFIG,)
    offers = survey_requests(configs, deadline=deadline, worker_pool=worker_pool)
    survey |= {directory: survey[directory] | config for directory, config in offers.items()}
    log = read_kernel_log() if with_log else ABSENT
    has_our_rules = any(map(_OURS.search, list_names(_FOLDERS[0])))  # udev's library loads slowly
    daemons = services.find_services(DAEMONS)
    irqbalance = services.parse_irqbalance(daemons[IRQBALANCE])
    scripts = irqbalance.scripts if isinstance(irqbalance, Irqbalance) else ()
    runs_tuned = isinstance(daemons[TUNED], ProvenService)
    points = set[str]().union(*map(attrgetter("mounts"), machine.endpoints))
    # The tools may be in the user's path or in root's.
    folders = (*os.get_exec_path(), "/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin")
    return health.Health(
        adapters={
            adapter.target: _check_adapter(machine, adapter, paths[adapter.target], survey)
            for adapter in machine.adapters
        },
        disks={e.target: _check_disk(e, survey.get(e.sysfs, {}), log) for e in machine.endpoints},
        mounts=tuple(starmap(health.Mount, read_mount_options(points).items())),
        daemons={
            name: service if isinstance(service, Missing) else service is not None
            for name, service in daemons.items()
        },
        tools={name: any(os.access(f"{f}/{name}", os.X_OK) for f in folders) for name in TOOLS},
        udev_rules=read_udev_rules(),
        irq_policies=tuple(escape_text(str(script)) for script in scripts),
        log=log if isinstance(log, Missing) else True,
        msi_off=processors.find_kernel_option(processors.MSI_OFF),
        elevator=processors.find_kernel_option(processors.ELEVATOR),
        tuned=read_tuned_profile() if runs_tuned or is_one_shot() else ABSENT,
        unset=udev.read_unset_settings() if has_our_rules else (),
        module_options=read_module_options({module.name for module in machine.modules}),
        io_shares=services.find_io_shares(),
    )


def _build_requests(
    machine: Machine, paths: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    for adapter in machine.adapters:
        family = families.family_named(adapter.family)
        for directory in paths[adapter.target]:
            yield directory, _PORT_ATTRIBUTES
        for host in adapter.hosts:
            if family.credits or family.inspected:
                yield f"{_HOSTS}/{host.name}", (*family.credits, *family.inspected)
            for directory, errors, rates in _list_links(host.name):
                yield directory, (*errors, *rates)
    for endpoint in machine.endpoints:
        cache = _get_cache_path(endpoint)
        counters = _NVME_COUNTERS if endpoint.protocol is Protocol.NVME else ()
        yield endpoint.sysfs, (*(_COUNTERS if endpoint.address else counters), cache)


def _check_adapter(
    machine: Machine, adapter: Adapter, path: tuple[str, ...], survey: Survey
) -> health.AdapterHealth:
    family = families.family_named(adapter.family)
    function = survey.get(path[0], {}) if path else {}
    # By its driver's name: a module with another name, such as xen_blkfront, is not read.
    parameters = machine.parameters_by_module.get(get_fact(adapter.driver) or "", {})
    port = root = None
    if path[1:]:
        above = survey.get(path[1], {})
        width = parse_integer(above, "max_link_width")
        port = health.Port(
            address=routes.get_kernel_name(path[1]),
            max_speed=attributes.parse_leading_number(above, "max_link_speed"),
            # Ports without a link report 0 or 255 (drivers/pci/pci-sysfs.c).
            max_width=ABSENT if width in (0, 255) else width,
            errors=health.parse_bus_errors(above),
        )
        totals = map(partial(parse_integer, survey.get(path[-1], {})), _ROOT_TOTALS)
        root = health.Root(routes.get_kernel_name(path[-1]), health.Errors(*totals))
    credits: dict[str, int | Missing] = {}
    link_errors: dict[str, int | Missing] = {}
    inspected: dict[str, str | Missing] = {}
    rates: dict[str, health.LinkRate] = {}
    for host in adapter.hosts:
        values = survey.get(f"{_HOSTS}/{host.name}", {})
        for name in family.credits:
            credits[host.name] = parse_integer(values, name)
        for name in family.inspected:
            inspected[f"{host.name} {name}"] = _get_escaped(values, name)
        for directory, errors, rate_files in _list_links(host.name):
            link, values = routes.get_kernel_name(directory), survey.get(directory, {})
            for file in errors:
                count = parse_integer(values, file, 0)  # of Fibre Channel hexadecimal
                if count != _UNSUPPORTED:
                    link_errors[f"{link} {routes.get_kernel_name(file)}"] = count
            # An inactive port or phy reports "Unknown" or "Phy disabled".
            current, maximum = (parse_gigabits(get_word(values, file)) for file in rate_files)
            if current and maximum:
                rates[link] = health.LinkRate(max(current), max(maximum))
    return health.AdapterHealth(
        errors=health.parse_bus_errors(function) if path else None,
        port=port,
        root=root,
        vectors=attributes.count_words(function, _VECTORS),
        options={option.name: _get_escaped(parameters, option.name) for option in family.options},
        credits=credits,
        link_errors=link_errors,
        offers_msi=has_msi(function),
        inspected=inspected,
        rates=rates,
    )


def parse_gigabits(text: str) -> list[float]:
    """Return the speeds in a text: ``16 Gbit``, or several as in ``4 Gbit, 8 Gbit``."""
    return list(map(float, re.findall(r"([0-9]{1,4}(?:\.[0-9])?) Gbit", text)))


def _check_disk(endpoint: Endpoint, values: Attributes, log: Counts | Missing) -> health.DiskHealth:
    # drivers/scsi/scsi_sysfs.c: show_iostat prints hexadecimal numbers.
    done, errors, timeouts = map(partial(parse_integer, values, base=16), _COUNTERS)
    logged: dict[str, int] = {}
    if not isinstance(log, Missing):
        logged = add_counts(log, endpoint.target, endpoint.address, endpoint.controller)
    cache = _get_escaped(values, _get_cache_path(endpoint))
    counters: dict[str, int | Missing] = {}
    for file in _NVME_COUNTERS:
        if file in values:
            counters[routes.get_kernel_name(file)] = parse_integer(values, file)
    return health.DiskHealth(cache, done, errors, timeouts, logged, counters)


def _get_cache_path(endpoint: Endpoint) -> str:
    """Return the file with the type of a write cache (drivers/scsi/sd.c: cache_type_show)."""
    if endpoint.address:
        return f"device/scsi_disk/{endpoint.address}/cache_type"
    return "queue/write_cache"


def _list_links(host: str) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Yield the directories of a SCSI host's FC port and phys, with their counters and speeds."""
    if os.path.isdir(port := f"{_FC_HOSTS}/{host}"):
        yield port, _LINK_ERRORS if os.path.isdir(f"{port}/statistics") else (), _FC_RATES
    # The phys of the adapter itself: names of expanders' phys have three numbers.
    pattern = re.compile(rf"phy-{host.removeprefix('host')}:\d+")
    for phy in sorted(filter(pattern.fullmatch, list_names(_PHYS))):
        yield f"{_PHYS}/{phy}", PHY_ERRORS, _PHY_RATES
