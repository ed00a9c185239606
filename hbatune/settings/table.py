"""The one table of settings, and look-ups in it by name.

An entry contains everything about a setting (``setting.Setting`` explains its fields). Plans,
workers, udev rules and docs/settings.md are made from it. The order of the writes is data, also
when values are restored. On recent kernels every change of the queue's limits raises read_ahead_kb,
so read_ahead_kb comes last.
"""

import errno
from collections.abc import Collection, Iterable, Mapping
from functools import partial

from hbatune.facts.attributes import ERROR_COUNTER, FIRMWARE_FILE
from hbatune.facts.model import SAVED_PREFIX, TAG_COUNT_FILE, TargetKind
from hbatune.settings import limits
from hbatune.settings import setting as formats
from hbatune.settings.limits import SCHEDULER_FILE
from hbatune.settings.setting import QUEUE_DEPTH, Cause, Setting, Value

__all__ = ["QUEUE_DEPTH", "SETTINGS", "Cause", "Setting", "Value"]

# Settings that other packages must know by name, each with the reason.
SCHEDULER = "scheduler"
"""Determines the legal values of others, and whether requests are allocated at all."""
NR_REQUESTS = "nr_requests"
"""Takes memory, and belongs to the entire adapter under the scheduler ``none``."""
ASYNC_DEPTH = "async_depth"
"""Is changed by the kernel with every change of nr_requests: older kernels set it to the previous
number (block/blk-mq.c: blk_mq_update_nr_requests calls mq-deadline's dd_depth_updated before it
stores the number), newer ones scale it."""
IRQ_AFFINITY = "irq_affinity"
"""Is also set by irqbalance."""
FIRMWARE_COALESCING = "firmware_coalescing"
"""Is read and set only for adapters that the site has opened, and only by commands."""

SCHEDULER_TUNABLES = "queue/iosched/"
"""The directory of the current scheduler's tunables, which exist only with it. async_depth is one
of them in every kernel, although newer kernels show it in another directory."""

MIN_REQUESTS = 4
"""The kernel silently raises lower numbers to four (block/blk-sysfs.c: BLKDEV_MIN_RQ)."""
MAX_QUEUE_DEPTH = 4096
"""The SCSI midlayer's own ceiling (drivers/scsi/scsi.c: scsi_device_max_queue_depth)."""
_MAX_TIMEOUT = 2_147_483  # seconds whose milliseconds fit into the kernel's int, at any tick
_MAX_LOSS = 1 << 30  # seconds that the kernel can still round up to whole attempts to connect

# Groups: settings that are measured and reverted together.
_QUEUE = "queue"  # a scheduler switch resets the others
_COALESCING = "coalescing"
_LIMITS = ("read_ahead_kb",)  # block/blk-settings.c: blk_apply_bdi_limits, since 6.11

# A map's limits are computed from its paths at every load (drivers/md/dm-table.c:
# dm_table_set_restrictions), the limits of a namespace and its head at every reset
# (drivers/nvme/host/core.c: nvme_update_ns_info). Kernels differ in the values that they retain:
# these are all that 6.1 or 6.12 was observed to reset (tests/lab/guest/test_resets.py).
_TABLE = frozenset({Cause.LOADED})
_LIMITS_SET = frozenset({Cause.CONNECTED, Cause.LOADED})
_ADAPTER = frozenset({Cause.BOUND})
_CONTROLLER = frozenset({Cause.BOUND, Cause.CONNECTED})

_QUEUE_SWITCH = partial(
    Setting,
    order=60,
    source="block/blk-sysfs.c",
    format=formats.accept_integers(0, 1),
    resets=_LIMITS,
    reset_by=_TABLE,
)
"""An attribute of a queue that is on or off."""

_HOST_COALESCING = partial(Setting, on=TargetKind.HOST, reset_by=_ADAPTER, group=_COALESCING)
"""A setting of a SCSI host that gathers completions, until the adapter is reset."""

SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(
            SCHEDULER_FILE,
            "how requests are ordered before they reach the adapter",
            "block/elevator.c: elv_iosched_store",
            formats.accept_names("none", "mq-deadline", "kyber", "bfq"),
            resets=(NR_REQUESTS, ASYNC_DEPTH, "wbt_lat_usec", SCHEDULER_TUNABLES),
            locks_adapter=True,
            limit=limits.limit_to_offered,
            group=_QUEUE,
            udev=formats.UdevWriter.BRACKETED,
        ),
        Setting(
            "device/queue_depth",
            "commands a LUN may have in flight",
            "drivers/scsi/scsi_sysfs.c: sdev_store_queue_depth",
            formats.accept_integers(1, MAX_QUEUE_DEPTH),
            order=20,
            needs=(ERROR_COUNTER,),
            # If a command ends between a lower depth and its ceiling, which is still the old depth,
            # the depth rises by one permanently (drivers/scsi/scsi_error.c:
            # scsi_handle_queue_ramp_up; scsi_sysfs.c: sdev_store_queue_depth).
            ramps=True,
            limit=limits.limit_depth,
            group="depth",
            udev=formats.UdevWriter.LOWER,  # shipped rules raise a depth, and never lower it
        ),
        Setting(
            limits.REQUESTS_FILE,
            "requests that may wait in each hardware queue",
            "block/blk-sysfs.c: queue_requests_store",
            formats.accept_integers(MIN_REQUESTS, limits.MAX_SCHEDULER_REQUESTS),
            order=30,
            needs=(SCHEDULER_FILE, TAG_COUNT_FILE),
            resets=(ASYNC_DEPTH,),
            hangs_on=(SCHEDULER,),
            locks_adapter=True,
            limit=limits.limit_requests,
            group=_QUEUE,
            udev=formats.UdevWriter.SCHEDULED,
        ),
        Setting(
            limits.ASYNC_DEPTH_FILE,
            "asynchronous requests and writes that the scheduler accepts, so reads find free ones",
            "block/blk-sysfs.c: queue_async_depth_store; block/mq-deadline.c",
            formats.accept_integers(1, limits.MAX_SCHEDULER_REQUESTS),
            order=40,
            needs=(SCHEDULER_FILE, limits.REQUESTS_FILE),
            hangs_on=(SCHEDULER,),
            limit=limits.limit_async_depth,
            group=_QUEUE,
            udev=formats.UdevWriter.SCHEDULED,
            other_path=f"{SCHEDULER_TUNABLES}{ASYNC_DEPTH}",
        ),
        Setting(
            "queue/rq_affinity",
            "where a request completes: 0 anywhere, 1 near the submitter, 2 on its CPU",
            "block/blk-sysfs.c: queue_rq_affinity_store",
            formats.accept_integers(0, 2),
            order=60,
        ),
        Setting(
            "queue/nomerges",
            "merging of requests: 0 all, 1 simple ones only, 2 none",
            "block/blk-sysfs.c: queue_nomerges_store",
            formats.accept_integers(0, 2),
            order=60,
        ),
        _QUEUE_SWITCH(
            "queue/rotational",
            summary="whether the kernel takes it for a spinning disk",
            resets=("wbt_lat_usec", *_LIMITS),
            reset_by=_LIMITS_SET,
        ),
        _QUEUE_SWITCH("queue/add_random", summary="whether its I/O feeds the entropy pool"),
        _QUEUE_SWITCH("queue/iostats", summary="whether I/O is counted in diskstats"),
        Setting(
            limits.SCSI_TIMEOUT,
            "how long a command of a SCSI disk may take before it is aborted, in s",
            "drivers/scsi/scsi_sysfs.c: sdev_store_timeout",
            # Older kernels accept 0: it ends every command.
            formats.accept_integers(1, _MAX_TIMEOUT),
            order=60,
        ),
        Setting(
            limits.REQUEST_TIMEOUT,
            "how long a request may take before it is aborted, in ms, where `timeout` is not there",
            "block/blk-sysfs.c: queue_io_timeout_store; drivers/nvme/host/sysfs.c",
            formats.REQUEST_TIMEOUT,
            order=60,
            needs=(limits.SCSI_TIMEOUT, limits.NAMESPACE_TIMEOUTS),
            limit=limits.limit_request_timeout,
            other_path=limits.CONTROLLER_TIMEOUT,
        ),
        Setting(
            # The path from the visible disk to its subsystem, which has the policy for all its
            # disks.
            "../iopolicy",
            "which path the visible disk of an NVMe subsystem takes, for all disks of that",
            "drivers/nvme/host/multipath.c: nvme_subsys_iopolicy_store",
            # nvme_iopolicy_names in the same file. A kernel does not list its policies: older ones,
            # including 6.1, answer queue-depth with EINVAL.
            formats.accept_names("numa", "round-robin", "queue-depth"),
            order=60,
        ),
        Setting(
            "queue/max_sectors_kb",
            "largest request, in KiB",
            "block/blk-sysfs.c: queue_max_sectors_store",
            formats.accept_integers(4),
            order=70,
            needs=(limits.MAX_HW_SECTORS, *limits.STACK_FILES),
            resets=_LIMITS,
            reset_by=_LIMITS_SET,
            limit=limits.limit_max_sectors,
            most_in=limits.MAX_HW_SECTORS,
        ),
        Setting(
            "queue/wbt_lat_usec",
            "read latency that buffered writeback is throttled for, in µs; 0 is off",
            "block/blk-sysfs.c: queue_wb_lat_store",
            formats.accept_integers(),
            order=80,
            hangs_on=(SCHEDULER,),  # bfq changes it (block/bfq-iosched.c: bfq_init_queue)
            group=_QUEUE,
        ),
        Setting(
            "queue/read_ahead_kb",
            "how far sequential reads are read ahead, in KiB",
            "block/blk-sysfs.c: queue_ra_store",
            formats.accept_integers(),
            order=90,
            kept=True,  # raised to its default with every change of the queue's limits
            reset_by=_LIMITS_SET,
            limit=limits.limit_to_pages,
            step=limits.PAGE_KB,
        ),
        Setting(
            "smp_affinity_list",
            "CPUs that serve an interrupt",
            "kernel/irq/proc.c: write_irq_affinity",
            formats.CPU_LIST,
            on=TargetKind.VECTOR,
            lost_by="irqbalance unless it bans the interrupt, and a reset of an NVMe controller",
            # Managed, or locked by its driver: EIO, or EPERM on newer kernels.
            locked=frozenset({errno.EIO, errno.EPERM}),
            # It moves at its next interrupt, and before Linux 6.19 it is read without a lock: the
            # file may briefly show the previous CPUs, or none (kernel/irq/migration.c:
            # irq_move_masked_irq; kernel/irq/proc.c: show_irq_affinity).
            settles=0.5,
            reset_by=_CONTROLLER,
            limit=limits.limit_affinity,
            group="interrupts",
            alias=IRQ_AFFINITY,
        ),
        Setting(
            "feature/08",
            "completions that an NVMe controller gathers for one interrupt; 0 is off",
            "drivers/nvme/host/ioctl.c: nvme_user_cmd; NVMe feature 08h",
            formats.AGGREGATION,
            on=TargetKind.CONTROLLER,
            lost_by="a reset of the controller",
            reset_by=_CONTROLLER,
            group=_COALESCING,
            alias="coalescing",
        ),
        Setting(
            "feature/09",
            "interrupt vectors of an NVMe controller that do not gather completions",
            "drivers/nvme/host/ioctl.c: nvme_user_cmd; NVMe feature 09h",
            formats.VECTOR_LIST,
            order=20,
            on=TargetKind.CONTROLLER,
            lost_by="a reset of the controller",
            reset_by=_CONTROLLER,
            alias="coalescing_exempt",
        ),
        Setting(
            "ctrl_loss_tmo",
            "how long the kernel retries a lost NVMe controller over fabrics, in s; -1: no limit",
            "drivers/nvme/host/sysfs.c: nvme_ctrl_loss_tmo_store",
            formats.accept_integers(
                -1,
                _MAX_LOSS,
                lambda text: -1 if text == "off" else int(text, 10),
                f"an integer from 0 to {_MAX_LOSS}, or -1 for no limit",
            ),
            order=30,
            on=TargetKind.CONTROLLER,
            needs=(limits.RECONNECT_DELAY,),
            limit=limits.limit_reconnects,
            lost_by="a new connection, which has the value that `nvme connect` was given",
        ),
        Setting(
            "power/pm_qos_latency_tolerance_us",
            "how long an NVMe drive that sleeps may take to wake up, in µs; 0 keeps it awake",
            "drivers/nvme/host/core.c: nvme_set_latency_tolerance",
            formats.LATENCY_TOLERANCE,
            order=40,
            on=TargetKind.CONTROLLER,
            reset_by=_ADAPTER,  # the driver retains it through a reset of the controller
        ),
        _HOST_COALESCING(
            "lpfc_fcp_imax",
            "most interrupts a second of an event queue (SLI-4); 0 adapts itself to the load",
            "drivers/scsi/lpfc/lpfc_attr.c: lpfc_fcp_imax_store",
            formats.accept_integers(0, 5_000_000),
            limit=limits.limit_interrupt_rate,
        ),
        _HOST_COALESCING(
            "lpfc_cr_delay",
            "how long completions are gathered (SLI-3), in ms, from the next link-up on",
            "drivers/scsi/lpfc/lpfc_mbox.c: lpfc_config_link",
            formats.accept_integers(0, 63),
        ),
        _HOST_COALESCING(
            "lpfc_cr_count",
            "how many completions are gathered (SLI-3), from the next link-up on",
            "drivers/scsi/lpfc/lpfc_mbox.c: lpfc_config_link",
            formats.accept_integers(1, 255),
        ),
        _HOST_COALESCING(
            "zio_timer",
            "how long completions are gathered, in µs, from the adapter's next reset on",
            "drivers/scsi/qla2xxx/qla_attr.c: qla2x00_zio_timer_store",
            formats.accept_integers(100, 25_500, lambda text: int(text.removesuffix("us"), 10)),
        ),
        _HOST_COALESCING(
            "zio",
            "whether completions are gathered at all",
            "drivers/scsi/qla2xxx/qla_attr.c: qla2x00_zio_store",
            # It reads as a name, and is written as 0 or 1.
            formats.accept_integers(0, 1, ("Disabled", "Mode 6").index, "0 or 1"),
            order=20,
            disrupts="a write resets the adapter, and its link goes down and comes back",
        ),
        Setting(
            FIRMWARE_FILE,
            "interrupt coalescing in the firmware of an adapter that [site.adapter] opens",
            "drivers/scsi/mpi3mr/mpi3mr_app.c, drivers/scsi/mpt3sas/mpt3sas_ctl.c: IOC page 1",
            formats.FIRMWARE_COALESCING,
            on=TargetKind.HOST,
            lost_by="a reset of the adapter",
            limit=limits.limit_firmware,
        ),
        Setting(
            # The path from a host's class device to the function that its driver is bound to.
            "../../../driver/module/parameters/perf_mode",
            "how much mpt3sas (2: least, never off) or megaraid_sas (2: off, 0: most) coalesces",
            "mpt3sas_base.c: _base_update_ioc_page1_inlinewith_perf_mode; megaraid_sas_base.c",
            formats.accept_integers(-1, 2),
            on=TargetKind.HOST,
            at_load=True,
            group=_COALESCING,
        ),
    )
}


