"""`hbatune status`: show the status of the daemon."""

import os
import sys
import time

from hbatune import TYPE_CHECKING
from hbatune.act import paths
from hbatune.errors import ExitCode, UsageError
from hbatune.text import basic_output

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from hbatune.agent.status import DaemonHealth, Status
    from hbatune.facts.udev import UnsetSetting
    from hbatune.probe.history import Record

# LSB's code for this is 3, which every hbatune command uses if another one is running.
NOT_RUNNING = ExitCode.NO_DAEMON

_NOT_RUNNING_TEXT = "The daemon is not running: `systemctl start hbatune` starts it."


NO_ARGUMENTS: dict[str, object] = {"json": False, "pager": True}
"""The parsed form of a command line without arguments (``cli.command``)."""


def add_arguments(parser: "argparse.ArgumentParser") -> None:
    """Add the arguments of `status`."""
    from hbatune.cli.arguments import add_shared

    add_shared(parser, "--json", "--no-pager")


def run(args: "argparse.Namespace") -> int:
    """Print the status; exit 0 if the daemon is healthy, 1 if not, 4 if no daemon runs."""
    if not args.json and _is_absent(paths.STATUS):
        # A monitoring agent runs this often, and on many hosts no daemon has run since boot.
        _say_not_running()
        return NOT_RUNNING
    if not args.json and not sys.stdout.isatty() and _is_absent(paths.HISTORY):
        from hbatune.agent.brief import read_brief

        if (summary := read_brief(paths.STATUS)) is not None:
            # The same form as that of ``status_lines``.
            tuned = basic_output.describe_tuned(summary.profile, summary.endpoints)
            print(basic_output.format_sentence(tuned))
            print(basic_output.describe_running(summary.since, summary.passes, summary.written))
            if summary.last is not None:
                print(basic_output.describe_last_pass(*summary.last))
            return 0
    return _print_status(as_json=args.json)


def _say_not_running() -> None:
    _say(_NOT_RUNNING_TEXT)
    if unset := _find_unset(None):
        _say(basic_output.describe_unset([(entry.target, entry.setting) for entry in unset]))


def _say(line: str) -> None:
    if not sys.stdout.isatty():
        print(line)  # no wrapping, which would import many modules
        return
    from hbatune.text.terminal import print_line

    print_line(line)


def _find_unset(status: "Status | None") -> "tuple[UnsetSetting, ...]":
    """Return the settings that udev's rules could not set, and that the daemon has not set since.

    Without hbatune's rules, udev's library is not loaded.
    """
    if _is_absent(paths.UDEV_RULES) or (status is not None and not status.open):
        return ()
    from hbatune.facts.udev import read_unset_settings

    unset = read_unset_settings()
    if status is None:
        return unset
    keys = {(change.target, change.setting) for change in status.open}
    return tuple(entry for entry in unset if (entry.target, entry.setting) in keys)


def _is_absent(path: "Path") -> bool:
    """Return whether the file is missing; False if this user may not check it."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _print_status(*, as_json: bool) -> int:
    from hbatune.agent import status as daemon
    from hbatune.processes import is_stopped, read_clock_id

    status = daemon.load_status(paths.STATUS)
    health = daemon.DaemonHealth(daemon.DaemonState.NOT_RUNNING)
    if status is not None:
        stopped = is_stopped(status.process.pid)
        clock, time_now = read_clock_id(), time.monotonic()
        health = daemon.assess_health(status, clock=clock, current_time=time_now, stopped=stopped)
    elif (previous := daemon.load_last_status(paths.STATUS)) is not None:
        _require_visible(previous)
    if as_json:
        from msgspec.structs import asdict

        from hbatune.text.status_document import StatusDocument, read_latest_verdicts
        from hbatune.text.terminal import show_json

        document = StatusDocument(
            running=status is not None,
            well=health.good,
            **asdict(health),
            status=status,
            verdicts=read_latest_verdicts(),
            unset=_find_unset(status),
        )
        show_json(document)
    elif status is None:
        _say_not_running()
    else:
        _show_details(status, health)
    if status is None:
        return NOT_RUNNING
    return 0 if health.good else 1


def _require_visible(status: "Status") -> None:
    """Raise UsageError if this process cannot tell whether the daemon of the status runs."""
    # Whether this user can see root's processes (proc(5): hidepid).
    if not os.access("/proc/1/stat", os.R_OK):
        raise UsageError(
            "this user may not see the processes of others (hidepid of /proc), and so not whether "
            "the daemon runs",
            hint="run it with sudo",
        )
    from hbatune.processes import read_clock_id

    # Processes of another time namespace have other start times (fs/proc/array.c: do_task_stat).
    if status.times is not None and status.of_this_boot and status.times.clock != read_clock_id():
        raise UsageError(
            "cannot tell whether the daemon is running: it has another time namespace",
            hint="run `hbatune status` on the host, outside of the container",
        )


def _show_details(status: "Status", health: "DaemonHealth") -> None:
    from hbatune.text.status_lines import show_status

    verdicts: Sequence[Record] = ()
    if not _is_absent(paths.HISTORY):
        from hbatune.text.status_document import read_latest_verdicts  # slow, like the history

        verdicts = read_latest_verdicts()
    show_status(status, health, verdicts)
    if unset := _find_unset(status):
        _say(basic_output.describe_unset([(entry.target, entry.setting) for entry in unset]))
