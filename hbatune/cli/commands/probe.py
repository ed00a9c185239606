"""`hbatune probe`: runs a workload on endpoints, one run at a time.

It reads only, but for workloads that write: those take --destructive and an empty disk by name.
"""

import argparse
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from hbatune.cli.arguments import add_json, add_profile, require_root
from hbatune.cli.context import command_context
from hbatune.cli.text.before_after import BLANK, NONE, digits, why_not
from hbatune.cli.text.beside import standing_lines, stands
from hbatune.cli.text.curves import Curve, curves, show_curves
from hbatune.cli.text.output import Table, note, say, show_json
from hbatune.cli.text.progress import Advance, progress
from hbatune.errors import UsageError
from hbatune.facts.machine import gather
from hbatune.facts.model import Machine, TargetKind
from hbatune.facts.targets import select
from hbatune.operations.history import keep
from hbatune.operations.queue_depth import at_depths
from hbatune.operations.situation import chosen_profile, configuration, resolved
from hbatune.policy.model import Profile
from hbatune.probe import run as running
from hbatune.probe.guard import exclusively, guarded
from hbatune.probe.history import record
from hbatune.probe.knee import Knee
from hbatune.probe.model import Doubt, Outcome, Pattern, Result, Skipped, Subject, Workload
from hbatune.probe.scratch import scratch
from hbatune.probe.select import refusal, touched
from hbatune.probe.standing import Standing
from hbatune.probe.workloads import Named, load_workloads, workload
from hbatune.settings.table import attributes
from hbatune.shipped import shipped

SCHEMA = "hbatune.probe/1"

LONGEST = 600.0
"""Seconds that --runtime may ask for: what the files of workloads allow as well."""

_DOUBTS = {
    Doubt.TOO_MANY: "untrusted: more in flight than issued",
    Doubt.TOO_FEW: "untrusted: under 90 % of the depth issued was in flight",
}


class Measured(Struct, frozen=True):
    """One run: what was asked, what came of it, and why it must not be trusted, if so."""

    workload: Workload
    outcome: Outcome
    doubt: Doubt | None


class Bend(Struct, frozen=True):
    """The knee of a sweep of depth on a target, None where its curve has none to find."""

    target: str
    queue_depth: int | None
    knee: Knee | None


