"""`hbatune why`: show the setting, if any, that makes a disk's requests wait."""

import argparse
from collections.abc import Iterator

from msgspec.structs import asdict

from hbatune.act.lock import Lock
from hbatune.act.paths import Paths
from hbatune.cli import arguments
from hbatune.cli.command_context import make_context
from hbatune.errors import ExitCode, LockRole
from hbatune.operations.why import TracedLatency, explain_latency
from hbatune.shipped import fill_message, find_message
from hbatune.text.tables import Table, load_columns
from hbatune.text.terminal import print_heading, print_line, show_json, show_progress, show_table
from hbatune.text.units import format_latency, format_percent
from hbatune.watch.causes import MIN_REQUESTS, LatencyCause

DEFAULT_SECONDS, MAX_SECONDS = 10, 60


class WhyDocument(TracedLatency, frozen=True, kw_only=True):
    """The JSON document of `why`."""

    schema: str = "hbatune.why/1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `why`."""
    parser.add_argument("targets", metavar="DISK", nargs=1)
    seconds = arguments.make_number_type(1, MAX_SECONDS)
    parser.add_argument("--seconds", metavar="S", type=seconds, default=DEFAULT_SECONDS)
    arguments.add_options(parser, "--json")


def run(args: argparse.Namespace) -> int:
    """Trace the disk and print the cause; exit 1 if there is no answer."""
    arguments.require_root("why", "reads the kernel's trace")
    with Lock(Paths.trace_lock, LockRole.TRACE) as lock:
        try:
            with show_progress("Tracing", args.seconds) as advance:
                traced = explain_latency(make_context(), args.targets, args.seconds, advance)
        finally:
            lock.remove()
    if args.json:
        show_json(WhyDocument(**asdict(traced)))
    else:
        _show_answer(traced)
    return ExitCode.FOUND if traced.cause in (None, LatencyCause.UNKNOWN) else ExitCode.DONE


def _show_answer(traced: TracedLatency) -> None:
    if traced.cause is None:
        print_heading(fill_message("why", "too-little", number=traced.requests, least=MIN_REQUESTS))
    else:
        drive = traced.stages[-1].p99_share if traced.stages else 0.0
        gain, drive_share, waits = map(format_percent, (traced.gain, drive, 1 - drive))
        facts = {"gain": gain, "drive": drive_share, "waits": waits, "culprit": traced.culprit}
        print_heading(find_message(traced.cause).format(**facts))
    table = Table(load_columns("why"))
    for time in traced.stages:
        shares = map(format_percent, (time.mean_share, time.p99_share))
        table.rows.append([find_message(time.stage), format_latency(time.mean_us), *shares])
    if table.rows:
        print_line()
        show_table(table)
        print_line()
    for note in _list_notes(traced):
        print_line(note, hang=2)


def _list_notes(traced: TracedLatency) -> Iterator[str]:
    if traced.wanted is not None:
        facts = {"setting": traced.lever, "current": traced.current, "wanted": traced.wanted}
        yield fill_message("why", "wanted", **facts)
    elif traced.current is not None:
        yield f"{traced.lever} is {traced.current} now."
    if traced.limited is not None and traced.cause is not LatencyCause.IO_MAX:
        yield fill_message("why", "limited", cgroup=traced.limited)
    p99 = "" if traced.p99_us is None else f", p99 {format_latency(traced.p99_us)}"
    yield (
        f"{traced.target}: {traced.requests:,} requests in {traced.seconds:.0f} s{p99}; "
        f"{format_percent(traced.traced)} of the time was traced."
    )
    if traced.lost:
        yield fill_message("why", "lost", lost=traced.lost)
