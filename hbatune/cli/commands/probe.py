"""`hbatune probe`: runs a workload on endpoints, one run at a time.

It only reads, except in workloads that write: those need --destructive and an empty disk by name.
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
    io_size,
    number,
    require_root,
    seconds,
)
from hbatune.cli.command_context import command_context
from hbatune.errors import UsageError
from hbatune.facts.model import Machine
from hbatune.operations.probe import (
    Measured,
    SweepKnee,
    Together,
    keep_probed,
    probe_disks,
    probe_file,
    probe_together,
    results,
)
from hbatune.policy.library import installed_library
from hbatune.policy.profile import Profile
from hbatune.probe.comparison import Standing
from hbatune.probe.knee import Knee
from hbatune.probe.result import Figures, Pattern, ProbeResult, Skipped, Workload
from hbatune.probe.sweeps import DepthSweep, depth_sweeps
from hbatune.probe.together import TogetherResult
from hbatune.probe.workloads import (
    LARGEST_BLOCK,
    WAITING,
    NamedWorkload,
    find_workload,
    load_workloads,
)
from hbatune.text.probe_tables import (
    BLANK,
    doubt_text,
    load_text,
    mix_lines,
    show_curves,
    standing_lines,
    stands,
    together_lines,
    why_not,
)
from hbatune.text.tables import NOTHING, Table, figure, identity, prose, value
from hbatune.text.terminal import say, show_json, show_table
from hbatune.text.units import digits

SCHEMA = "hbatune.probe/1"

OWN = "custom"
"""The name under which a workload of the options is kept and shown in JSON."""
LONGEST = 600.0
"""The longest --runtime in seconds, the same as in the files of workloads."""

_COLUMNS = (
    identity("TARGET"),
    value("PATTERN"),
    figure("BLOCK"),
    figure("DEPTH"),
    figure("IOPS"),
    figure("GB/s"),
    figure("MEAN µs"),
    figure("P99 µs"),
    figure("IOPS/CPU %"),
    prose("NOTE"),
)


class Bend(Struct, frozen=True):
    """The knee of a depth sweep on a target, None where its curve has no knee."""

    target: str
    queue_depth: int | None
    knee: Knee | None


class ProbeDocument(Struct, frozen=True):
    """The JSON document of ``probe``; ``standings`` are by target.

    ``together`` are the runs on all disks of an adapter at once, null where none was asked for.
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
    own = parser.add_argument_group("a workload of your own, in place of WORKLOAD")
    own.add_argument(
        "--depth", metavar="N", type=number(1, 4096), help="I/Os in flight of each job"
    )
    own.add_argument(
        "--block", metavar="SIZE", type=io_size(LARGEST_BLOCK), help="bytes of an I/O, as 8k or 1m"
    )
    own.add_argument(
        "--mix",
        metavar="PERCENT",
        type=number(0, 100),
        help="the share of reads: 100, or fewer and writes",
    )
    own.add_argument("--jobs", metavar="N", type=number(1, 256), help="how many do so at once")
    own.add_argument(
        "--rate",
        metavar="IOPS",
        type=number(1, 100_000_000),
        help="begin so many I/Os each second, whether earlier ones have ended or not",
    )
    parser.add_argument(
        "--runtime", metavar="SECONDS", type=seconds(), help="measured time of a run"
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
    """List the workloads, or run one; exit 1 where a run gave no figures."""
    own = _own_workload(args)
    if own is None and args.workload is None:
        _list(load_workloads(installed_library()), as_json=args.json)
        return 0
    if own is not None:
        # There is no name to give: every word is a target.
        args.targets = [*([] if args.workload is None else [args.workload]), *args.targets]
    chosen = own or find_workload(args.workload, installed_library())
    if args.runtime is not None and not 0 < args.runtime <= LONGEST:
        raise UsageError(f"--runtime must be above 0 and at most {LONGEST:.0f} seconds")
    asked = [_timed(each, args.runtime) for each in chosen.runs]
    if args.file is not None:
        _require_sense_on_file(args, chosen)
        context, together = command_context(), None
        done = probe_file(context, args.file, asked)
    else:
        _require_sense(args, chosen)
        context = command_context()
        done = probe_disks(context, asked, args.targets, args.profile)
        together = probe_together(context, done, args.targets) if args.together else None
    standings = _standings(results(done.runs), done.machine, done.profile)
    found = depth_sweeps(results(done.runs))
    # Knees are kept with the results: the windows that they are computed from are not stored.
    sweeps = [SweepKnee(each.results[-1], each.queue_depth, each.knee) for each in found]
    kept = () if together is None else together.results
    keep_probed(context, chosen.name, done, sweeps, kept)
    return _report(
        chosen, done.runs, found, standings, done.profile, as_json=args.json, together=together
    )


def _own_workload(args: argparse.Namespace) -> NamedWorkload | None:
    """Return the workload that the options describe, None where a named one is asked for."""
    given = (args.depth, args.block, args.mix, args.jobs, args.rate)
    if all(each is None for each in given):
        return None
    known = {workload.name for workload in load_workloads(installed_library())}
    if args.workload in known:
        raise UsageError(
            f"--depth, --block, --mix, --jobs and --rate are a workload of your own, beside "
            f"{args.workload}",
            hint="leave its name out, or write a file: docs/probing.md",
        )
    usual = Workload()
    reads = 100 if args.mix is None else args.mix
    asked = Workload(
        pattern=_pattern(reads),
        block_size=args.block or usual.block_size,
        depth=args.depth or (WAITING if args.rate else usual.depth),
        jobs=args.jobs or usual.jobs,
        reads=reads,
        rate=args.rate,
    )
    return NamedWorkload(OWN, load_text(asked), (), (asked,))


def _pattern(reads: int) -> Pattern:
    if reads in (0, 100):
        return Pattern.RANDOM_READ if reads else Pattern.RANDOM_WRITE
    return Pattern.RANDOM_MIX


def _require_sense(args: argparse.Namespace, chosen: NamedWorkload) -> None:
    """Raise UsageError for a request that makes no sense on any disk."""
    if not args.targets:
        raise UsageError("nothing to probe", hint="name a disk: `hbatune list` shows them")
    if chosen.writes and not args.destructive:
        raise UsageError(
            f"{chosen.name} writes, and destroys what is on a disk",
            hint="name an empty disk and --destructive, or a workload that only reads",
        )
    if args.together and any(each.queue_depth for each in chosen.runs):
        raise UsageError(
            f"--together takes a workload that sets nothing, and {chosen.name} sets the depth of a "
            "disk"
        )
    if args.together and any(each.writer for each in chosen.runs):
        raise UsageError(
            f"--together takes a workload that is the same on each disk, and {chosen.name} has a "
            "bulk writer beside it"
        )
    # These set the LUN's own depth for each run, which is a write to sysfs.
    if any(each.queue_depth for each in chosen.runs):
        require_root(f"probe {chosen.name}")


def _require_sense_on_file(args: argparse.Namespace, chosen: NamedWorkload) -> None:
    """Raise UsageError for a request that makes no sense on a file."""
    if args.together:
        raise UsageError("--together is for the disks of an adapter, and --file is one file")
    if args.targets:
        raise UsageError("--file takes the place of targets", hint="name one or the other")
    if any(each.queue_depth for each in chosen.runs):
        raise UsageError(f"{chosen.name} sets the depth of a disk, and a file has none")


def _report(
    chosen: NamedWorkload,
    runs: Sequence[Measured],
    found: Sequence[DepthSweep],
    standings: Mapping[str, tuple[ProbeResult, Standing]],
    profile: Profile | None,
    *,
    as_json: bool,
    together: Together | None = None,
) -> int:
    if as_json:
        here = os.uname()
        bends = tuple(Bend(each.target, each.queue_depth, each.knee) for each in found)
        known = {target: standing for target, (_, standing) in standings.items()}
        show_json(
            ProbeDocument(
                *(chosen.name, chosen.sources, here.nodename, here.release, tuple(runs), bends),
                standings=known,
                together=None if together is None else together.results,
            )
        )
    else:
        _show(runs)
        show_curves(found)
        for result, standing in standings.values():
            for line in standing_lines(result, standing, profile.name if profile else ""):
                say(line)
        for line in mix_lines(results(runs)):
            say(line)
        for line in () if together is None else together_lines(together):
            say(line)
        for line in _caveats(runs):
            say(line)
    whole = together is None or bool(together.results and not together.failed)
    measured = runs and all(isinstance(each.outcome, ProbeResult) for each in runs)
    return 0 if measured and whole else 1


def _timed(asked: Workload, runtime: float | None) -> Workload:
    return asked if runtime is None else replace(asked, runtime=runtime)


def _standings(
    results: Sequence[ProbeResult], machine: Machine, profile: Profile | None
) -> dict[str, tuple[ProbeResult, Standing]]:
    """Return for each target the result closest to the documents' workload, and its comparisons."""
    best: dict[str, ProbeResult] = {}
    for result in results:
        known = best.get(result.target)
        if known is None or _distance(result) < _distance(known):
            best[result.target] = result
    found = {target: (each, stands(each, machine, profile)) for target, each in best.items()}
    return {target: (each, stood) for target, (each, stood) in found.items() if stood is not None}


def _distance(result: ProbeResult) -> tuple[bool, int]:
    """Return how far a result is from the documents' workload: random reads, 32 deep."""
    return result.workload.pattern is not Pattern.RANDOM_READ, abs(result.workload.issued - 32)


def _list(workloads: Sequence[NamedWorkload], *, as_json: bool) -> None:
    if as_json:
        show_json(WorkloadsDocument(tuple(workloads)))
        return
    columns = [identity("WORKLOAD"), figure("RUNS"), prose("WHAT"), value("SOURCES")]
    table = Table(columns)
    for workload in workloads:
        table.rows.append(
            [workload.name, str(len(workload.runs)), workload.title, ", ".join(workload.sources)]
        )
    show_table(table)


def _show(runs: Sequence[Measured]) -> None:
    table = Table(_COLUMNS)
    for each in runs:
        asked, outcome = each.workload, each.outcome
        if not isinstance(outcome, ProbeResult):
            what = "not probed" if isinstance(outcome, Skipped) else "failed"
            table.rows.append([outcome.target, *[NOTHING] * 8, f"{what}: {why_not(outcome)}"])
            continue
        figures = outcome.figures
        rates = (figures.iops, figures.bandwidth / 1e9)
        measured = (*rates, figures.mean_us, figures.p99_us, figures.iops_per_cpu_percent)
        words = doubt_text(outcome) or _beside(figures)
        mixed = f" {asked.reads}/{100 - asked.reads}" if asked.pattern is Pattern.RANDOM_MIX else ""
        of = f" of {asked.queue_depth}" if asked.queue_depth else ""
        rate = f" at {asked.rate}/s" if asked.rate else ""
        shape = [f"{asked.pattern}{mixed}{rate}", str(asked.block_size), f"{asked.issued}{of}"]
        cells = [digits(one) if one else NOTHING for one in measured]
        table.rows.append([outcome.target, *shape, *cells, words])
    show_table(table)


def _beside(figures: Figures) -> str:
    """Return what the bulk writer beside a run has written, empty where there was none."""
    if figures.written_beside is None:
        return ""
    return f"beside a bulk writer of {digits(figures.written_beside / 1e6)} MB/s"


def _caveats(runs: Sequence[Measured]) -> Iterator[str]:
    """Yield the reservations about the figures."""
    found = results(runs)
    for target in dict.fromkeys(each.target for each in found if each.blank):
        yield f"{target}: {BLANK}."
    if any(each.served and each.cpus is None for each in found):
        yield "fio shared the CPUs that serve the adapter's interrupts: too few others are there."
    if not any(each.workload.writes for each in runs):
        yield "Only reads were measured."
