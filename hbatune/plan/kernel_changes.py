"""Changes of a host's storage between two kernel series, for `forecast`. Pure.

A kernel gives each disk default values. Each rule derives a default from the disk's facts, for
every series that it covers. A value that is not the default of the present series was chosen, and
its default does not count. The lab boots the same adapters on each series and compares
(tests/lab/guest/test_forecast.py). Nothing is interpolated between series.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto

from msgspec import Struct

from hbatune.errors import UsageError
from hbatune.facts.attributes import get_text, parse_integer
from hbatune.facts.installed_modules import InstalledModules
from hbatune.facts.model import Control, Endpoint, Kind, Machine, Missing, Protocol, TargetKind
from hbatune.plan.rows import Row
from hbatune.settings.limits import MAX_HW_SECTORS, SCHEDULER_FILE
from hbatune.settings.setting import Value, parse_selected

SERIES = ("6.1", "6.12", "7.3")
"""The series that the rules cover, oldest first."""

OPTIMAL_SIZE, BLOCK_SIZE = "queue/optimal_io_size", "queue/logical_block_size"
NEW_ASYNC_DEPTH, OLD_ASYNC_DEPTH = "queue/async_depth", "queue/iosched/async_depth"
FORECAST_FILES = (OPTIMAL_SIZE, BLOCK_SIZE, NEW_ASYNC_DEPTH, OLD_ASYNC_DEPTH)
"""The files of a disk that the rules need in addition to those of the settings."""

_CONTROLLER_TIMEOUTS = {"io_timeout": 30000, "admin_timeout": 60000}
CONTROLLER_FILES = tuple(_CONTROLLER_TIMEOUTS)
"""The files of an NVMe controller, with their defaults in ms."""

_TAGS, _REQUESTS = "mq/0/nr_tags", "queue/nr_requests"
_MAX_SECTORS, _READ_AHEAD = "queue/max_sectors_kb", "queue/read_ahead_kb"
_MIN_READ_AHEAD_KB = 128  # include/linux/pagemap.h: VM_READAHEAD_PAGES


class Effect(Enum):
    """The meaning of a change."""

    LARGER_REQUESTS = auto()
    SMALLER_REQUESTS = auto()
    MORE_READ_AHEAD = auto()
    LESS_READ_AHEAD = auto()
    ASYNC_DEPTH_MOVED = auto()
    ASYNC_DEPTH_ADDED = auto()
    ASYNC_DEPTH_REMOVED = auto()
    RESERVED_TAGS = auto()
    MERGES_CHANGED = auto()
    OPTIMAL_SIZE_CHANGED = auto()
    IOSTATS_CHANGED = auto()
    NO_QUEUE_SETTINGS = auto()
    QUEUE_SETTINGS = auto()
    TIMEOUT_ADDED = auto()
    TIMEOUT_REMOVED = auto()
    OPTION_ADDED = auto()
    OPTION_REMOVED = auto()
    RENDERED_LOST = auto()
    DRIVER_REMOVED = auto()
    SETTING_LOST = auto()
    SETTING_REFUSED = auto()
    UNKNOWN = auto()


class KernelChange(Struct, frozen=True):
    """One value of a target that the other kernel changes.

    ``attribute`` is a path below the target's directory, or a module's option. ``now`` and ``then``
    are None if the kernel does not have it, and for ``UNKNOWN`` if nothing can be told.
    """

    target: str
    id: str
    attribute: str
    now: Value | None
    then: Value | None
    effect: Effect


class UnknownKernelError(UsageError):
    """The rules do not cover a kernel: the one that the host runs, or the requested one."""

    def __init__(self, release: str, *, is_running: bool) -> None:
        covered = f"forecast covers {', '.join(SERIES)}"
        if is_running:
            super().__init__(f"the host runs kernel {release!r}, and {covered}")
        else:
            super().__init__(f"kernel {release!r} is not known: {covered}", hint="name one of them")


def find_series(release: str, *, is_running: bool = False) -> str:
    """Return the series of a kernel release: ``6.12`` for ``6.12.107+deb12-amd64``.

    Raises UnknownKernelError if the rules do not cover it.
    """
    match = re.match(r"\d+\.\d+", release)
    if match is None or match[0] not in SERIES:
        raise UnknownKernelError(release, is_running=is_running)
    return match[0]


def _is_since(series: str, first: str) -> bool:
    return SERIES.index(series) >= SERIES.index(first)


class _Disk(Struct, frozen=True):
    """The facts of a disk or map from which a kernel derives defaults. Sizes are in KiB."""

    endpoint: Endpoint
    hardware_kb: int
    optimal_kb: int
    rotational: bool
    scheduler: str
    requests: int | None
    tags: int | None

    @property
    def is_scsi(self) -> bool:
        """Whether sd made it (drivers/scsi/sd.c)."""
        return self.endpoint.target.startswith("sd")

    @property
    def is_bio_based(self) -> bool:
        """Whether it has no request queue: a visible NVMe disk, or a map of bios."""
        return self.endpoint.kind is Kind.MAP and self.tags is None


def _read_disk(endpoint: Endpoint) -> _Disk | None:
    """Return the facts of a disk, or None if one that its defaults need is unknown."""
    attributes = endpoint.attributes
    hardware_kb = parse_integer(attributes, MAX_HW_SECTORS)
    optimal = parse_integer(attributes, OPTIMAL_SIZE)
    rotational = parse_integer(attributes, "queue/rotational")
    if (
        isinstance(hardware_kb, Missing)
        or isinstance(optimal, Missing)
        or isinstance(rotational, Missing)
    ):
        return None
    requests, tags = (parse_integer(attributes, path) for path in (_REQUESTS, _TAGS))
    scheduler = get_text(attributes, SCHEDULER_FILE)
    return _Disk(
        endpoint=endpoint,
        hardware_kb=hardware_kb,
        optimal_kb=optimal // 1024,
        rotational=rotational == 1,
        scheduler="" if isinstance(scheduler, Missing) else parse_selected(scheduler),
        requests=None if isinstance(requests, Missing) else requests,
        tags=None if isinstance(tags, Missing) else tags,
    )


def _default_max_sectors(disk: _Disk, series: str) -> int:
    """Return the default of max_sectors_kb.

    block/blk-settings.c: blk_validate_limits. On 6.1 sd takes the optimal size instead
    (drivers/scsi/sd.c: sd_revalidate_disk).
    """
    cap = 4096 if _is_since(series, "7.3") else 1280  # block/blk.h: BLK_DEF_MAX_SECTORS_CAP
    is_taken = disk.optimal_kb > cap or (series == "6.1" and disk.is_scsi)
    if disk.optimal_kb and is_taken:
        cap = disk.optimal_kb
    return min(cap, disk.hardware_kb)


def _default_read_ahead(disk: _Disk, series: str, max_sectors: int) -> int:
    """Return the default of read_ahead_kb (block/blk-settings.c: blk_apply_bdi_limits)."""
    optimal = disk.optimal_kb
    if optimal == 0 and disk.rotational and _is_since(series, "7.3"):
        optimal = max_sectors
    return max(2 * optimal, _MIN_READ_AHEAD_KB)


def _default_async_depth(disk: _Disk, series: str) -> tuple[str, int] | None:
    """Return the path and default of async_depth, or None if this kernel has none.

    block/mq-deadline.c: dd_depth_updated; since 7.2 block/elevator.c: elevator_change.
    """
    if disk.requests is None or disk.is_bio_based:
        return None
    shares = {"kyber": 3 * disk.requests // 4, "bfq": 3 * disk.requests // 4}
    if _is_since(series, "7.3"):
        return NEW_ASYNC_DEPTH, shares.get(disk.scheduler, disk.requests)
    return (OLD_ASYNC_DEPTH, disk.requests) if disk.scheduler == "mq-deadline" else None


def _get_value(endpoint: Endpoint, path: str) -> int | None:
    value = parse_integer(endpoint.attributes, path)
    return None if isinstance(value, Missing) else value


def _compare_limits(disk: _Disk, now: str, then: str) -> Iterator[KernelChange]:
    """Yield the changes of max_sectors_kb and read_ahead_kb."""
    endpoint = disk.endpoint
    sectors, read_ahead = (_get_value(endpoint, path) for path in (_MAX_SECTORS, _READ_AHEAD))
    if sectors is None or read_ahead is None:
        return
    sectors_then = sectors
    if sectors == _default_max_sectors(disk, now):
        sectors_then = _default_max_sectors(disk, then)
    if sectors_then != sectors:
        grows = sectors_then > sectors
        effect = Effect.LARGER_REQUESTS if grows else Effect.SMALLER_REQUESTS
        yield _make_change(endpoint, _MAX_SECTORS, sectors, sectors_then, effect)
    read_ahead_then = _default_read_ahead(disk, then, sectors_then)
    is_default = read_ahead == _default_read_ahead(disk, now, sectors)
    if is_default and read_ahead_then != read_ahead:
        grows = read_ahead_then > read_ahead
        effect = Effect.MORE_READ_AHEAD if grows else Effect.LESS_READ_AHEAD
        yield _make_change(endpoint, _READ_AHEAD, read_ahead, read_ahead_then, effect)


def _compare_async_depth(disk: _Disk, now: str, then: str) -> Iterator[KernelChange]:
    before, after = (_default_async_depth(disk, series) for series in (now, then))
    path = before[0] if before else ""
    value = _get_value(disk.endpoint, path) if path else None
    if before == after:
        return
    effect = Effect.ASYNC_DEPTH_MOVED
    if before is None:
        effect = Effect.ASYNC_DEPTH_ADDED
    elif after is None:
        effect = Effect.ASYNC_DEPTH_REMOVED
    if before and (after is None or after[0] != path):
        yield _make_change(disk.endpoint, path, value, None, effect)
    if after:
        value_before = value if after[0] == path else None
        yield _make_change(disk.endpoint, after[0], value_before, after[1], effect)


def _compare_tags(disk: _Disk, now: str, then: str) -> Iterator[KernelChange]:
    """Yield the change of the tag set: a driver may reserve commands (scsi_mq_setup_tags).

    So far only scsi_debug does (drivers/scsi/scsi_debug.c: nr_reserved_cmds).
    """
    if disk.endpoint.family != "scsi_debug" or disk.tags is None:
        return
    reserved = _is_since(then, "7.3") - _is_since(now, "7.3")
    if reserved:
        after = disk.tags + reserved
        yield _make_change(disk.endpoint, _TAGS, disk.tags, after, Effect.RESERVED_TAGS)
        if disk.scheduler == "none" and disk.requests == disk.tags:
            yield _make_change(disk.endpoint, _REQUESTS, disk.tags, after, Effect.RESERVED_TAGS)


def _compare_merges(disk: _Disk, now: str, then: str) -> Iterator[KernelChange]:
    """Yield the change of nomerges: up to 6.1 two drivers forbid merges for their NVMe drives.

    drivers/scsi/mpt3sas/mpt3sas_scsih.c: scsih_slave_configure;
    drivers/scsi/megaraid/megaraid_sas_base.c: megasas_set_nvme_device_properties.
    """
    endpoint = disk.endpoint
    if endpoint.family not in ("mpt3sas", "megaraid_sas") or endpoint.protocol is not Protocol.NVME:
        return
    before, after = (0 if _is_since(series, "6.12") else 2 for series in (now, then))
    if before != after and _get_value(endpoint, "queue/nomerges") == before:
        yield _make_change(endpoint, "queue/nomerges", before, after, Effect.MERGES_CHANGED)


_QUEUE_FILES = (SCHEDULER_FILE, _REQUESTS, "queue/rq_affinity", "queue/io_timeout")


def _compare_bio_based(disk: _Disk, now: str, then: str) -> Iterator[KernelChange]:
    """Yield the queue files of a device without requests, which exist up to 6.1.

    block/blk-sysfs.c: blk_mq_queue_attr_visible.
    """
    before, after = (_is_since(series, "6.12") for series in (now, then))
    if not disk.is_bio_based or before == after:
        return
    for path in _QUEUE_FILES:
        value = get_text(disk.endpoint.attributes, path)
        text = None if isinstance(value, Missing) else value
        if after and text is not None:
            yield _make_change(disk.endpoint, path, text, None, Effect.NO_QUEUE_SETTINGS)


def _compare_map_counters(disk: _Disk, now: str, then: str) -> Iterator[KernelChange]:
    """Yield iostats of a device without requests: off up to 6.1 (block/blk-settings.c)."""
    before, after = (int(_is_since(series, "6.12")) for series in (now, then))
    is_default = _get_value(disk.endpoint, "queue/iostats") == before
    if disk.is_bio_based and before != after and is_default:
        yield _make_change(disk.endpoint, "queue/iostats", before, after, Effect.IOSTATS_CHANGED)


def _compare_optimal_size(disk: _Disk, now: str, then: str) -> Iterator[KernelChange]:
    """Yield the optimal size of an NVMe disk that reports none: up to 6.1 it is one block.

    drivers/nvme/host/core.c: nvme_update_disk_info, nvme_set_chunk_sectors.
    """
    block = _get_value(disk.endpoint, BLOCK_SIZE)
    if disk.endpoint.protocol is not Protocol.NVME or disk.is_scsi or block is None:
        return
    before, after = (0 if _is_since(series, "6.12") else block for series in (now, then))
    if before != after and _get_value(disk.endpoint, OPTIMAL_SIZE) == before:
        effect = Effect.OPTIMAL_SIZE_CHANGED
        yield _make_change(disk.endpoint, OPTIMAL_SIZE, before, after, effect)


_Comparer = Callable[[_Disk, str, str], Iterator[KernelChange]]
_COMPARERS: tuple[_Comparer, ...] = (
    _compare_limits,
    _compare_async_depth,
    _compare_tags,
    _compare_merges,
    _compare_bio_based,
    _compare_map_counters,
    _compare_optimal_size,
)


def _make_change(
    target: Endpoint | Control,
    path: str,
    now: Value | None,
    then: Value | None,
    effect: Effect,
) -> KernelChange:
    return KernelChange(target.target, target.id, path, now, then, effect)


class OptionChange(Struct, frozen=True):
    """An option that a module has from the series ``since`` on, or lost then."""

    module: str
    option: str
    since: str
    is_removed: bool = False


# From the modules of Debian's kernels of these series (modinfo). Drivers without a family and
# options that only help to find faults are left out.
OPTION_CHANGES = (
    OptionChange("ahci", "mask_port_map", "6.12"),
    OptionChange("ipr", "testmode", "6.12", is_removed=True),
    OptionChange("mpi3mr", "max_sgl_entries", "6.12"),
    OptionChange("virtio_scsi", "virtscsi_poll_queues", "6.12"),
    OptionChange("ahci", "mask_port_ext", "7.3"),
    OptionChange("mpi3mr", "threaded_isr_poll", "7.3"),
    OptionChange("mpt3sas", "command_retry_count", "7.3"),
    OptionChange("mpt3sas", "issue_scsi_cmd_to_bringup_drive", "7.3"),
    OptionChange("nvme", "quirks", "7.3"),
    OptionChange("nvme_core", "multipath_always_on", "7.3"),
    OptionChange("qla2xxx", "ql2xetsenable", "7.3", is_removed=True),
    OptionChange("qla2xxx", "ql2xiidmaenable", "7.3", is_removed=True),
)

DRIVERS_REMOVED = {"cxlflash": "7.3"}
"""The series from which a driver is gone."""


def _compare_options(
    machine: Machine, now: str, then: str, installed: InstalledModules | None
) -> Iterator[KernelChange]:
    """Yield the drivers and options that appear or disappear, once for each adapter's driver."""
    compared: set[str] = set()
    for adapter in machine.adapters:
        if isinstance(adapter.driver, Missing) or adapter.driver in compared:
            continue
        driver = adapter.driver
        compared.add(driver)
        if _is_driver_removed(driver, then, installed) and not _is_driver_removed(
            driver, now, None
        ):
            yield KernelChange(
                adapter.target, adapter.target, "driver", driver, None, Effect.DRIVER_REMOVED
            )
            continue
        modules = (driver, "nvme_core") if driver == "nvme" else (driver,)
        for module in modules:
            for change in OPTION_CHANGES:
                if change.module == module:
                    yield from _compare_option(adapter.target, change, now, then, installed)


