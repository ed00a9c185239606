"""`hbatune status`: is this host tuned?"""

import argparse
import os
import time
from typing import TYPE_CHECKING

from hbatune.act.paths import Paths
from hbatune.agent import host_state
from hbatune.cli.arguments import add_options
from hbatune.errors import UsageError
from hbatune.facts.udev import UnsetSetting, read_unset_settings
from hbatune.loader import is_missing
from hbatune.policy.config import load_configuration
from hbatune.policy.library import installed_library
from hbatune.processes import is_stopped, read_clock_id
from hbatune.shipped import fill_message
from hbatune.text import status_lines, terminal
from hbatune.text.leftovers import print_leftovers

if TYPE_CHECKING:
    from hbatune.agent.status import Status


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `status`."""
    add_options(parser, "--json", "--no-pager", "--short")


def run(args: argparse.Namespace) -> int:
    """Print the status, and return the exit code of its state (``templates/status.toml``)."""
    document = _read_document()
    if args.json:
        terminal.show_json(document)
    elif args.short:
        terminal.print_line(status_lines.format_short(document))
    else:
        status_lines.show_status(document)
    return document.exit_code


def _find_unset(status: "Status | None") -> tuple[UnsetSetting, ...]:
    """Return the settings that neither udev's rules nor, since then, the daemon could set."""
    if not Paths.udev_rules.exists() or (status is not None and not status.open):
        return ()  # udev's library is not loaded
    unset = read_unset_settings()
    if status is None:
        return unset
    keys = {(change.target, change.setting) for change in status.open}
    return tuple(entry for entry in unset if (entry.target, entry.setting) in keys)


def _read_document() -> status_lines.StatusDocument:
    status, health = None, host_state.DaemonHealth(host_state.DaemonState.NOT_RUNNING)
    if not is_missing(Paths.status):
        from hbatune.agent import status as daemon  # 4 of 70 ms

        status = daemon.load_status(Paths.status)
        if status is None and (previous := daemon.load_last_status(Paths.status)) is not None:
            _require_visible(previous)
    if status is not None:
        stopped = is_stopped(status.process.pid)
        clock, now = read_clock_id(), time.monotonic()
        health = host_state.assess_health(status, clock=clock, current_time=now, stopped=stopped)
        look = daemon.make_host_look(status, Paths())
    else:
        from hbatune.operations.snapshot import look_at_host

        look = look_at_host(print_leftovers)
    kept, changes = Paths.udev_rules.exists(), _count_rule_changes(look.profile)
    unset = _find_unset(status)
    return status_lines.make_status_document(look, status, health, unset, changes, kept=kept)


def _count_rule_changes(profile: str | None) -> int | None:
    """Return how many settings the next apply changes because of new rules (None: unknown)."""
    if profile is None or installed_library().is_last_applied():
        return 0
    from hbatune.operations.differences import find_rule_changes  # only after an upgrade

    try:
        return len(find_rule_changes(load_configuration()).plan.drift)
    except UsageError:
        return None


def _require_visible(status: "Status") -> None:
    """Raise UsageError if this process cannot tell whether the daemon of the status runs."""
    # Whether this user can see root's processes (proc(5): hidepid).
    if not os.access("/proc/1/stat", os.R_OK):
        raise UsageError(fill_message("daemon", "hidden"), hint="run it with sudo")
    # Processes of another time namespace have other start times (fs/proc/array.c: do_task_stat).
    if status.times is not None and status.of_this_boot and status.times.clock != read_clock_id():
        hint = "run `hbatune status` on the host, outside of the container"
        raise UsageError(fill_message("daemon", "namespace"), hint=hint)
