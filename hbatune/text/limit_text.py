"""The reasons why a value differs from the profile's. All rooms need them, so it imports none."""

from enum import StrEnum
from functools import lru_cache

from msgspec import Struct

from hbatune.loader import LongText

_DECISION = "an administrator's decision, until `apply {}` names it"


class Limit(StrEnum):
    """A reason why a value is not the profile's. The braces stand for ``LimitReason.facts``."""

    # of a device (limits.py)
    ALTHOUGH = "although"
    CAN_QUEUE_UNKNOWN = "the adapter's can_queue is not known"
    CPUS_EXCLUDED = "{} excludes CPUs {}"
    CPUS_UNKNOWN = "{} makes no sense or excludes every CPU"
    DEVICE_MAXIMUM = "the device takes {} at most"
    DRIVER_MINIMUM = "the driver takes {} at least"
    FAR_CPU = "no CPU near the adapter may be used: one farther away"
    HARDWARE_MAXIMUM = "the hardware takes {} at most"
    HARDWARE_UNKNOWN = "the hardware's limit is not known"
    INFERRED = "inferred from driver and vector name: this kernel reports it only at a write"
    MANAGED = "set by the kernel (managed interrupt)"
    MAP_REQUESTS = "lowering it on a path of a live map fails I/O: {} sends up to {} KiB"
    MASK_NARROWED = "its smp_affinity was narrowed to CPUs {}"
    NEAR_CPU = "one CPU of {}, which are near the adapter"
    NOT_LOWERED = (
        "with scheduler none a disk has its adapter's {} tags; {} would limit all its disks"
    )
    NOT_LOADED = "this kernel has loaded {}: load {} with modprobe if it is a module"
    NO_CPU_LEFT = "no CPU is left for interrupts:"
    NO_SCHEDULER = "this device passes I/O on and has no scheduler"
    OFFLINE_CPUS = "none of these CPUs is online"
    ONE_CPU = "one CPU for each vector"
    PATH_MAXIMUM = "its path {} takes {} KiB at most"
    RECONNECT_UNKNOWN = "reconnect_delay is not known"
    REQUESTS_MAXIMUM = "nr_requests is {}"
    SAME_AS_TIMEOUT = "the same as `timeout`, which is the setting of a SCSI disk"
    OWN_TIMEOUT = "a namespace of this controller has its own timeout: {} ms"
    SCHEDULER_MAXIMUM = "{} with a scheduler"
    STACK_REQUESTS = "not lowered below a live stack: {} sends up to {} KiB"
    STACK_UNREAD = "not lowered below a live stack, whose largest request is not known"
    TAGS_UNKNOWN = "the size of the tag set is not known"
    TAG_SET = "tag set of {} with scheduler none"
    UNSCHEDULED = "the kernel sets it with scheduler none"
    WHOLE_ATTEMPTS = "whole attempts, one every {} s"
    WHOLE_PAGES = "whole pages of {} KiB"
    # of a driver (table.py)
    AT_LOAD = "an option of the driver's module: takes {}={} when it is loaded"
    BY_OPTION = "its module's option {} sets it at the next load (--module-options)"
    READ_ONLY = "read-only in this driver"
    UNCHANGEABLE = "the controller says that it cannot be changed"
    BY_PERF_MODE = "the driver sets it at each reset, by its option perf_mode"
    PAGE_AGE = "read from the firmware {} min ago"
    SITE_READS_ONLY = '[site.adapter] has firmware = "read": not set'
    FIRMWARE_CLOSED = (
        'its firmware has it; [site.adapter] with firmware = "read" or "set" lets hbatune open it'
    )
    # of the site's facts (policy/budget.py)
    ARRAY_SHARE = "the maximum for each path to a LUN, by the array limits in [site]"
    DRIVES = "{} for each of the {} drives in the array"
    DRIVES_AT_LEAST = "{} for each of the {} drives in the array, and {} at least in a Gen1 slot"
    # of a plan (plan/make.py, plan/rows.py)
    CHANGED_SINCE = "changed after hbatune set it: not restored"
    DISRUPTS = "{}: only with --allow-reset"
    BELOW_PEERS = f"below the {{}} of equal disks on its adapter: {_DECISION}"
    CHOSEN_SCHEDULER = f"no kernel selects {{}} by itself: {_DECISION}"
    DISTRIBUTION_SCHEDULER = "replaces the choice of {}, which no weight or ionice uses"
    LOWERED = f"below the driver's own {{}}: {_DECISION}"
    NO_CAPACITY = "no capacity"
    NO_DEPTH = "it has no queue depth that can be set"
    NCQ_OFF = f"native command queuing is off: {_DECISION}"
    NO_COALESCING = "the driver has no option for it"
    ONE_COMMAND = (
        "one command at a time: the drive does not queue, or an administrator has switched queuing "
        "off"
    )
    RAISED_ONLY = "raised only, never lowered"
    RESTORED = "set by hbatune, but no active rule requires it: restore the original value"
    SET_ONCE = "the driver sets it once"
    UNIDENTIFIED = "unknown device"
    UNPARSABLE = "not a value of this setting: {!r}"
    UNREAD_DISK = "cannot be identified: {} cannot be read"
    WITHIN_ARRAY = "within what the array takes, as far as is known"
    ZONED = "zoned"
    # of the paths of a map or the members of a stack (plan/joint_limits.py)
    PATHS_AT = "equal on all paths or members: {} is at {}"
    PATHS_DIFFER = "differs from other paths or members: {} takes {} at most, and none is lowered"
    PATHS_DISAGREE = "left like the other paths or members, which would get {}"
    PATHS_PINNED = "left like the other paths or members: {} must not be changed"
    PATHS_PINNED_AT = "equal on all paths or members: {} must not be changed and has {}"
    PATHS_TAKE = "equal on all paths or members: {} takes {} at most"
    # of a module option (plan/module_options.py)
    AT_MAXIMUM = "as much as the driver takes, or more"
    BY_DRIVE = "the option sets a separate depth for each drive (tag_info)"
    NOT_SHOWN = "a loaded module does not report the current value"
    SEEN_IN_LUNS = "seen in the LUNs"
    SEEN_IN_VECTORS = "counted in msi_irqs"
    UNDER_ROOT = "the root disk is behind {}: name this adapter to change it"
    # of an installation (operations/situation.py)
    DEVICE_EXCLUDED = "{} is excluded in [site]"
    EXCLUDED = "excluded in [site]"
    REVERTED = "reverted: it cost more than the profile tolerates; name it to `apply` to try again"
    ROLLED_BACK = "rolled back; name it to `apply` to tune it again"
    # of a write (act/chain.py, act/executor.py, act/writer.py)
    ADAPTER_WAITS = (
        "the write has not returned; until it does, adding and removing disks of this adapter waits"
    )
    COMMANDS_HANG = "hung commands in its queue: {}, the oldest for {} s or more"
    DEPENDENCY_FAILED = "{} could not be set"
    DEVICE_REPLACED = "another device has taken its place since the plan"
    FAILED_BEFORE_WRITE = "its process failed before it wrote anything{}"
    FAILED_IN_WRITE = "its process failed{}; the next run shows whether the value was set"
    IMMOVABLE = "the kernel or the driver placed it and refuses to have it moved"
    MAP_CHANGED = "a path of {} now, not as it was planned for"
    NOT_RUNNING = "{}, and a write to the queue would wait for it"
    NO_VECTOR = "the controller has no interrupt vector {}"
    ORIGINAL_LOST = "its original value may be lost; run `hbatune rollback` first"
    OTHER_SCHEDULER = "planned with scheduler {}, which is {} now"
    RECORD_UNREAD = "the rollback record {} cannot be read: {}"
    ROLLBACK_RECORDED = "a rollback was recorded during this run"
    SIBLING_STUCK = "a write to {} has not returned and locks the adapter"
    WORKER_DIED = "the process that wrote it died; the next look shows whether the value had landed"
    WORKER_FAILED = (
        "the process that was to write it failed; the next run shows whether the value was set"
    )
    WORKER_UNSTARTED = (
        "no process could be started to write it; raise TasksMax= or ulimit and try again"
    )
    WOULD_RESET = "it would reset {}, which was changed to {}"
    # of a restore (act/restore.py)
    AT_MOST = "{} at most"
    DRIVE_REPLACED = "the drive was replaced"
    DRIVE_UNNAMED = "the drive at this address does not report its name: the original value is kept"
    NEW_INTERRUPT = "the adapter got a new interrupt, which only the kernel may move"
    NOT_SETTABLE = "it cannot be read, or no longer exists"
    RESTORED_ALONG = "restored together with the setting that resets it"
    SETTING_UNKNOWN = (
        "this version of hbatune does not have the setting; roll back with the version that set it"
    )
    UNREAD_NOW = "it cannot be read at present; `hbatune rollback` tries again"
    WITH_SCHEDULER = "removed with its scheduler, which has changed since"


