"""`hbatune capture`: record the I/Os of a disk, to replay them as a probe."""

import argparse
from pathlib import Path
from random import SystemRandom

from hbatune.act.lock import Lock
from hbatune.act.paths import Paths
from hbatune.cli import arguments
from hbatune.errors import ExitCode, LockRole, UsageError
from hbatune.operations.capture import capture_ios
from hbatune.probe.trace_file import MAX_LOST_FRACTION, anonymise_trace, encode_trace
from hbatune.shipped import fill_message
from hbatune.text.basic_output import format_count
from hbatune.text.terminal import print_line, show_progress
from hbatune.text.units import format_percent

DEFAULT_SECONDS, MAX_SECONDS = 60, 3600


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `capture`."""
    parser.add_argument("targets", metavar="DISK", nargs=1)
    parser.add_argument("file", metavar="FILE", type=Path)
    seconds = arguments.make_number_type(1, MAX_SECONDS)
    parser.add_argument("--seconds", metavar="S", type=seconds, default=DEFAULT_SECONDS)
    arguments.add_options(parser, "--anonymous", "--force")


def run(args: argparse.Namespace) -> int:
    """Record the I/Os and write the file; exit 1 if it is incomplete."""
    arguments.require_root("capture", "reads the kernel's trace")
    if args.file.exists() and not args.force:  # before the minute, not after it
        raise UsageError(f"{str(args.file)!r} exists already", hint="name another file, or --force")
    with Lock(Paths.trace_lock, LockRole.TRACE) as lock:
        try:
            with show_progress("Capturing", args.seconds) as advance:
                trace = capture_ios(args.targets, args.seconds, advance)
        finally:
            lock.remove()
    if args.anonymous:
        trace = anonymise_trace(trace, SystemRandom())
    header, data = trace.header, encode_trace(trace)
    arguments.save_named(args.file, data, over=args.force)
    facts = {
        "file": args.file,
        "ios": format_count(header.ios, "I/O"),
        "writes": format_percent(trace.write_fraction),
        "seconds": round(header.seconds),
        "size": format_count(len(data), "byte"),
        "lost": format_percent(header.lost_fraction),
    }
    print_line(fill_message("capture", "done", **facts))
    is_early = header.seconds < args.seconds
    is_lossy = header.lost_fraction > MAX_LOST_FRACTION
    if is_early:
        print_line(fill_message("capture", "full", **facts))
    if header.lost:
        print_line(fill_message("capture", "refused" if is_lossy else "lost", **facts))
    return ExitCode.FOUND if is_early or is_lossy else ExitCode.DONE
