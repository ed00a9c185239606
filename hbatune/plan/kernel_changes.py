"""Changes of a host's storage between two kernel series, for `forecast`. Pure.

A kernel gives each disk default values. A rule derives a default from the disk's facts, for each
series that the table covers. A value that is not the default of the running series was chosen, so a
moved default does not affect it. The lab boots the same adapters on each series and compares
(tests/lab/boots). Nothing is interpolated between series.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from hbatune.errors import UsageError
from hbatune.facts.attributes import BLOCK_SIZE_FILE, parse_integer
from hbatune.facts.model import Endpoint, Kind, Machine, Missing, Protocol, TargetKind
from hbatune.plan.rows import Row
from hbatune.settings.limits import MAX_HW_SECTORS, SCHEDULER_FILE, find_scheduler
from hbatune.settings.setting import Value

SERIES = ("6.1", "6.12", "7.3")
"""The series that the rules cover, oldest first."""

OPTIMAL_SIZE = "queue/optimal_io_size"
NEW_ASYNC_DEPTH, OLD_ASYNC_DEPTH = "queue/async_depth", "queue/iosched/async_depth"
FORECAST_FILES = (OPTIMAL_SIZE, BLOCK_SIZE_FILE, NEW_ASYNC_DEPTH, OLD_ASYNC_DEPTH)
"""The files of a disk that the rules need in addition to those of the settings."""

_CONTROLLER_TIMEOUTS = {"io_timeout": 30000, "admin_timeout": 60000}
CONTROLLER_FILES = tuple(_CONTROLLER_TIMEOUTS)
"""The files of an NVMe controller, with their defaults in ms (drivers/nvme/host/sysfs.c)."""

_TAGS, _REQUESTS = "mq/0/nr_tags", "queue/nr_requests"
_MAX_SECTORS, _READ_AHEAD = "queue/max_sectors_kb", "queue/read_ahead_kb"
_MIN_READ_AHEAD_KB = 128  # include/linux/pagemap.h: VM_READAHEAD_PAGES


class ChangeKind(StrEnum):
    """The type of a change."""

    DEFAULT = "default"
    OPTION = "option"  # a module's option appears or disappears
    RENDERED = "rendered"  # an option that hbatune has set disappears
    DRIVER = "driver"
    REFUSED = "refused"  # the active profile sets it, and the kernel refuses the value
    UNKNOWN = "unknown"  # a fact is missing


class KernelChange(Struct, frozen=True):
    """One value of a target that the other kernel changes.

    ``attribute`` is a path below the target's directory, or ``module.option``. ``now`` and ``then``
    are None if the kernel does not have it, and both if the change is unknown.
    """

    target: str
    id: str
    attribute: str
    now: Value | None
    then: Value | None
    kind: ChangeKind = ChangeKind.DEFAULT


def find_series(release: str, *, is_running: bool = False) -> str:
    """Return the series of a release, such as ``6.12.107+deb12``. UsageError: it has no rules."""
    match = re.match(r"\d+\.\d+", release)
    if match is not None and match[0] in SERIES:
        return match[0]
    subject = "the host runs kernel" if is_running else "there are no rules for kernel"
    raise UsageError(
        f"{subject} {release!r}, and forecast covers only {', '.join(SERIES)}",
        hint="take a snapshot of a host that runs one of these" if is_running else None,
    )


def _is_since(series: str, first: str) -> bool:
    return SERIES.index(series) >= SERIES.index(first)


class _Disk(Struct, frozen=True):
    """The facts of a disk or map from which a kernel derives defaults. Sizes are in KiB."""

    endpoint: Endpoint
    hardware_kb: int
    optimal_kb: int
    rotational: bool
    scheduler: str
    max_sectors: int | None
    requests: int | None
    tags: int | None

    @property
    def is_nvme(self) -> bool:
        """Whether the NVMe driver made it. Behind a tri-mode adapter, sd makes NVMe drives."""
        endpoint = self.endpoint
        return endpoint.protocol is Protocol.NVME and not endpoint.target.startswith("sd")

    @property
    def is_bio_based(self) -> bool:
        """Whether it has no requests: a visible NVMe disk, or a map of bios."""
        return self.endpoint.kind is Kind.MAP and self.tags is None


def _read_disk(endpoint: Endpoint) -> _Disk | None:
    """Return the facts of a disk, or None if one that its defaults need is unknown."""
    numbers: dict[str, int] = {}
    for path in (MAX_HW_SECTORS, OPTIMAL_SIZE, "queue/rotational", _MAX_SECTORS, _REQUESTS, _TAGS):
        number = parse_integer(endpoint.attributes, path)
        if not isinstance(number, Missing):
            numbers[path] = number
    if not {MAX_HW_SECTORS, OPTIMAL_SIZE, "queue/rotational"} <= numbers.keys():
        return None
    return _Disk(
        endpoint=endpoint,
        hardware_kb=numbers[MAX_HW_SECTORS],
        optimal_kb=numbers[OPTIMAL_SIZE] // 1024,
        rotational=numbers["queue/rotational"] == 1,
        scheduler=str(find_scheduler(endpoint.attributes) or ""),
        max_sectors=numbers.get(_MAX_SECTORS),
        requests=numbers.get(_REQUESTS),
        tags=numbers.get(_TAGS),
    )


def _default_max_sectors(disk: _Disk, series: str, running: str) -> Value | None:
    """block/blk-settings.c: blk_validate_limits. On 6.1 sd takes the optimal size instead."""
    cap = 4096 if _is_since(series, "7.3") else 1280  # block/blk.h: BLK_DEF_MAX_SECTORS_CAP
    is_taken = disk.optimal_kb > cap or (series == "6.1" and disk.endpoint.target.startswith("sd"))
    if disk.optimal_kb and is_taken:
        cap = disk.optimal_kb
    return min(cap, disk.hardware_kb)


def _default_read_ahead(disk: _Disk, series: str, running: str) -> Value | None:
    """block/blk-settings.c: blk_apply_bdi_limits. A chosen max_sectors_kb stays chosen."""
    optimal, max_sectors = disk.optimal_kb, disk.max_sectors
    if optimal == 0 and disk.rotational and _is_since(series, "7.3"):
        if max_sectors == _default_max_sectors(disk, running, running):
            max_sectors = int(_default_max_sectors(disk, series, running) or 0)
        optimal = max_sectors or 0
    return max(2 * optimal, _MIN_READ_AHEAD_KB)


def _default_async_depth(disk: _Disk, series: str, running: str) -> Value | None:
    """block/elevator.c: elevator_change, since 7.2. kyber and bfq take three quarters."""
    if disk.requests is None or disk.is_bio_based or not _is_since(series, "7.3"):
        return None
    has_share = disk.scheduler in ("kyber", "bfq")
    return 3 * disk.requests // 4 if has_share else disk.requests


def _default_old_async_depth(disk: _Disk, series: str, running: str) -> Value | None:
    """block/mq-deadline.c: dd_depth_updated, which only this scheduler has."""
    has_file = disk.scheduler == "mq-deadline" and not _is_since(series, "7.3")
    return disk.requests if has_file else None


def _default_tags(disk: _Disk, series: str, running: str) -> Value | None:
    """drivers/scsi/scsi_lib.c: scsi_mq_setup_tags. Only scsi_debug reserves commands so far."""
    if disk.endpoint.family != "scsi_debug" or disk.tags is None:
        return disk.tags
    return disk.tags + _is_since(series, "7.3") - _is_since(running, "7.3")


def _default_requests(disk: _Disk, series: str, running: str) -> Value | None:
    """Under ``none`` it is the tag set."""
    is_tag_set = disk.scheduler == "none" and disk.requests == disk.tags
    return _default_tags(disk, series, running) if is_tag_set else disk.requests


def _default_merges(disk: _Disk, series: str, running: str) -> Value | None:
    """mpt3sas_scsih.c: scsih_slave_configure; megaraid_sas_base.c. NVMe drives only, up to 6.1."""
    is_tri_mode = disk.endpoint.protocol is Protocol.NVME and not disk.is_nvme
    is_set = is_tri_mode and disk.endpoint.family in ("mpt3sas", "megaraid_sas")
    return 2 if is_set and not _is_since(series, "6.12") else 0


def _default_statistics(disk: _Disk, series: str, running: str) -> Value | None:
    return int(not disk.is_bio_based or _is_since(series, "6.12"))


def _default_optimal_size(disk: _Disk, series: str, running: str) -> Value | None:
    """drivers/nvme/host/core.c: up to 6.1 a drive that reports no size gets one block."""
    block = parse_integer(disk.endpoint.attributes, BLOCK_SIZE_FILE)
    if isinstance(block, Missing) or not disk.is_nvme or _is_since(series, "6.12"):
        return 0
    return block


_DEFAULTS: dict[str, Callable[[_Disk, str, str], Value | None]] = {
    _MAX_SECTORS: _default_max_sectors,
    _READ_AHEAD: _default_read_ahead,
    OLD_ASYNC_DEPTH: _default_old_async_depth,
    NEW_ASYNC_DEPTH: _default_async_depth,
    _TAGS: _default_tags,
    _REQUESTS: _default_requests,
    "queue/nomerges": _default_merges,
    "queue/iostats": _default_statistics,
    OPTIMAL_SIZE: _default_optimal_size,
}
"""The default of each file under a series, given the running series; None if there is no file."""


def find_newest_default(endpoint: Endpoint, path: str) -> Value | None:
    """Return the default of a disk's file under the newest series, or None if it is unknown."""
    disk = _read_disk(endpoint)
    return None if disk is None else _DEFAULTS[path](disk, SERIES[-1], SERIES[-1])