class LimitReason(Struct, frozen=True):
    """A reason with its facts. ``parts`` are further reasons, in the order of the sentence."""

    limit: Limit
    facts: tuple[int | LongText, ...] = ()
    parts: "tuple[LimitReason, ...]" = ()


def describe_limit(reason: LimitReason | str | None) -> str:
    """Return a reason as one sentence with its remedy."""
    return "; ".join(filter(None, explain_limit(reason)))


@lru_cache(maxsize=1024)  # thousands of disks share few reasons
def explain_limit(reason: LimitReason | str | None) -> tuple[str, str]:
    """Return a reason as a sentence, and the remedy; both may be empty.

    The text of a device, a family or a writer stays unchanged.
    """
    if not isinstance(reason, LimitReason):
        return reason or "", ""
    sentence = reason.limit.format(*reason.facts)
    parts = list(map(describe_limit, reason.parts))
    match reason.limit:
        case Limit.MANAGED if reason.facts:
            cpus, *options = reason.facts
            remedy = f"to free the excluded CPUs, boot with isolcpus=managed_irq,{cpus}"
            for option in options:
                remedy += f" or load the driver with {option}"
            return sentence, "; ".join([remedy, *parts])
        case Limit.ALTHOUGH | Limit.NO_CPU_LEFT:
            return f"{sentence} {'; '.join(parts)}", ""
        case _:
            return "; ".join([sentence, *parts]), ""