def parse_number_or_text(text: str) -> Value:
    """Return a text's number, or the text itself."""
    try:
        return int(text, 10)
    except ValueError:
        return text


_TUNABLE = formats.ValueFormat("", parse_number_or_text, lambda value: False)
"""A tunable of the current scheduler is kept and restored, but is never in a rule."""


def find_setting(name: str) -> Setting:
    """Return the setting with this name, or the tunable at this path. KeyError for others."""
    if name.startswith(SCHEDULER_TUNABLES):
        summary, source = "a tunable of the scheduler", "block/elevator.c"
        return Setting(name, summary, source, _TUNABLE, 40, hangs_on=(SCHEDULER,), alias=name)
    return SETTINGS[name]


def find_target_kind(name: str) -> TargetKind:
    """Return the target type of the setting with this name; endpoints for an unknown name."""
    return SETTINGS[name].on if name in SETTINGS else TargetKind.ENDPOINT


def list_attributes(
    names: Iterable[str] = SETTINGS, on: TargetKind = TargetKind.ENDPOINT
) -> tuple[str, ...]:
    """Return the files to read for these settings of a type of target, below its directory."""
    settings = [SETTINGS[name] for name in names if SETTINGS[name].on is on]
    paths: dict[str, None] = {}
    for setting in settings:
        if setting.name != FIRMWARE_COALESCING:  # a scan must not open a firmware
            paths |= dict.fromkeys((*setting.paths, *setting.needs))
    return tuple(paths)