_BIO_FILES: dict[str, Value] = {SCHEDULER_FILE: "none", _REQUESTS: 128, "queue/rq_affinity": 0}
"""Files that a device without requests has up to 6.1 (block/blk-sysfs.c:
blk_mq_queue_attr_visible), with their defaults."""


def _compare_disk(disk: _Disk, running: str, then: str) -> Iterator[KernelChange]:
    endpoint = disk.endpoint
    for path, find_default in _DEFAULTS.items():
        current = parse_integer(endpoint.attributes, path)
        value = None if isinstance(current, Missing) else current
        default = find_default(disk, running, running)
        default_then = find_default(disk, then, running)
        # A file that moves or disappears takes a chosen value with it.
        is_affected = value == default or default_then is None
        if is_affected and value != default_then and default != default_then:
            yield KernelChange(endpoint.target, endpoint.id, path, value, default_then)
    is_gone, was_gone = _is_since(then, "6.12"), _is_since(running, "6.12")
    if disk.is_bio_based and is_gone != was_gone:
        for path, default in _BIO_FILES.items():
            values = (default, None) if is_gone else (None, default)
            yield KernelChange(endpoint.target, endpoint.id, path, *values)


# From the modules of Debian's kernels of these series (modinfo), without scsi_debug.
_NEW_OPTIONS = {
    "6.12": (
        *("ahci.mask_port_map", "mpi3mr.max_sgl_entries", "nvme_core.disable_pi_offsets"),
        *("pm80xx.read_wwn", "pm80xx.use_msix", "pm80xx.use_tasklet"),
        "virtio_scsi.virtscsi_poll_queues",
    ),
    "7.3": (
        *("ahci.mask_port_ext", "mpi3mr.threaded_isr_poll", "mpt3sas.command_retry_count"),
        *("mpt3sas.issue_scsi_cmd_to_bringup_drive", "nvme.quirks"),
        *("nvme_core.multipath_always_on", "pm80xx.pcs_event_log_severity"),
    ),
}
_REMOVED_OPTIONS = {
    "6.12": ("ipr.testmode",),
    "7.3": ("qla2xxx.ql2xetsenable", "qla2xxx.ql2xiidmaenable"),
}
# From drivers/scsi: the first series that differs, and whether it adds the driver.
_DRIVERS = {"cxlflash": ("7.3", False), "leapraid": ("7.3", True)}


