"""Which settings stand or fall together, when one of them turns out to have cost something."""

_GROUPS = {
    # A scheduler switch resets the other two.
    "queue": ("scheduler", "nr_requests", "wbt_lat_usec"),
    "depth": ("queue_depth",),
    "interrupts": ("irq_affinity",),
    "coalescing": (
        *("coalescing", "lpfc_fcp_imax", "lpfc_cr_delay", "lpfc_cr_count", "zio", "zio_timer"),
        "perf_mode",
    ),
}
_OF = {setting: group for group, settings in _GROUPS.items() for setting in settings}


def group_of(setting: str) -> str:
    """Return the group of a setting; one that stands alone is a group of its own name."""
    return _OF.get(setting, setting)
