"""The sentence of each reason why a value differs from the profile value, or is not set.

Policy, findings, operations and rollbacks need these sentences too, so this module imports only
the types of settings.
"""

from functools import lru_cache

from hbatune.settings.setting import Limit, LimitReason

# Of each reason, with its facts in the order of ``LimitReason.facts``.
_SENTENCES = {
    Limit.ALTHOUGH: "although",
    Limit.CAN_QUEUE_UNKNOWN: "the adapter's can_queue is not known",
    Limit.CPUS_EXCLUDED: "{} excludes CPUs {}",
    Limit.CPUS_UNKNOWN: "{} makes no sense or excludes every CPU",
    Limit.DEVICE_MAXIMUM: "the device takes {} at most",
    Limit.DRIVER_MINIMUM: "the driver takes {} at least",
    Limit.FAR_CPU: "no CPU near the adapter may be used: one farther away",
    Limit.HARDWARE_MAXIMUM: "the hardware takes {} at most",
    Limit.HARDWARE_UNKNOWN: "the hardware's limit is not known",
    Limit.INFERRED: "inferred from the driver and the vector's name: "
    "this kernel reports it only at a write",
    Limit.MANAGED: "set by the kernel (managed interrupt)",
    Limit.MAP_REQUESTS: "lowering it on a path of a live map fails I/O: {} sends up to {} KiB",
    Limit.MAP_UNREAD: "lowering it on a path of a live map fails I/O",
    Limit.MASK_NARROWED: "its smp_affinity was narrowed to CPUs {}",
    Limit.NEAR_CPU: "one CPU of {}, which are near the adapter",
    Limit.NOT_LOWERED: "never lowered with scheduler none: {} is the adapter's",
    Limit.NOT_LOADED: "this kernel has loaded {}: load {} with modprobe if it is a module",
    Limit.NO_CPU_LEFT: "no CPU is left for interrupts:",
    Limit.NO_SCHEDULER: "this device passes I/O on and has no scheduler",
    Limit.OFFLINE_CPUS: "none of these CPUs is online",
    Limit.ONE_CPU: "one CPU for each vector",
    Limit.PATH_MAXIMUM: "its path {} takes {} KiB at most",
    Limit.RECONNECT_UNKNOWN: "reconnect_delay is not known",
    Limit.OWN_TIMEOUT: "a namespace of this controller has its own timeout: {} ms",
    Limit.SAME_AS_TIMEOUT: "the same as `timeout`, which is the setting of a SCSI disk",
    Limit.REQUESTS_MAXIMUM: "nr_requests is {}",
    Limit.SCHEDULER_MAXIMUM: "{} with a scheduler",
    Limit.TAGS_UNKNOWN: "the size of the tag set is not known",
    Limit.TAG_SET: "tag set of {} with scheduler none",
    Limit.UNSCHEDULED: "the kernel sets it with scheduler none",
    Limit.WHOLE_ATTEMPTS: "whole attempts, one every {} s",
    Limit.WHOLE_PAGES: "whole pages of {} KiB",
    Limit.AT_LOAD: "an option of the driver's module: takes {}={} when it is loaded",
    Limit.BY_OPTION: "its module's option {} sets it at the next load (--module-options)",
    Limit.READ_ONLY: "read-only in this driver",
    Limit.UNCHANGEABLE: "the controller says that it cannot be changed",
    Limit.ARRAY_SHARE: "the maximum for each path to a LUN, by the array limits in [site]",
    Limit.DRIVES: "{} for each of the {} drives in the array",
    Limit.DRIVES_AT_LEAST: "{} for each of the {} drives in the array, "
    "and {} at least in a Gen1 slot",
    Limit.CHANGED_SINCE: "changed after hbatune set it: not restored",
    Limit.DISRUPTS: "{}: only with --allow-reset",
    Limit.LOWERED: "below the driver's own {}: "
    "an administrator's decision, until `apply {}` names it",
    Limit.BELOW_PEERS: "below the {} of equal disks on its adapter: "
    "an administrator's decision, until `apply {}` names it",
    Limit.CHOSEN_SCHEDULER: "no kernel selects {} by itself: "
    "an administrator's decision, until `apply {}` names it",
    Limit.DISTRIBUTION_SCHEDULER: "replaces the choice of {}, which no weight or ionice uses",
    Limit.NO_DEPTH: "it has no queue depth that can be set",
    Limit.NCQ_OFF: "native command queuing is off: "
    "an administrator's decision, until `apply {}` names it",
    Limit.NO_COALESCING: "the driver has no option for it",
    Limit.ONE_COMMAND: "one command at a time: "
    "the drive does not queue, or an administrator has switched queuing off",
    Limit.RAISED_ONLY: "raised only, never lowered",
    Limit.RESTORED: "set by hbatune, but no active rule requires it: restore the original value",
    Limit.SET_ONCE: "the driver sets it once",
    Limit.UNIDENTIFIED: "unknown device",
    Limit.UNPARSABLE: "not a value of this setting: {!r}",
    Limit.UNREAD_DISK: "cannot be identified: {} cannot be read",
    Limit.WITHIN_ARRAY: "within what the array takes, as far as is known",
    Limit.ZONED: "zoned",
    Limit.PATHS_AT: "equal on all paths: {} is at {}",
    Limit.PATHS_DIFFER: "differs from the other paths: {} takes {} at most, and none is lowered",
    Limit.PATHS_DISAGREE: "left like the other paths: the other paths would get {}",
    Limit.PATHS_PINNED: "left like the other paths: {} must not be changed",
    Limit.PATHS_PINNED_AT: "equal on all paths: {} must not be changed and has {}",
    Limit.PATHS_TAKE: "equal on all paths: {} takes {} at most",
    Limit.AT_MAXIMUM: "as much as the driver takes, or more",
    Limit.BY_DRIVE: "the option sets a separate depth for each drive (tag_info)",
    Limit.NOT_SHOWN: "a loaded module does not report the current value",
    Limit.SEEN_IN_LUNS: "seen in the LUNs",
    Limit.SEEN_IN_VECTORS: "counted in msi_irqs",
    Limit.UNDER_ROOT: "the root disk is behind {}: name this adapter to change it",
    Limit.DEVICE_EXCLUDED: "{} is excluded in [site]",
    Limit.EXCLUDED: "excluded in [site]",
    Limit.REVERTED: "reverted: it cost more than the profile tolerates; "
    "name it to `apply` to try again",
    Limit.ROLLED_BACK: "rolled back; name it to `apply` to tune it again",
    Limit.ADAPTER_WAITS: "the write has not returned; "
    "until it does, adding and removing disks of this adapter waits",
    Limit.COMMANDS_HANG: "hung commands in its queue: {}, the oldest for {} s or more",
    Limit.DEPENDENCY_FAILED: "{} could not be set",
    Limit.DEVICE_REPLACED: "another device has taken its place since the plan",
    Limit.FAILED_BEFORE_WRITE: "its process failed before it wrote anything{}",
    Limit.FAILED_IN_WRITE: "its process failed{}; the next run shows whether the value was set",
    Limit.IMMOVABLE: "the kernel or the driver placed it and refuses to have it moved",
    Limit.MAP_CHANGED: "a path of {} now, not as it was planned for",
    Limit.NOT_RUNNING: "{}, and a write to the queue would wait for it",
    Limit.NO_VECTOR: "the controller has no interrupt vector {}",
    Limit.ORIGINAL_LOST: "its original value may be lost; run `hbatune rollback` first",
    Limit.OTHER_SCHEDULER: "planned with scheduler {}, which is {} now",
    Limit.RECORD_UNREAD: "the rollback record {} cannot be read: {}",
    Limit.ROLLBACK_RECORDED: "a rollback was recorded during this run",
    Limit.SIBLING_STUCK: "a write to {} has not returned and locks the adapter",
    Limit.WORKER_DIED: "the process that wrote it died; "
    "the next look shows whether the value had landed",
    Limit.WORKER_FAILED: "the process that was to write it failed; "
    "the next run shows whether the value was set",
    Limit.WORKER_UNSTARTED: "no process could be started to write it; "
    "raise TasksMax= or ulimit and try again",
    Limit.WOULD_RESET: "it would reset {}, which was changed to {}",
    Limit.AT_MOST: "{} at most",
    Limit.DRIVE_REPLACED: "the drive was replaced",
    Limit.DRIVE_UNNAMED: "the drive at this address does not report its name: "
    "the original value is kept",
    Limit.NEW_INTERRUPT: "the adapter got a new interrupt, which only the kernel may move",
    Limit.NOT_SETTABLE: "it cannot be read, or no longer exists",
    Limit.RESTORED_ALONG: "restored together with the setting that resets it",
    Limit.SETTING_UNKNOWN: "this version of hbatune does not have the setting; "
    "roll back with the version that set it",
    Limit.UNREAD_NOW: "it cannot be read at present; `hbatune rollback` tries again",
    Limit.WITH_SCHEDULER: "removed with its scheduler, which has changed since",
}


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
    sentence = _SENTENCES[reason.limit].format(*reason.facts)
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