def list_modules(machine: Machine) -> dict[str, str]:
    """Return the modules of the adapters' drivers, with the first adapter of each."""
    targets: dict[str, str] = {}
    for adapter in machine.adapters:
        if isinstance(adapter.driver, str):
            module = "xen_blkfront" if adapter.driver == "vbd" else adapter.driver
            targets.setdefault(module, adapter.target)
    if "nvme" in targets:
        targets["nvme_core"] = targets["nvme"]
    return targets


class InstalledModules(Struct, frozen=True):
    """The options of the drivers' modules of an installed kernel, without missing drivers."""

    release: str
    options: Mapping[str, frozenset[str]]


def _compare_modules(
    machine: Machine, running: str, then: str, installed: InstalledModules | None
) -> Iterator[KernelChange]:
    """Yield the drivers that disappear and the options that change, once for each driver."""
    targets = list_modules(machine)
    for driver, target in targets.items():
        since, is_new = _DRIVERS.get(driver, (SERIES[0], True))
        is_missing = _is_since(then, since) is not is_new
        if (driver not in installed.options) if installed else is_missing:
            yield KernelChange(target, target, "driver", driver, None, ChangeKind.DRIVER)
    for since, new_options in _NEW_OPTIONS.items():
        for attribute in (*new_options, *_REMOVED_OPTIONS[since]):
            module, _, option = attribute.partition(".")
            if (adapter := targets.get(module)) is None:
                continue
            is_new = attribute in new_options
            before, after = (_is_since(kernel, since) is is_new for kernel in (running, then))
            if installed is not None and module in installed.options:
                after = option in installed.options[module]
            if before != after:
                now, later = ("present", None) if before else (None, "present")
                yield KernelChange(adapter, adapter, attribute, now, later, ChangeKind.OPTION)


