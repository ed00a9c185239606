"""`hbatune status`: how the daemon is doing."""

import argparse
import os
import time
from collections.abc import Sequence

from msgspec import Struct

from hbatune.act import paths
from hbatune.agent.orders import Handled, SettingChange
from hbatune.agent.status import SCHEMA, Status, last, load
from hbatune.cli.arguments import add_json
from hbatune.cli.exit_codes import ExitCode
from hbatune.cli.text.daemon import ramp_line, status_line
from hbatune.cli.text.output import note, say, show_json, show_table
from hbatune.cli.text.pager import add_pager
from hbatune.cli.text.rows import together
from hbatune.cli.text.table import Table, identity, reasons, value
from hbatune.cli.text.units import quantity
from hbatune.cli.text.verdicts import verdict_line
from hbatune.cli.text.watch import alert_line
from hbatune.errors import UsageError
from hbatune.facts.names import natural_key
from hbatune.probe import history
from hbatune.probe.history import Record

# LSB's code for this is 3, which means for all commands of hbatune that another one is at work.
NOT_RUNNING = ExitCode.NO_DAEMON
_LATEST = 5
"""Verdicts that are shown."""

_COLUMNS = (
    identity("TARGET"),
    identity("SETTING"),
    value("CURRENT"),
    value("WANTED"),
    reasons("WHY NOT"),
)

_WHY = {
    Handled.FAILED: "it could not be set",
    Handled.WAITING: "it could not be set",
    Handled.REPORTED: "reported only, as [daemon.drift_of] says",
    Handled.LEFT: "another program keeps setting it back",
    Handled.HELD: "a measurement is using it",
}


class StatusDocument(Struct, frozen=True, kw_only=True):
    """The JSON document of `status`; ``verdicts`` are the latest, the newest last."""

    schema: str = SCHEMA
    running: bool
    well: bool
    status: Status | None
    verdicts: tuple[Record, ...]


SUMMARY = "how the daemon is doing"
GROUP = "look"
EXAMPLES = (
    ("hbatune status", "for people"),
    ("hbatune status --json", "for a monitoring agent"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `status`."""
    add_json(parser)
    add_pager(parser)


def run(args: argparse.Namespace) -> int:
    """Print the status; exit 0 if all is well, 1 if not, 4 if no daemon runs."""
    found = load(paths.STATUS)
    if found is None and last(paths.STATUS) is not None and not _sees_processes():
        raise UsageError(
            "this user may not see the processes of others (hidepid of /proc), and so not whether "
            "the daemon runs",
            hint="run it with sudo",
        )
    verdicts = _verdicts()
    if args.json:
        show_json(
            StatusDocument(
                running=found is not None,
                well=found is not None and found.well,
                status=found,
                verdicts=verdicts,
            )
        )
    elif found is None:
        say("The daemon is not running: `systemctl start hbatune` starts it.")
    else:
        _show(found, verdicts)
    if found is None:
        return NOT_RUNNING
    return 0 if found.well else 1


def _verdicts() -> tuple[Record, ...]:
    """Return the latest verdicts, none and a note where this user may not read them."""
    try:
        records = history.load(paths.HISTORY).records
    except UsageError as error:
        note(f"{error.message}: verdicts are not shown")
        return ()
    return tuple(each for each in records if each.proof is not None)[-_LATEST:]


def _sees_processes() -> bool:
    """Whether this user sees root's processes (proc(5): hidepid)."""
    return os.access("/proc/1/stat", os.R_OK)


def _show(found: Status, verdicts: tuple[Record, ...]) -> None:
    line = status_line(found)
    say(f"{line[0].upper()}{line[1:]}.")
    passes, written = quantity(found.passes, "pass", "passes"), quantity(found.written, "value")
    say(f"Running since {_when(found.since)}, {passes}, {written} set.")
    if found.last is not None:
        say(f"Last pass {_when(found.last.time)} ({found.last.reason}).")
    if found.mistake is not None:
        say(f"The configuration has a mistake; the last good one stays in force: {found.mistake}")
    if found.open:
        table = Table(_COLUMNS)
        for each in together(_by_name(found.open), _why_not):
            values = [str(each.before), str(each.value), _why_not(each)]
            table.rows.append([each.target, each.setting, *values])
        show_table(table)
    for alert in found.alerts:
        say(f"Alert since {_when(alert.raised)}: {alert_line(alert)}.")
    for record in verdicts:
        assert record.proof is not None
        settings = " ".join(record.proof.settings)
        verdict = verdict_line(record.proof.verdict)
        say(f"{_when(record.time)} {record.target}: {settings}: {verdict}.")


def _by_name(changes: Sequence[SettingChange]) -> list[SettingChange]:
    return sorted(changes, key=lambda each: natural_key(each.target))


def _why_not(change: SettingChange) -> str:
    """Return why a setting is not as the profile wants it."""
    if change.handled is Handled.RAMPING:
        return ramp_line(change)
    if change.retry is None:
        return _WHY[change.handled]
    since, next = _when(change.retry.since), _when(change.retry.next)
    tries = "once" if change.retry.tries == 1 else quantity(change.retry.tries, "time")
    return f"{_WHY[change.handled]}: tried {tries} since {since}, next at {next}"


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