def _is_driver_removed(driver: str, series: str, installed: InstalledModules | None) -> bool:
    if installed is not None:
        return driver not in installed.options
    removed = DRIVERS_REMOVED.get(driver)
    return removed is not None and _is_since(series, removed)


def _compare_option(
    target: str, change: OptionChange, now: str, then: str, installed: InstalledModules | None
) -> Iterator[KernelChange]:
    before, after = (_is_since(series, change.since) != change.is_removed for series in (now, then))
    if installed is not None and (options := installed.options.get(change.module)) is not None:
        after = change.option in options
    if before == after:
        return
    attribute = f"{change.module}.{change.option}"
    effect = Effect.OPTION_ADDED if after else Effect.OPTION_REMOVED
    words = ("present" if before else None, "present" if after else None)
    yield KernelChange(target, target, attribute, *words, effect)


def _compare_controllers(machine: Machine, now: str, then: str) -> Iterator[KernelChange]:
    """Yield the timeouts of NVMe controllers (drivers/nvme/host/sysfs.c)."""
    before, after = (_is_since(series, "7.3") for series in (now, then))
    if before == after:
        return
    effect = Effect.TIMEOUT_ADDED if after else Effect.TIMEOUT_REMOVED
    for control in machine.controls:
        if control.kind is TargetKind.CONTROLLER:
            for name, default in _CONTROLLER_TIMEOUTS.items():
                value_now, value_then = (None, default) if after else (default, None)
                yield _make_change(control, name, value_now, value_then, effect)