class ProbeDocument(Struct, frozen=True):
    """What ``probe`` prints; ``standings`` are by target."""

    workload: str
    sources: tuple[str, ...]
    hostname: str
    kernel: str
    runs: tuple[Measured, ...]
    knees: tuple[Bend, ...]
    standings: dict[str, Standing]
    schema: Literal["hbatune.probe/1"] = field(default="hbatune.probe/1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take a workload and targets."""
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
    parser.add_argument("--runtime", metavar="SECONDS", type=float, help="measured time of a run")
    add_profile(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """List the workloads, or run one; 1 where a run gave no figures."""
    if args.workload is None:
        _list(load_workloads(shipped("rules")))
        return 0
    chosen = workload(args.workload, shipped("rules"))
    if args.runtime is not None and not 0 < args.runtime <= LONGEST:
        raise UsageError(f"--runtime must be above 0 and at most {LONGEST:.0f} seconds")
    asked = [_timed(each, args.runtime) for each in chosen.runs]
    if args.file is not None:
        return _probe_file(args, chosen, asked)
    _require_sense(args, chosen)
    profile = _profile(args.profile)
    machine = gather(attributes(), of={kind: attributes(on=kind) for kind in _ADAPTERS})
    endpoints = select(machine, [resolved(name) for name in args.targets])
    subjects = list(touched(machine, {endpoint.target for endpoint in endpoints}))
    runs = _measure(machine, subjects, asked, args.targets)
    standings = _standings(_results(runs), machine, profile)
    found = curves(_results(runs))
    _keep(chosen, machine, profile, runs, found)
    return _report(chosen, runs, found, standings, profile, as_json=args.json)


_ADAPTERS = (TargetKind.CONTROLLER, TargetKind.HOST)


def _require_sense(args: argparse.Namespace, chosen: Named) -> None:
    """UsageError for what is not even to be begun."""
    if not args.targets:
        raise UsageError("nothing to probe", hint="name a disk: `hbatune list` shows them")
    if chosen.writes and not args.destructive:
        raise UsageError(
            f"{chosen.name} writes, and destroys what is on a disk",
            hint="name an empty disk and --destructive, or a workload that only reads",
        )
    if any(each.queue_depth for each in chosen.runs):
        require_root(f"probe {chosen.name}")


def _profile(name: str | None) -> Profile | None:
    """Return the profile whose objective the results are held against, None without any."""
    config = configuration()
    return chosen_profile(name, config) if name or config.profile else None


def _probe_file(args: argparse.Namespace, chosen: Named, asked: Sequence[Workload]) -> int:
    """Run the workload on a file of its own, which is gone afterwards however this ends."""
    if args.targets:
        raise UsageError("--file takes the place of targets", hint="name one or the other")
    if any(each.queue_depth for each in asked):
        raise UsageError(f"{chosen.name} sets the depth of a disk, and a file has none")
    seconds = sum(running.estimate(1, each) for each in asked)
    with progress("writing the file", 1), scratch(args.file) as file:
        size = file.size / (1 << 20)
        note(f"{len(asked)} runs on a file of {size:.0f} MiB, which take about {seconds:.0f} s")
        with progress("probing", len(asked)) as advance:
            runs = []
            for each in asked:
                outcome = running.on_file(str(args.file), file.path, file.size, each)
                runs.append(_measured(each, outcome))
                advance(str(args.file))
    return _report(chosen, runs, curves(_results(runs)), {}, None, as_json=args.json)


def _report(
    chosen: Named,
    runs: Sequence[Measured],
    found: Sequence[Curve],
    standings: Mapping[str, tuple[Result, Standing]],
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
    return 0 if runs and all(isinstance(each.outcome, Result) for each in runs) else 1


def _timed(asked: Workload, runtime: float | None) -> Workload:
    return asked if runtime is None else replace(asked, runtime=runtime)


def _results(runs: Sequence[Measured]) -> list[Result]:
    return [each.outcome for each in runs if isinstance(each.outcome, Result)]


def _measure(
    machine: Machine,
    subjects: Sequence[Subject],
    asked: Sequence[Workload],
    names: Sequence[str],
) -> list[Measured]:
    """Run all, said ahead; what must not be probed is told once."""
    writes = any(each.writes for each in asked)
    refused = [(each, _refused(each, names, writes=writes)) for each in subjects]
    usable = [subject for subject, why in refused if why is None]
    found = [Measured(asked[0], why, None) for _, why in refused if why is not None]
    count = len(usable) * len(asked)
    seconds = sum(running.estimate(len(usable), each) for each in asked)
    if count:
        what = "they WRITE, and destroy what is there" if writes else "they only read"
        note(f"{count} runs, which take about {seconds:.0f} s; {what}")
    with progress("probing", count) as advance:
        for subject in usable:
            found += _all(machine, subject, asked, names, advance)
    return found


def _refused(subject: Subject, names: Sequence[str], *, writes: bool) -> Skipped | None:
    """Return why a subject is not probed; fc and iscsi are where they are named themselves."""
    own = {name for one in (subject.endpoint, *subject.paths) for name in (one.target, one.id)}
    asked_for = any(resolved(name).removeprefix("/dev/") in own for name in names)
    return refusal(subject, shared=asked_for) or (guarded(subject, names) if writes else None)


def _all(
    machine: Machine,
    subject: Subject,
    asked: Sequence[Workload],
    names: Sequence[str],
    advance: Advance,
) -> Iterator[Measured]:
    """Yield one run after the other; what fails or does not answer is left alone."""
    with at_depths(machine, subject, asked) as ready:
        for each in asked:
            found = ready(each)
            if isinstance(found, Subject):
                yield (measured := _measured(each, _one(found, each, names)))
                if not isinstance(measured.outcome, Result):
                    return
            else:
                yield _measured(each, found)
            advance(subject.target)


def _one(subject: Subject, asked: Workload, names: Sequence[str]) -> Outcome:
    """Do one run; before one that writes, look once more that nothing is there."""
    if not asked.writes:
        return _probed(subject, asked)
    with exclusively(subject) as taken:
        return taken or guarded(subject, names) or _probed(subject, asked)


def _measured(asked: Workload, outcome: Outcome) -> Measured:
    return Measured(asked, outcome, outcome.doubt if isinstance(outcome, Result) else None)


def _probed(subject: Subject, asked: Workload) -> Outcome:
    return running.probe([subject], asked, write=asked.writes, look=not asked.writes)[0]


def _standings(
    results: Sequence[Result], machine: Machine, profile: Profile | None
) -> dict[str, tuple[Result, Standing]]:
    """Return for each target the result that can best be held against something, and how it is."""
    best: dict[str, Result] = {}
    for each in results:
        known = best.get(each.target)
        if known is None or _distance(each) < _distance(known):
            best[each.target] = each
    found = {target: (each, stands(each, machine, profile)) for target, each in best.items()}
    return {target: (each, stood) for target, (each, stood) in found.items() if stood is not None}


def _distance(result: Result) -> tuple[bool, int]:
    """Return how far a result is from what the documents measured: random reads, 32 deep."""
    return result.workload.pattern is not Pattern.RANDOM_READ, abs(result.workload.issued - 32)


def _keep(
    chosen: Named,
    machine: Machine,
    profile: Profile | None,
    runs: Sequence[Measured],
    found: Sequence[Curve],
) -> None:
    """Put the results into the history, all with one time and command, and the knees after them."""
    command, now = f"probe {chosen.name}", time.time()
    name = None if profile is None else profile.name
    records = [record(machine, name, command, each, now) for each in _results(runs)]
    for curve in found:
        last = record(machine, name, command, curve.results[-1], now)
        records.append(replace(last, result=None, knee=curve.knee, queue_depth=curve.queue_depth))
    keep(command_context(), records)


def _list(workloads: Sequence[Named]) -> None:
    table = Table(["WORKLOAD", "RUNS", "WHAT", "SOURCES"], right=frozenset({1}))
    for each in workloads:
        table.rows.append([each.name, str(len(each.runs)), each.title, ", ".join(each.sources)])
    table.show()


def _show(runs: Sequence[Measured]) -> None:
    asked_for = ("TARGET", "PATTERN", "BLOCK", "DEPTH")
    headings = [*asked_for, "IOPS", "MEAN µs", "P99 µs", "IOPS/CPU %", "NOTE"]
    table = Table(headings, right=frozenset(range(2, 8)), wraps="NOTE")
    for each in runs:
        asked, outcome = each.workload, each.outcome
        if not isinstance(outcome, Result):
            what = "not probed" if isinstance(outcome, Skipped) else "failed"
            table.rows.append([outcome.target, *[NONE] * 7, f"{what}: {why_not(outcome)}"])
            continue
        figures = outcome.figures
        measured = (figures.iops, figures.mean_us, figures.p99_us, figures.iops_per_cpu_percent)
        words = _DOUBTS[each.doubt] if each.doubt else ""
        mixed = f" {asked.reads}/{100 - asked.reads}" if asked.pattern is Pattern.RANDOM_MIX else ""
        of = f" of {asked.queue_depth}" if asked.queue_depth else ""
        shape = [f"{asked.pattern}{mixed}", str(asked.block_size), f"{asked.issued}{of}"]
        cells = [digits(one) if one else NONE for one in measured]
        table.rows.append([outcome.target, *shape, *cells, words])
    table.show()


def _caveats(runs: Sequence[Measured]) -> Iterator[str]:
    """Yield what is to be known of the figures."""
    results = _results(runs)
    for target in dict.fromkeys(each.target for each in results if each.blank):
        yield f"{target}: {BLANK}."
    if any(each.served and each.cpus is None for each in results):
        yield "fio shared the CPUs that serve the adapter's interrupts: too few others are there."
    if not any(each.workload.writes for each in runs):
        yield "Only reads were measured."
