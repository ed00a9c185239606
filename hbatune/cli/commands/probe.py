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

from hbatune.cli.arguments import add_json, add_profile, require_root, seconds
from hbatune.cli.context import command_context
from hbatune.cli.text.output import say, show_json, show_table
from hbatune.cli.text.probes import BLANK, show_curves, standing_lines, stands, why_not
from hbatune.cli.text.table import NOTHING, Table, figure, identity, prose, value
from hbatune.cli.text.units import digits
from hbatune.errors import UsageError
from hbatune.facts.model import Machine
from hbatune.operations.probe import (
    Measured,
    SweepKnee,
    keep_probed,
    probe_disks,
    probe_file,
    results,
)
from hbatune.policy.model import Profile
from hbatune.probe.comparison import Standing
from hbatune.probe.knee import Knee
from hbatune.probe.model import Doubt, Pattern, ProbeResult, Skipped, Workload
from hbatune.probe.sweeps import DepthSweep, depth_sweeps
from hbatune.probe.workloads import NamedWorkload, find_workload, load_workloads
from hbatune.shipped import shipped

SCHEMA = "hbatune.probe/1"

LONGEST = 600.0
"""The longest --runtime in seconds, the same as in the files of workloads."""

_DOUBTS = {
    Doubt.TOO_MANY: "untrusted: more in flight than issued",
    Doubt.TOO_FEW: "untrusted: under 90 % of the depth issued was in flight",
}


_COLUMNS = (
    identity("TARGET"),
    value("PATTERN"),
    figure("BLOCK"),
    figure("DEPTH"),
    figure("IOPS"),
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
    """The JSON document of ``probe``; ``standings`` are by target."""

    workload: str
    sources: tuple[str, ...]
    hostname: str
    kernel: str
    runs: tuple[Measured, ...]
    knees: tuple[Bend, ...]
    standings: dict[str, Standing]
    schema: Literal["hbatune.probe/1"] = field(default="hbatune.probe/1")


class WorkloadsDocument(Struct, frozen=True):
    """The JSON document of ``probe`` without a workload."""

    workloads: tuple[NamedWorkload, ...]
    schema: Literal["hbatune.workloads/1"] = field(default="hbatune.workloads/1")


SUMMARY = "measure disks by a workload: reads, and writes only where asked to"
GROUP = "measure"
EXAMPLES = (
    ("hbatune probe", "list the workloads"),
    ("sudo hbatune probe qd1 sda", "a workload that reads, on a disk"),
    ("sudo hbatune probe depth-sweep sda", "find the knee of a disk"),
    ("hbatune probe oltp1 --file /srv", "one that writes, to its own file"),
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
    parser.add_argument(
        "--runtime", metavar="SECONDS", type=seconds(), help="measured time of a run"
    )
    add_profile(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """List the workloads, or run one; exit 1 where a run gave no figures."""
    if args.workload is None:
        _list(load_workloads(shipped("rules")), as_json=args.json)
        return 0
    chosen = find_workload(args.workload, shipped("rules"))
    if args.runtime is not None and not 0 < args.runtime <= LONGEST:
        raise UsageError(f"--runtime must be above 0 and at most {LONGEST:.0f} seconds")
    asked = [_timed(each, args.runtime) for each in chosen.runs]
    if args.file is not None:
        _require_sense_on_file(args, chosen)
        runs = probe_file(command_context(), args.file, asked)
        return _report(chosen, runs, depth_sweeps(results(runs)), {}, None, as_json=args.json)
    _require_sense(args, chosen)
    context = command_context()
    done = probe_disks(context, asked, args.targets, args.profile)
    standings = _standings(results(done.runs), done.machine, done.profile)
    found = depth_sweeps(results(done.runs))
    # Knees are kept with the results: the windows that they are computed from are not stored.
    sweeps = [SweepKnee(each.results[-1], each.queue_depth, each.knee) for each in found]
    keep_probed(context, chosen.name, done, sweeps)
    return _report(chosen, done.runs, found, standings, done.profile, as_json=args.json)


def _require_sense(args: argparse.Namespace, chosen: NamedWorkload) -> None:
    """Raise UsageError for a request that makes no sense on any disk."""
    if not args.targets:
        raise UsageError("nothing to probe", hint="name a disk: `hbatune list` shows them")
    if chosen.writes and not args.destructive:
        raise UsageError(
            f"{chosen.name} writes, and destroys what is on a disk",
            hint="name an empty disk and --destructive, or a workload that only reads",
        )
    # These set the LUN's own depth for each run, which is a write to sysfs.
    if any(each.queue_depth for each in chosen.runs):
        require_root(f"probe {chosen.name}")


def _require_sense_on_file(args: argparse.Namespace, chosen: NamedWorkload) -> None:
    """Raise UsageError for a request that makes no sense on a file."""
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
) -> int:
    if as_json:
        here = os.uname()
        bends = tuple(Bend(each.target, each.queue_depth, each.knee) for each in found)
        known = {target: standing for target, (_, standing) in standings.items()}
        show_json(
            ProbeDocument(
                chosen.name, chosen.sources, here.nodename, here.release, tuple(runs), bends, known
            )
        )
    else:
        _show(runs)
        show_curves(found)
        for result, standing in standings.values():
            for line in standing_lines(result, standing, profile.name if profile else ""):
                say(line)
        for line in _caveats(runs):
            say(line)
    return 0 if runs and all(isinstance(each.outcome, ProbeResult) for each in runs) else 1


def _timed(asked: Workload, runtime: float | None) -> Workload:
    return asked if runtime is None else replace(asked, runtime=runtime)


def _standings(
    results: Sequence[ProbeResult], machine: Machine, profile: Profile | None
) -> dict[str, tuple[ProbeResult, Standing]]:
    """Return for each target the result closest to the documents' workload, and its comparisons."""
    best: dict[str, ProbeResult] = {}
    for each in results:
        known = best.get(each.target)
        if known is None or _distance(each) < _distance(known):
            best[each.target] = each
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
    for each in workloads:
        table.rows.append([each.name, str(len(each.runs)), each.title, ", ".join(each.sources)])
    show_table(table)


def _show(runs: Sequence[Measured]) -> None:
    table = Table(_COLUMNS)
    for each in runs:
        asked, outcome = each.workload, each.outcome
        if not isinstance(outcome, ProbeResult):
            what = "not probed" if isinstance(outcome, Skipped) else "failed"
            table.rows.append([outcome.target, *[NOTHING] * 7, f"{what}: {why_not(outcome)}"])
            continue
        figures = outcome.figures
        measured = (figures.iops, figures.mean_us, figures.p99_us, figures.iops_per_cpu_percent)
        words = _DOUBTS[each.doubt] if each.doubt else ""
        mixed = f" {asked.reads}/{100 - asked.reads}" if asked.pattern is Pattern.RANDOM_MIX else ""
        of = f" of {asked.queue_depth}" if asked.queue_depth else ""
        shape = [f"{asked.pattern}{mixed}", str(asked.block_size), f"{asked.issued}{of}"]
        cells = [digits(one) if one else NOTHING for one in measured]
        table.rows.append([outcome.target, *shape, *cells, words])
    show_table(table)


def _caveats(runs: Sequence[Measured]) -> Iterator[str]:
    """Yield the reservations about the figures."""
    found = results(runs)
    for target in dict.fromkeys(each.target for each in found if each.blank):
        yield f"{target}: {BLANK}."
    if any(each.served and each.cpus is None for each in found):
        yield "fio shared the CPUs that serve the adapter's interrupts: too few others are there."
    if not any(each.workload.writes for each in runs):
        yield "Only reads were measured."
