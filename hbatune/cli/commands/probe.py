"""`hbatune probe`: run a workload on endpoints, one run at a time.

It only reads. Workloads that write require --destructive and the name of an empty disk.
"""

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from hbatune.cli.arguments import (
    add_json,
    add_profile,
    make_number_type,
    make_seconds_type,
    make_size_type,
    require_root,
)
from hbatune.cli.command_context import make_context
from hbatune.errors import UsageError
from hbatune.facts.model import Machine
from hbatune.operations.probe import (
    Measured,
    SweepKnee,
    Together,
    keep_probed,
    list_results,
    probe_disks,
    probe_file,
    probe_together,
)
from hbatune.policy.library import installed_library
from hbatune.policy.profile import Profile
from hbatune.probe.comparison import Standing
from hbatune.probe.knee import Knee
from hbatune.probe.result import Figures, Pattern, ProbeResult, Skipped, Workload
from hbatune.probe.sweeps import DepthSweep, list_depth_sweeps
from hbatune.probe.together import TogetherResult
from hbatune.probe.workloads import (
    DEFAULT_MAX_WAITING,
    MAX_BLOCK_SIZE,
    NamedWorkload,
    find_workload,
    load_workloads,
)
from hbatune.text.probe_tables import (
    BLANK_NOTE,
    describe_doubt,
    describe_mixes,
    describe_standing,
    describe_together,
    explain_missing_result,
    find_standing,
    format_load,
    show_curves,
)
from hbatune.text.tables import EMPTY_CELL, Table, make_columns
from hbatune.text.terminal import print_line, show_json, show_table
from hbatune.text.units import format_digits

SCHEMA = "hbatune.probe/1"

CUSTOM_WORKLOAD = "custom"
"""The name of a workload from the options, in the history and in JSON."""
MAX_RUNTIME_S = 600.0
"""The longest --runtime in seconds, the same as in the files of workloads."""

_COLUMNS = make_columns(
    "id TARGET | value PATTERN | number BLOCK | number DEPTH | number IOPS | "
    "number GB/s | number MEAN µs | number P99 µs | number IOPS/CPU % | text NOTE"
)


class Bend(Struct, frozen=True):
    """The knee of a depth sweep on a target, or None if its curve has no knee."""

    target: str
    queue_depth: int | None
    knee: Knee | None


class ProbeDocument(Struct, frozen=True):
    """The JSON document of ``probe``; ``standings`` are by target.

    ``together`` are the concurrent runs on all disks of an adapter, null if not requested.
    """

    workload: str
    sources: tuple[str, ...]
    hostname: str
    kernel: str
    runs: tuple[Measured, ...]
    knees: tuple[Bend, ...]
    standings: dict[str, Standing]
    together: tuple[TogetherResult, ...] | None = None
    schema: Literal["hbatune.probe/1"] = field(default="hbatune.probe/1")


class WorkloadsDocument(Struct, frozen=True):
    """The JSON document of ``probe`` without a workload."""

    workloads: tuple[NamedWorkload, ...]
    schema: Literal["hbatune.workloads/1"] = field(default="hbatune.workloads/1")


