"""The list of all checks, and the function that runs them."""

from hbatune.checks import adapter_checks, depth_checks, disk_checks, error_checks, software_checks
from hbatune.checks.finding import Check, CheckInput, Finding, Severity

CHECKS = (
    Check("pcie-link", "D0-10", adapter_checks.find_slow_links),
    Check("port-rate", "D2-7", adapter_checks.find_slow_ports),
    Check("pcie-errors", "K-aer", adapter_checks.find_bus_errors),
    Check("pcie-errors-not-counted", "K-aer", adapter_checks.find_uncounted_errors),
    Check("msix-off", "D0-3", adapter_checks.find_missing_msix),
    Check("msix-few", "D4-2", adapter_checks.find_few_vectors),
    Check("vectors-crowded", "D0-3", adapter_checks.find_crowded_vectors),
    Check("vectors-far", "D0-3", adapter_checks.find_far_vectors),
    Check("firmware-not-approved", "D0-5", software_checks.find_unapproved),
    Check("driver-not-approved", "D0-5", software_checks.find_unapproved),
    Check("host-depth-share", "D1-2", depth_checks.find_starved_luns),
    Check("host-credits", "D4-3", depth_checks.find_unused_credits),
    Check("host-commands", "D4-3", depth_checks.find_small_hosts),
    Check("array-port", "D2-4", depth_checks.find_crowded_ports),
    Check("target-commands", "D2-3", adapter_checks.find_target_limits),
    Check("target-time", "K-lpfc-time", adapter_checks.find_time_limits),
    Check("coalescing-on", "D0-4", adapter_checks.find_coalescing),
    Check("adapter-state", "K-device-state", adapter_checks.find_broken_adapters),
    Check("depth-sunk", "K-queue-ramp", depth_checks.find_lowered_depths),
    Check("device-state", "K-device-state", error_checks.find_given_up),
    Check("medium-errors", "K-failed-io", error_checks.find_logged),
    Check("space-errors", "K-failed-io", error_checks.find_logged),
    Check("transport-errors", "K-failed-io", error_checks.find_logged),
    Check("io-errors", "K-failed-io", error_checks.find_logged),
    Check("command-timeouts", "K-error-counters", error_checks.find_timeouts),
    Check("command-errors", "K-error-counters", error_checks.find_unexplained),
    Check("counters-rising", "K-error-counters", error_checks.find_rising_counters),
    Check("preferred-paths", "D4-4", disk_checks.find_uneven_preference),
    Check("map-paths", "K-map-paths", disk_checks.find_lost_paths),
    Check("map-balance", "D2-7", depth_checks.find_idle_adapters),
    Check("single-path", "D0-9", disk_checks.find_single_paths),
    Check("same-name", "K-stable-name", disk_checks.find_shared_names),
    Check("no-name", "K-stable-name", disk_checks.find_missing_names),
    Check("site-name", "K-stable-name", disk_checks.find_unmatched_names),
    Check("drive-cache", "D1-4", disk_checks.show_drive_caches),
    Check("adapter-cache", "D4-6", disk_checks.find_adapter_caches),
    Check("cache-random-writes", "D4-15", disk_checks.find_costly_caches),
    Check("adapter-cacheless", "D4-12", disk_checks.find_cacheless_adapters),
    Check("atime", "D4-5", disk_checks.find_access_times),
    Check("iostats-off", "D4-5", disk_checks.find_statistics_off),
    Check("read-ahead-large", "K-read-ahead-default", disk_checks.find_large_defaults),
    Check("requests-large", "K-request-default", disk_checks.find_large_defaults),
    Check("no-capacity", "K-sector-size", disk_checks.find_unusable_disks),
    Check("zoned-scheduler", "K-zone-order", disk_checks.find_unordered_zones),
    Check("tuned-running", "K-last-write", software_checks.find_tuned),
    Check("irqbalance-running", "K-irq-affinity", software_checks.find_irqbalance),
    Check("module-option", "V-modprobe", software_checks.find_module_options),
    Check("udev-rule", "K-last-write", software_checks.find_udev_rules),
    Check("io-shares-unused", "K-io-shares", software_checks.find_unused_shares),
    Check("elevator-ignored", "K-elevator", software_checks.find_ignored_elevator),
    Check("boot-unset", "K-adapter-lock", software_checks.find_unset_at_boot),
    Check("udev-rule-lost", "K-adapter-lock", software_checks.find_ineffective_rules),
    Check("vendor-advice", "V-pure-rules", software_checks.find_advice),
    Check("fio-missing", "D0-11", software_checks.find_missing_fio),
    Check("adapter-unread", "D0-8", disk_checks.find_unread_adapters),
    Check("disk-unread", "D0-8", disk_checks.find_unread_disks),
    Check("iotune-installed", "V-seastar-iotune", software_checks.find_iotune),
    Check("processes-hidden", "K-last-write", software_checks.find_hidden_processes),
)


def run_checks(inputs: CheckInput) -> tuple[Finding, ...]:
    """Return the findings of all checks, most severe first, otherwise in the order of the list."""
    findings: list[Finding] = []
    for check in CHECKS:
        findings += check.look(check, inputs)
    severities = list(Severity)
    return tuple(sorted(findings, key=lambda finding: -severities.index(finding.severity)))


def is_clean(findings: tuple[Finding, ...]) -> bool:
    """Return whether all findings are informational."""
    return all(finding.severity is Severity.INFO for finding in findings)