def is_tunable(name: str) -> bool:
    """Return whether this is a tunable of the current scheduler, or the directory of them."""
    return name == ASYNC_DEPTH or name.startswith(SCHEDULER_TUNABLES)


def is_among(name: str, names: Collection[str]) -> bool:
    """Return whether a setting is among these; ``queue/iosched/`` in them means all tunables."""
    return name in names or (is_tunable(name) and SCHEDULER_TUNABLES in names)


def list_affected_settings(names: Iterable[str]) -> tuple[str, ...]:
    """Return these settings and all settings that a write to them may change."""
    changed = dict.fromkeys(names)
    for name in list(changed):
        changed.update(dict.fromkeys(find_setting(name).resets))
    return tuple(changed)


BASE_SETTINGS = frozenset(base for setting in SETTINGS.values() for base in setting.hangs_on)
"""Settings on which others depend."""


def is_setting(name: str) -> bool:
    """Return whether this version has a setting with this name."""
    return name in SETTINGS or is_tunable(name)


def find_group(name: str) -> str:
    """Return the group of a setting, or its name if it has no group."""
    return (SETTINGS[name].group if name in SETTINGS else "") or name


def make_property_name(name: str) -> str:
    """Return the property of udev's database in which a setting's original value is saved."""
    return SAVED_PREFIX + name.removeprefix("queue/").replace("/", "_").upper()


def parse_saved_values(texts: Mapping[str, str]) -> dict[str, Value]:
    """Return the original values that udev saved, by setting, without values that do not parse.

    ``texts`` are keyed by their property's name without the prefix (``facts.udev``).
    """
    values: dict[str, Value] = {}
    for name, setting in SETTINGS.items():
        if text := texts.get(make_property_name(name).removeprefix(SAVED_PREFIX)):
            try:
                format = setting.format
                values[name] = (format.parse_saved or format.parse)(text)
            except ValueError:
                continue  # no baseline is better than a wrong one, which a rollback would write
    if values.get(SCHEDULER) == "none":
        values.pop(ASYNC_DEPTH, None)  # the kernel's own value, which cannot be written
    return values