SUMMARY = "measure disks by a workload: reads, and writes only where asked to"
GROUP = "measure"
EXAMPLES = (
    ("hbatune probe", "list the workloads"),
    ("sudo hbatune probe depth-sweep sda", "find the knee of a disk"),
    ("hbatune probe oltp1 --file /srv", "one that writes, to its own file"),
    ("sudo hbatune probe --block 8k --rate 2000 sda", "how long a given rate waits"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `probe`."""
    parser.add_argument("workload", metavar="WORKLOAD", nargs="?", help="without any: list them")
    parser.add_argument("targets", metavar="TARGET", nargs="*", help="a disk, adapter or stable id")
    parser.add_argument(
        "--destructive",
        action="store_true",
        help="let a workload write to the disks that are named, which have to be empty",
    )
    parser.add_argument(
        "--file",
        metavar="DIR",
        type=Path,
        help="probe a file made in this folder, and not a disk: the filesystem is measured, too",
    )
    own_group = parser.add_argument_group("a workload of your own, in place of WORKLOAD")
    own_group.add_argument(
        "--depth", metavar="N", type=make_number_type(1, 4096), help="I/Os in flight of each job"
    )
    own_group.add_argument(
        "--block",
        metavar="SIZE",
        type=make_size_type(MAX_BLOCK_SIZE),
        help="bytes of an I/O, as 8k or 1m",
    )
    own_group.add_argument(
        "--mix",
        metavar="PERCENT",
        type=make_number_type(0, 100),
        help="the share of reads: 100, or fewer and writes",
    )
    own_group.add_argument(
        "--jobs", metavar="N", type=make_number_type(1, 256), help="how many do so at once"
    )
    own_group.add_argument(
        "--rate",
        metavar="IOPS",
        type=make_number_type(1, 100_000_000),
        help="begin so many I/Os each second, whether earlier ones have ended or not",
    )
    parser.add_argument(
        "--runtime", metavar="SECONDS", type=make_seconds_type(), help="measured time of a run"
    )
    parser.add_argument(
        "--together",
        action="store_true",
        help="then all disks of an adapter at once, and what holds them back: disks, link, CPU, "
        "or the adapter itself",
    )
    add_profile(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """List the workloads, or run one; exit 1 if a run gave no results."""
    own_workload = _make_own_workload(args)
    if own_workload is None and args.workload is None:
        _list_workloads(load_workloads(installed_library()), as_json=args.json)
        return 0
    if own_workload is not None:
        # There is no workload's name, so every argument is a target.
        args.targets = [*([] if args.workload is None else [args.workload]), *args.targets]
    chosen = own_workload or find_workload(args.workload, installed_library())
    if args.runtime is not None and not 0 < args.runtime <= MAX_RUNTIME_S:
        raise UsageError(f"--runtime must be above 0 and at most {MAX_RUNTIME_S:.0f} seconds")
    workloads = [_set_runtime(workload, args.runtime) for workload in chosen.runs]
    if args.file is not None:
        _check_file_request(args, chosen)
        context, together = make_context(), None
        done = probe_file(context, args.file, workloads)
    else:
        _check_request(args, chosen)
        context = make_context()
        done = probe_disks(context, workloads, args.targets, args.profile)
        together = probe_together(context, done, args.targets) if args.together else None
    standings = _compare_results(list_results(done.runs), done.machine, done.profile)
    sweeps = list_depth_sweeps(list_results(done.runs))
    # Knees are stored with the results, because the windows they are computed from are not.
    knees = [SweepKnee(sweep.results[-1], sweep.queue_depth, sweep.knee) for sweep in sweeps]
    together_results = () if together is None else together.results
    keep_probed(context, chosen.name, done, knees, together_results)
    return _print_report(
        chosen, done.runs, sweeps, standings, done.profile, as_json=args.json, together=together
    )


def _make_own_workload(args: argparse.Namespace) -> NamedWorkload | None:
    """Return the workload that the options describe, or None without such options."""
    options = (args.depth, args.block, args.mix, args.jobs, args.rate)
    if all(option is None for option in options):
        return None
    names = {workload.name for workload in load_workloads(installed_library())}
    if args.workload in names:
        raise UsageError(
            f"--depth, --block, --mix, --jobs and --rate are a workload of your own, beside "
            f"{args.workload}",
            hint="leave its name out, or write a file: docs/probing.md",
        )
    usual = Workload()
    reads = 100 if args.mix is None else args.mix
    workload = Workload(
        pattern=_choose_pattern(reads),
        block_size=args.block or usual.block_size,
        depth=args.depth or (DEFAULT_MAX_WAITING if args.rate else usual.depth),
        jobs=args.jobs or usual.jobs,
        reads=reads,
        rate=args.rate,
    )
    return NamedWorkload(CUSTOM_WORKLOAD, format_load(workload), (), (workload,))


def _choose_pattern(reads: int) -> Pattern:
    if reads in (0, 100):
        return Pattern.RANDOM_READ if reads else Pattern.RANDOM_WRITE
    return Pattern.RANDOM_MIX


def _check_request(args: argparse.Namespace, chosen: NamedWorkload) -> None:
    """Raise UsageError for a request that is invalid for every disk."""
    if not args.targets:
        raise UsageError("nothing to probe", hint="name a disk: `hbatune list` shows them")
    if chosen.writes and not args.destructive:
        raise UsageError(
            f"{chosen.name} writes, and destroys what is on a disk",
            hint="name an empty disk and --destructive, or a workload that only reads",
        )
    if args.together and any(workload.queue_depth for workload in chosen.runs):
        raise UsageError(
            f"--together takes a workload that sets nothing, and {chosen.name} sets the depth of a "
            "disk"
        )
    if args.together and any(workload.writer for workload in chosen.runs):
        raise UsageError(
            f"--together takes a workload that is the same on each disk, and {chosen.name} has a "
            "bulk writer beside it"
        )
    # Such a run sets the queue depth of the LUN, which is a write to sysfs.
    if any(workload.queue_depth for workload in chosen.runs):
        require_root(f"probe {chosen.name}")


def _check_file_request(args: argparse.Namespace, chosen: NamedWorkload) -> None:
    """Raise UsageError for a request that is invalid for a file."""
    if args.together:
        raise UsageError("--together is for the disks of an adapter, and --file is one file")
    if args.targets:
        raise UsageError("--file takes the place of targets", hint="name one or the other")
    if any(workload.queue_depth for workload in chosen.runs):
        raise UsageError(f"{chosen.name} sets the depth of a disk, and a file has none")


def _print_report(
    chosen: NamedWorkload,
    runs: Sequence[Measured],
    sweeps: Sequence[DepthSweep],
    standings: Mapping[str, tuple[ProbeResult, Standing]],
    profile: Profile | None,
    *,
    as_json: bool,
    together: Together | None = None,
) -> int:
    if as_json:
        host = os.uname()
        bends = tuple(Bend(sweep.target, sweep.queue_depth, sweep.knee) for sweep in sweeps)
        by_target = {target: standing for target, (_, standing) in standings.items()}
        show_json(
            ProbeDocument(
                *(chosen.name, chosen.sources, host.nodename, host.release, tuple(runs), bends),
                standings=by_target,
                together=None if together is None else together.results,
            )
        )
    else:
        _show_runs(runs)
        show_curves(sweeps)
        for result, standing in standings.values():
            for line in describe_standing(result, standing, profile.name if profile else ""):
                print_line(line)
        for line in describe_mixes(list_results(runs)):
            print_line(line)
        for line in () if together is None else describe_together(together):
            print_line(line)
        for line in _yield_caveats(runs):
            print_line(line)
    is_complete = together is None or bool(together.results and not together.failed)
    measured = runs and all(isinstance(run.outcome, ProbeResult) for run in runs)
    return 0 if measured and is_complete else 1


def _set_runtime(workload: Workload, runtime: float | None) -> Workload:
    return workload if runtime is None else replace(workload, runtime=runtime)


def _compare_results(
    results: Sequence[ProbeResult], machine: Machine, profile: Profile | None
) -> dict[str, tuple[ProbeResult, Standing]]:
    """Return each target's result closest to the documents' workload, and its comparison."""
    best: dict[str, ProbeResult] = {}
    for result in results:
        current = best.get(result.target)
        if current is None or _measure_distance(result) < _measure_distance(current):
            best[result.target] = result
    compared = {
        target: (result, find_standing(result, machine, profile)) for target, result in best.items()
    }
    return {
        target: (result, stood) for target, (result, stood) in compared.items() if stood is not None
    }


def _measure_distance(result: ProbeResult) -> tuple[bool, int]:
    """Return the distance of a result from the documents' workload: random reads, 32 deep."""
    return result.workload.pattern is not Pattern.RANDOM_READ, abs(result.workload.issued - 32)


def _list_workloads(workloads: Sequence[NamedWorkload], *, as_json: bool) -> None:
    if as_json:
        show_json(WorkloadsDocument(tuple(workloads)))
        return
    columns = make_columns("id WORKLOAD | number RUNS | text WHAT | value SOURCES")
    table = Table(columns)
    for workload in workloads:
        table.rows.append(
            [workload.name, str(len(workload.runs)), workload.title, ", ".join(workload.sources)]
        )
    show_table(table)


def _show_runs(runs: Sequence[Measured]) -> None:
    table = Table(_COLUMNS)
    for run in runs:
        workload, outcome = run.workload, run.outcome
        if not isinstance(outcome, ProbeResult):
            outcome_text = "not probed" if isinstance(outcome, Skipped) else "failed"
            table.rows.append(
                [
                    outcome.target,
                    *[EMPTY_CELL] * 8,
                    f"{outcome_text}: {explain_missing_result(outcome)}",
                ]
            )
            continue
        figures = outcome.figures
        rates = (figures.iops, figures.bandwidth / 1e9)
        measured = (*rates, figures.mean_us, figures.p99_us, figures.iops_per_cpu_percent)
        words = describe_doubt(outcome) or _describe_writer(figures)
        mixed = (
            f" {workload.reads}/{100 - workload.reads}"
            if workload.pattern is Pattern.RANDOM_MIX
            else ""
        )
        depth_text = f" of {workload.queue_depth}" if workload.queue_depth else ""
        rate = f" at {workload.rate}/s" if workload.rate else ""
        shape = [
            f"{workload.pattern}{mixed}{rate}",
            str(workload.block_size),
            f"{workload.issued}{depth_text}",
        ]
        cells = [
            format_digits(measurement) if measurement else EMPTY_CELL for measurement in measured
        ]
        table.rows.append([outcome.target, *shape, *cells, words])
    show_table(table)


def _describe_writer(figures: Figures) -> str:
    """Return the rate of a run's background writer as text, or an empty string."""
    if figures.written_beside is None:
        return ""
    return f"beside a bulk writer of {format_digits(figures.written_beside / 1e6)} MB/s"


def _yield_caveats(runs: Sequence[Measured]) -> Iterator[str]:
    """Yield the reservations about the results."""
    probe_results = list_results(runs)
    for target in dict.fromkeys(result.target for result in probe_results if result.blank):
        yield f"{target}: {BLANK_NOTE}."
    if any(result.served and result.cpus is None for result in probe_results):
        yield "fio shared the CPUs that serve the adapter's interrupts: too few others are there."
    if not any(run.workload.writes for run in runs):
        yield "Only reads were measured."
