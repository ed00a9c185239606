"""`hbatune watch`: show the current load and latency of storage. It changes nothing.

With --collect, which a service uses, it measures latencies for all other processes.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from msgspec.structs import replace

from hbatune.act import paths
from hbatune.cli.arguments import (
    add_json,
    add_profile,
    add_targets,
    number,
    require_root,
    seconds,
)
from hbatune.cli.streams import output_failure
from hbatune.errors import HbatuneError
from hbatune.facts.machine import gather
from hbatune.facts.model import Machine
from hbatune.facts.sampler import Sampler, sampled_places
from hbatune.facts.targets import choose
from hbatune.operations.situation import resolved
from hbatune.policy.chosen import chosen_profile, configuration
from hbatune.policy.config import Config
from hbatune.policy.library import load_yardsticks
from hbatune.policy.profile import ProbeSpec
from hbatune.probe import history
from hbatune.probe.guard import Clock
from hbatune.probe.history import latest_knees
from hbatune.settings.table import SETTINGS
from hbatune.shipped import shipped
from hbatune.text.terminal import note
from hbatune.text.watch_view import Show, json_lines, live, plain_lines
from hbatune.watch.latency import load
from hbatune.watch.readings import Subjects
from hbatune.watch.subjects import subjects
from hbatune.watch.watch import Watcher

INTERVAL = 2.0
LEAST = 0.1
"""The shortest --interval in seconds."""

SUMMARY = "what storage does now: latency, load, errors, alerts"
GROUP = "measure"
EXAMPLES = (
    ("hbatune watch", "until Ctrl-C"),
    ("hbatune watch --interval 5 --count 12 sda", "one disk, for a minute"),
    ("hbatune watch --json --count 1", "one reading, for a script"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `watch`."""
    add_targets(parser, "what to watch")
    add_profile(parser)
    add_json(parser)
    parser.add_argument(
        "--interval",
        metavar="S",
        type=seconds(LEAST),
        default=INTERVAL,
        help=f"seconds between two readings ({INTERVAL:g})",
    )
    parser.add_argument(
        "--count", metavar="N", type=number(1), help="end after so many readings, not at Ctrl-C"
    )
    parser.add_argument(
        "--collect",
        action="store_true",
        help="measure latencies with bpftrace, for `watch` and the daemon to read; prints nothing",
    )


def run(args: argparse.Namespace) -> int:
    """Show readings until their number is reached or Ctrl-C is pressed: both are success."""
    try:
        if args.collect:
            _collect_latencies()
        else:
            _show_readings(args, Clock())
    except KeyboardInterrupt:
        pass
    return 0


def _collect_latencies() -> None:
    from hbatune.watch.latency import collect  # here, as it imports the template engine

    require_root("watch --collect")
    collect(paths.LATENCY, configuration().watch)


def _show_readings(args: argparse.Namespace, clock: Clock) -> None:
    config = configuration()
    machine = gather((SETTINGS["queue_depth"].path,), deadline=config.act.deadline_seconds)
    chosen = _select_subjects(_make_subjects(machine, args.profile, config), machine, args.targets)
    paced = replace(config.watch, interval_seconds=args.interval)
    sampler, watch = Sampler(sampled_places(machine), every=args.interval), Watcher(paced, chosen)
    if not load(paths.LATENCY).intervals:
        note(_explain_no_p99())
    with _open_view(args, machine) as show:
        # The first sample is only the base of the counters: a rate needs two samples.
        watch.tick(sampler.sample(clock.now(), time.time()))
        due = clock.now()
        for _ in count() if args.count is None else range(args.count):
            # Counted from the start, so the time of reading and printing does not add up.
            due += args.interval
            clock.sleep(max(0.0, due - clock.now()))
            sample = sampler.sample(clock.now(), time.time())
            show(*watch.tick(sample, load(paths.LATENCY).intervals))
            if output_failure() is not None:  # the reader has exited, so the loop would never end
                break


def _make_subjects(machine: Machine, profile: str | None, config: Config) -> Subjects:
    name = profile or config.profile
    chosen = chosen_profile(name, config) if name else None
    return subjects(
        machine,
        chosen,
        knees=_load_knees(ProbeSpec() if chosen is None else chosen.probe),
        yardsticks=load_yardsticks(shipped("rules")),
    )


def _explain_no_p99() -> str:
    """Explain why latencies are only means."""
    try:
        paths.LATENCY.open("rb").close()
    except PermissionError:
        return f"no p99: {paths.LATENCY}, where it is measured, is root's to read; run it with sudo"
    except OSError:
        start = "start hbatune-latency.service or `watch --collect`"
        return f"no p99: nothing measures latency; {start}"
    return "no p99 yet: latencies have not been measured for long enough"


def _load_knees(spec: ProbeSpec) -> dict[str, int]:
    """Return the measured knees, or an empty dict if this user may not read the history."""
    try:
        return latest_knees(history.load(paths.HISTORY).records, spec)
    except HbatuneError as error:
        note(f"{error.message}: knees are those of the documents")
        return {}


def _select_subjects(candidates: Subjects, machine: Machine, names: Sequence[str]) -> Subjects:
    """Return the named subjects with their adapters, or all if no name is given."""
    if not names:
        return candidates
    chosen = choose(machine, map(resolved, names))
    ids = {endpoint.id for endpoint in chosen.endpoints}
    adapters = {adapter.target for adapter in chosen.adapters}
    return Subjects(
        tuple(disk for disk in candidates.disks if disk.id in ids),
        tuple(server for server in candidates.servers if server.target in adapters),
    )


@contextmanager
def _open_view(args: argparse.Namespace, machine: Machine) -> Iterator[Show]:
    if args.json:
        yield json_lines(machine.hostname)
    elif sys.stdout.isatty():
        with live() as show:
            yield show
    else:
        yield plain_lines()
