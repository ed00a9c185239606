"""`hbatune probe`: runs a workload on endpoints, one run at a time.

It reads only, but for workloads that write: those take --destructive and an empty disk by name.
"""

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from hbatune.cli.before_after import BLANK, NONE, digits, why_not
from hbatune.cli.beside import knee_line
from hbatune.cli.output import Table, note, say, show_json
from hbatune.cli.progress import progress
from hbatune.cli.situation import add_json, resolved
from hbatune.errors import UsageError
from hbatune.facts.machine import gather
from hbatune.facts.targets import select
from hbatune.probe import run as running
from hbatune.probe.guard import exclusively, guarded
from hbatune.probe.knee import knee, points
from hbatune.probe.model import Doubt, Outcome, Pattern, Result, Skipped, Subject, Workload
from hbatune.probe.scratch import scratch
from hbatune.probe.select import refusal, touched
from hbatune.probe.workloads import Named, load_workloads, workload
from hbatune.shipped import shipped

SCHEMA = "hbatune.probe/1"
_CURVE = 3
"""Depths at least that have a knee between them."""

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


class ProbeDocument(Struct, frozen=True):
    """What ``probe`` prints."""

    workload: str
    sources: tuple[str, ...]
    hostname: str
    kernel: str
    runs: tuple[Measured, ...]
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
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """List the workloads, or run one; 1 where a run gave no figures."""
    if args.workload is None:
        _list(load_workloads(shipped("rules")))
        return 0
    chosen = workload(args.workload, shipped("rules"))
    if args.file is not None:
        return _probe_file(args, chosen)
    if not args.targets:
        raise UsageError("nothing to probe", hint="name a disk: `hbatune list` shows them")
    if args.runtime is not None and not 0 < args.runtime <= LONGEST:
        raise UsageError(f"--runtime must be above 0 and at most {LONGEST:.0f} seconds")
    if chosen.writes and not args.destructive:
        raise UsageError(
            f"{chosen.name} writes, and destroys what is on a disk",
            hint="name an empty disk and --destructive, or a workload that only reads",
        )
    machine = gather(["queue/iostats"])
    endpoints = select(machine, [resolved(name) for name in args.targets])
    subjects = list(touched(machine, {endpoint.target for endpoint in endpoints}))
    asked = [_timed(each, args.runtime) for each in chosen.runs]
    return _report(chosen, _measure(subjects, asked, args.targets), as_json=args.json)


def _probe_file(args: argparse.Namespace, chosen: Named) -> int:
    """Run the workload on a file of its own, which is gone afterwards however this ends."""
    if args.targets:
        raise UsageError("--file takes the place of targets", hint="name one or the other")
    asked = [_timed(each, args.runtime) for each in chosen.runs]
    seconds = sum(running.estimate(1, each) for each in asked)
    with progress("writing the file", 1), scratch(args.file) as file:
        size = file.size / (1 << 20)
        note(f"{len(asked)} runs on a file of {size:.0f} MiB, which take about {seconds:.0f} s")
        with progress("probing", len(asked)) as advance:
            runs = []
            for each in asked:
                outcome = running.on_file(str(args.file), file.path, each)
                runs.append(_measured(each, outcome))
                advance(str(args.file))
    return _report(chosen, runs, as_json=args.json)


def _report(chosen: Named, runs: Sequence[Measured], *, as_json: bool) -> int:
    if as_json:
        here = os.uname()
        show_json(
            ProbeDocument(chosen.name, chosen.sources, here.nodename, here.release, tuple(runs))
        )
    else:
        _show(runs)
    return 0 if runs and all(isinstance(each.outcome, Result) for each in runs) else 1


def _timed(asked: Workload, runtime: float | None) -> Workload:
    return asked if runtime is None else replace(asked, runtime=runtime)


def _measure(
    subjects: Sequence[Subject], asked: Sequence[Workload], named: Sequence[str]
) -> list[Measured]:
    """Run all, said ahead; what must not be probed is told once. Naming one is asking for it."""
    writes = any(each.writes for each in asked)
    refused = [(each, _refused(each, named, writes=writes)) for each in subjects]
    usable = [subject for subject, why in refused if why is None]
    found = [Measured(asked[0], why, None) for _, why in refused if why is not None]
    count = len(usable) * len(asked)
    seconds = sum(running.estimate(len(usable), each) for each in asked)
    if count:
        what = "they WRITE, and destroy what is there" if writes else "they only read"
        note(f"{count} runs, which take about {seconds:.0f} s; {what}")
    with progress("probing", count) as advance:
        for subject in usable:
            for each in asked:
                found.append(_one(subject, each, named, advance))
                if not isinstance(found[-1].outcome, Result):
                    break  # what fails or does not answer is left alone
    return found


def _refused(subject: Subject, named: Sequence[str], *, writes: bool) -> Skipped | None:
    return refusal(subject, shared=True) or (guarded(subject, named) if writes else None)


def _sweeps(runs: Sequence[Measured]) -> dict[str, list[Result]]:
    """Return the results of each target that differ in nothing but depth, where there are such."""
    alike: dict[tuple[str, Workload], list[Result]] = {}
    for each in runs:
        if isinstance(each.outcome, Result):
            key = each.outcome.target, replace(each.workload, depth=1)
            alike.setdefault(key, []).append(each.outcome)
    return {target: found for (target, _), found in alike.items() if len(found) >= _CURVE}


def _one(
    subject: Subject, asked: Workload, named: Sequence[str], advance: Callable[[str], None]
) -> Measured:
    """Do one run; before one that writes, look once more that nothing is there."""
    if asked.writes:
        with exclusively(subject) as taken:
            outcome = taken or guarded(subject, named) or _probed(subject, asked)
    else:
        outcome = _probed(subject, asked)
    advance(subject.target)
    return _measured(asked, outcome)


def _measured(asked: Workload, outcome: Outcome) -> Measured:
    return Measured(asked, outcome, outcome.doubt if isinstance(outcome, Result) else None)


def _probed(subject: Subject, asked: Workload) -> Outcome:
    return running.probe([subject], asked, write=asked.writes, look=not asked.writes)[0]


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
        shape = [f"{asked.pattern}{mixed}", str(asked.block_size), str(asked.issued)]
        cells = [digits(one) if one else NONE for one in measured]
        table.rows.append([outcome.target, *shape, *cells, words])
    table.show()
    for target, swept in _sweeps(runs).items():
        if found := knee(points(swept)):
            say(f"{target}: {knee_line(found)}.")
    results = [each.outcome for each in runs if isinstance(each.outcome, Result)]
    for target in dict.fromkeys(each.target for each in results if each.blank):
        say(f"{target}: {BLANK}.")
    if any(each.served and each.cpus is None for each in results):
        say("fio shared the CPUs that serve the adapter's interrupts: too few others are there.")
    if not any(each.workload.writes for each in runs):
        say("Only reads were measured.")
