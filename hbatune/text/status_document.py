"""The JSON document of `hbatune status`, its headline and its verdicts."""

import os
import time
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from hbatune.act.paths import Paths
from hbatune.agent.host_state import SCHEMA, Ages, DaemonHealth, DaemonState, Stall, assess_host
from hbatune.errors import UsageError
from hbatune.facts.udev import UnsetSetting
from hbatune.loader import is_missing
from hbatune.plan.rows import HostLook, Row, ServingAdapter, State
from hbatune.shipped import load_texts
from hbatune.text.basic_output import format_count

if TYPE_CHECKING:
    from hbatune.agent.status import Status
    from hbatune.probe.history import Record

_LATEST = 5
"""The number of shown verdicts."""


class StatusDocument(Struct, frozen=True, kw_only=True):
    """The JSON document of `status`; ``verdicts`` are the most recent ones, in order of time.

    ``state`` is the host's, a key of ``templates/status.toml``, and ``daemon`` the daemon's, with
    ``stalls`` as reasons. ``counts`` are the settings by state, ``skipped`` describes the excluded
    ones. ``kept`` is whether udev rules tune at boot. ``findings`` are counted by severity, as the
    daemon ``checked`` them, or now without a daemon. ``journal`` has the number of original
    ``values``. Both are null if unknown. ``next`` are commands with their purposes. ``unset`` are
    the settings that udev's rules could not set as a disk appeared, and that the daemon has not set
    since. ``lost_rules`` describes other udev rules that did not take effect.
    ``rule_changes`` is the number of settings that the next apply changes because of new shipped
    rules, or null if unknown. ``drift`` describes the changes to make. ``verdicts`` are null if
    only root can read them.
    """

    schema: str = SCHEMA
    hostname: str
    time: float
    state: str
    headline: str
    profile: str | None
    kept: bool
    counts: dict[str, int]
    skipped: tuple[str, ...]
    drift: tuple[str, ...]
    findings: dict[str, int] | None
    checked: float | None
    adapters: tuple[ServingAdapter, ...]
    journal: dict[str, int] | None
    next: tuple[tuple[str, str], ...]
    running: bool
    well: bool
    daemon: DaemonState
    stalls: tuple[Stall, ...] = ()
    ages: Ages | None = None
    status: "Status | None"
    verdicts: "tuple[Record, ...] | None"
    unset: tuple[UnsetSetting, ...] = ()
    lost_rules: tuple[str, ...] = ()
    rule_changes: int | None = 0

    @property
    def exit_code(self) -> int:
        """The exit code of `status`, which differs for some states without a daemon."""
        with_daemon, without = load_texts("status.toml")[self.state]["exit"]
        return int(with_daemon if self.running else without)


def make_status_document(
    look: HostLook,
    status: "Status | None",
    health: DaemonHealth,
    unset: tuple[UnsetSetting, ...],
    rule_changes: int | None,
    *,
    kept: bool,
) -> StatusDocument:
    """Return the document of a host, with the headline of its state and the next commands."""
    host, state = os.uname().nodename, assess_host(look, health, status)
    last_profile = look.profile if status is None else status.profile or status.last_profile
    facts = {
        "host": host,
        "subject": f"{host} is tuned{' in part' if look.counts.get('unmatched') else ''}",
        "settings": _describe_settings(look),
        "profile": look.profile,
        "last_profile": last_profile,
        "mistake": look.mistake,
        "alerts": format_count(len(status.alerts) if status else 0, "alert"),
        "values": format_count(look.values or 0, "original value"),
    }
    commands = []
    for command, purpose in load_texts("status.toml")[state]["next"]:
        if last_profile is not None or "{last_profile}" not in command:
            commands.append((command.format(**facts), purpose))
    return StatusDocument(
        hostname=host,
        time=time.time(),
        state=state,
        headline=load_texts("status.toml")[state]["headline"].format(**facts),
        profile=look.profile,
        kept=kept,
        counts={name: look.counts.get(name, 0) for name in (*map(str, State), "unmatched")},
        skipped=look.skipped,
        drift=tuple(_describe_drift(look.drift)),
        findings=look.findings,
        checked=look.checked,
        adapters=look.adapters,
        journal=None if look.values is None else {"values": look.values},
        next=tuple(commands),
        running=status is not None,
        well=health.good,
        daemon=health.state,
        stalls=health.stalls,
        ages=health.ages,
        status=status,
        verdicts=read_latest_verdicts(),
        unset=unset,
        lost_rules=look.lost_rules,
        rule_changes=rule_changes,
    )


def _describe_settings(look: HostLook) -> str:
    """Return the profile and how many settings have its values."""
    counts = look.counts
    compared = sum(counts.get(state, 0) for state in (State.OK, State.DRIFT, State.UNREADABLE))
    settings = format_count(compared, "setting")
    text = f"profile {look.profile}, {counts.get(State.OK, 0)} of {settings} as wanted"
    if excluded := counts.get(State.EXCLUDED):
        text += f", {excluded} left alone"
    if unmatched := counts.get("unmatched"):
        text += f"; {format_count(unmatched, 'disk')} without a rule"
    return text


def _describe_drift(rows: Collection[Row]) -> Iterator[str]:
    """Yield the targets with the same change of a setting, and the change."""
    if rows:
        from hbatune.text.plan_tables import fold_rows, format_targets  # imports many modules

        for targets, row in fold_rows(rows, lambda row: (row.setting, row.current, row.value)):
            yield f"{format_targets(targets)}  {row.setting}  {row.current} → {row.value}"


def read_latest_verdicts() -> "tuple[Record, ...] | None":
    """Return the latest verdicts, or None if this user may not read them."""
    if is_missing(Paths.history):
        return ()
    from hbatune.probe import history  # 5 of 70 ms, and most hosts have no verdict

    try:
        records = history.load(Paths.history).records
    except UsageError:
        return None
    return tuple(record for record in records if record.proof is not None)[-_LATEST:]
