"""`hbatune watch`: show the current load and latency of storage. It changes no setting."""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from itertools import count

from msgspec.structs import replace

from hbatune.act.block_trace import LATENCY_EVENTS, BlockTrace
from hbatune.act.paths import Paths
from hbatune.act.tracefs import remove_leftovers
from hbatune.cli import arguments
from hbatune.cli.streams import flush_output
from hbatune.errors import ExitCode, HbatuneError
from hbatune.facts.machine import gather_machine
from hbatune.facts.model import Machine
from hbatune.facts.sampler import TRACEFS, Sampler, find_sampled_places
from hbatune.facts.targets import choose_targets
from hbatune.policy.config import load_configuration
from hbatune.policy.library import installed_library
from hbatune.policy.profile import ProbeSpec
from hbatune.policy.vendors import load_chosen_profile
from hbatune.probe import history
from hbatune.probe.guard import Clock
from hbatune.settings.table import SETTINGS
from hbatune.text.terminal import print_note
from hbatune.text.watch_view import Picture, make_json_printer, make_plain_printer, show_live
from hbatune.watch.latency import SAMPLE_S, LatencyReader
from hbatune.watch.readings import Subjects
from hbatune.watch.subjects import find_subjects
from hbatune.watch.watch import AlertEvent, Watcher, WatchState

DEFAULT_INTERVAL_S = 2.0
_INSTANCE = "hbatune-watch-"
MIN_INTERVAL_S = 0.1
SCREEN_COUNTERS_S = 10.0
"""The shortest time in seconds between two reads of depths, links and counters for a screen."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `watch`."""
    arguments.add_targets(parser, "what to watch")
    arguments.add_options(parser, "--profile", "--json")
    seconds, number = arguments.make_seconds_type(MIN_INTERVAL_S), arguments.make_number_type(1)
    parser.add_argument("--interval", metavar="S", type=seconds, default=DEFAULT_INTERVAL_S)
    parser.add_argument("--count", metavar="N", type=number)
    arguments.add_options(parser, "--plain")


def run(args: argparse.Namespace) -> int:
    """Show readings until their number is reached, with exit code 1 for alerts, or until Ctrl-C."""
    remove_leftovers(f"{_INSTANCE}*")
    trace = BlockTrace(f"{_INSTANCE}{os.getpid()}", LATENCY_EVENTS)
    with closing(LatencyReader(trace, Paths.latency)) as latencies, suppress(KeyboardInterrupt):
        return ExitCode.FOUND if _show_readings(args, Clock(), latencies) else ExitCode.DONE
    return ExitCode.DONE


def _show_readings(args: argparse.Namespace, clock: Clock, latencies: LatencyReader) -> bool:
    """Return whether an alert was active at the end of a given number of readings."""
    config = load_configuration()
    machine = gather_machine((SETTINGS["queue_depth"].path,), deadline=config.act.deadline_seconds)
    name = args.profile or config.profile
    profile = load_chosen_profile(args.profile, config) if name else None
    knees = _load_knees(machine, ProbeSpec() if profile is None else profile.probe)
    yardsticks = installed_library().yardsticks()
    subjects = find_subjects(machine, profile, knees=knees, yardsticks=yardsticks)
    chosen = _select_subjects(subjects, machine, args.targets)
    paced = replace(config.watch, interval_seconds=args.interval)
    is_terminal = (
        sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    )
    is_live = is_terminal and args.count is None and not (args.json or args.plain)
    # On the screen of a host with thousands of disks, files of single disks are read less often.
    every = max(args.interval, SCREEN_COUNTERS_S) if is_live else args.interval
    sampler = Sampler(find_sampled_places(machine), every=every)
    watch = Watcher(paced, chosen)

    def sample() -> tuple[WatchState, tuple[AlertEvent, ...]]:
        intervals = latencies.read(clock.now())
        return watch.tick(sampler.sample(clock.now(), time.time()), intervals)

    # The first sample is only the base of the counters: a rate needs two samples.
    sample()
    if is_live:
        endpoints = {endpoint.id: endpoint for endpoint in machine.endpoints}
        products = {server.target: server.product or server.family for server in machine.adapters}
        picture = Picture(machine.hostname, name, args.interval, endpoints, products)
        show_live(picture, lambda: (sample()[0], _describe_p99(latencies)), latencies.advance)
        return False
    is_short = args.count is not None and args.count * args.interval < SAMPLE_S
    if latencies.problem is not None or (is_short and not latencies.is_daemon):
        print_note(_describe_p99(latencies))
    watched = {disk.target for disk in chosen.disks}
    members = {endpoint.id for endpoint in machine.endpoints if endpoint.map in watched}
    show = make_json_printer(machine.hostname, members) if args.json else make_plain_printer()
    due = clock.now()
    for _ in count() if args.count is None else range(args.count):
        # Counted from the start, so the time of reading and printing does not add up.
        due += args.interval
        while (current_time := clock.now()) < due:
            latencies.advance(current_time)
            clock.sleep(max(0.0, min(due, latencies.due) - clock.now()))
        state, events = sample()
        show(state, events)
        if flush_output() is not None:  # the reader has exited, so the loop would never end
            break
    return args.count is not None and bool(state.alerts)


def _describe_p99(latencies: LatencyReader) -> str:
    """Return how the p99 is measured, or why it is not."""
    if latencies.is_daemon:
        return "p99 sampled by the daemon"
    if latencies.problem is None:
        return "p99 sampled" if latencies.intervals else f"no p99 yet: it takes {SAMPLE_S:g} s"
    if os.geteuid():
        return "no p99: only root can trace I/O; use sudo"
    if isinstance(latencies.problem, FileNotFoundError):
        return f"no p99: run `mount -t tracefs tracefs {TRACEFS}`, or use the host"
    reason = f"the kernel forbids traces ({latencies.problem.strerror})"
    return f"no p99: {reason}; leave the container, or boot without lockdown=confidentiality"


def _load_knees(machine: Machine, spec: ProbeSpec) -> dict[str, int]:
    """Return the measured knees, or an empty dict if this user may not read the history."""
    try:
        return history.find_latest_knees(history.load(Paths.history).records, machine, spec)
    except HbatuneError as error:
        print_note(f"{error.message}: the knees come from the documents")
        return {}


def _select_subjects(candidates: Subjects, machine: Machine, names: Sequence[str]) -> Subjects:
    chosen = choose_targets(machine, names)
    ids = {endpoint.id for endpoint in chosen.endpoints}
    adapters = {adapter.target for adapter in chosen.adapters}
    return Subjects(
        tuple(disk for disk in candidates.disks if disk.id in ids),
        tuple(server for server in candidates.servers if server.target in adapters),
    )