def _compare_controllers(machine: Machine, running: str, then: str) -> Iterator[KernelChange]:
    is_new, was_new = _is_since(then, "7.3"), _is_since(running, "7.3")
    for control in machine.controls:
        if control.kind is TargetKind.CONTROLLER and is_new != was_new:
            for name, default in _CONTROLLER_TIMEOUTS.items():
                values = (None, default) if is_new else (default, None)
                yield KernelChange(control.target, control.id, name, *values)


def forecast_changes(
    machine: Machine,
    then: str,
    *,
    rows: Iterable[Row] = (),
    rendered: Iterable[tuple[str, str, str]] = (),
    installed: InstalledModules | None = None,
) -> tuple[KernelChange, ...]:
    """Return the changes of a machine by a boot of the series ``then``, target by target.

    ``rows`` are the rows of the active profile, ``rendered`` the module, option and text of each
    option that hbatune has set. ``installed`` are the modules of an installed kernel of that
    series. Raises UsageError if the rules do not cover the machine's kernel.
    """
    running = find_series(machine.kernel, is_running=True)
    if running == then:
        return ()
    changes: list[KernelChange] = []
    for endpoint in machine.endpoints:
        disk = _read_disk(endpoint)
        if disk is None:
            unknown = (_MAX_SECTORS, None, None, ChangeKind.UNKNOWN)
            changes.append(KernelChange(endpoint.target, endpoint.id, *unknown))
        else:
            changes += _compare_disk(disk, running, then)
    changes += _compare_controllers(machine, running, then)
    module_changes = _compare_modules(machine, running, then, installed)
    modules = {change.attribute: change for change in module_changes}
    changes += modules.values()
    for module, option, text in rendered:
        change = modules.get(f"{module}.{option}")
        if change is not None and change.then is None:
            changes.append(replace(change, now=text, kind=ChangeKind.RENDERED))
    for row in rows:
        # drivers/nvme/host/multipath.c: nvme_iopolicy_names, since 6.11.
        if (row.setting, row.value) == ("iopolicy", "queue-depth") and then == "6.1":
            refused = (row.setting, row.value, None, ChangeKind.REFUSED)
            changes.append(KernelChange(row.target, row.id, *refused))
    return tuple(changes)