def _compare_profile(rows: Iterable[Row], then: str) -> Iterator[KernelChange]:
    """Yield the profile's values that the other kernel lacks or refuses."""
    for row in rows:
        # drivers/nvme/host/multipath.c: nvme_iopolicy_names, since 6.11
        if (row.setting, row.value) == ("iopolicy", "queue-depth") and then == "6.1":
            yield KernelChange(
                row.target, row.id, "iopolicy", row.value, None, Effect.SETTING_REFUSED
            )
        elif row.setting == "async_depth" and not _is_since(then, "7.3"):
            yield KernelChange(
                row.target, row.id, "async_depth", row.value, None, Effect.SETTING_LOST
            )


def _compare_rendered(
    rendered: Iterable[tuple[str, str, str]],
    changes: Iterable[KernelChange],
) -> Iterator[KernelChange]:
    """Yield the options in hbatune's modprobe.d file that the other kernel's modules lack."""
    lost = {
        change.attribute: change for change in changes if change.effect is Effect.OPTION_REMOVED
    }
    for module, option, text in rendered:
        if (change := lost.get(f"{module}.{option}")) is not None:
            yield KernelChange(
                change.target, change.id, change.attribute, text, None, Effect.RENDERED_LOST
            )


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
    series. Raises UnknownKernelError if the rules do not cover the machine's kernel.
    """
    now = find_series(machine.kernel, is_running=True)
    if now == then:
        return ()
    changes: list[KernelChange] = []
    for endpoint in machine.endpoints:
        disk = _read_disk(endpoint)
        if disk is None:
            unknown = _make_change(endpoint, _MAX_SECTORS, None, None, Effect.UNKNOWN)
            changes.append(unknown)
            continue
        for compare in _COMPARERS:
            changes += compare(disk, now, then)
    changes += _compare_controllers(machine, now, then)
    options = tuple(_compare_options(machine, now, then, installed))
    changes += options
    changes += _compare_rendered(rendered, options)
    changes += _compare_profile(rows, then)
    return tuple(changes)
