"""`hbatune probe`: run a workload on endpoints. It writes only with --destructive or --file."""

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from hbatune.cli import arguments
from hbatune.cli.command_context import make_context
from hbatune.errors import UsageError
from hbatune.facts.model import Medium
from hbatune.operations.probe import Measured, ProbeRequest, ProbeRuns, run_workload
from hbatune.operations.verify import find_mount_point
from hbatune.policy.library import installed_library
from hbatune.probe import comparison, workloads
from hbatune.probe.guard import MIN_SCRATCH_SIZE
from hbatune.probe.knee import Knee
from hbatune.probe.result import Pattern, ProbeResult, Skipped, Workload
from hbatune.probe.run import TogetherResult
from hbatune.probe.workloads import NamedWorkload, load_workloads
from hbatune.shipped import fill_message, load_texts
from hbatune.text import probe_tables
from hbatune.text.tables import EMPTY_CELL, Table, load_columns
from hbatune.text.terminal import print_line, print_note, show_json, show_line, show_table
from hbatune.text.units import format_digits

MAX_RUNTIME_S = 600.0
"""The longest --runtime in seconds, the same as in the files of workloads."""


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
    standings: dict[str, comparison.Standing]
    together: tuple[TogetherResult, ...] | None = None
    schema: Literal["hbatune.probe/1"] = field(default="hbatune.probe/1")


class WorkloadsDocument(Struct, frozen=True):
    """The JSON document of ``probe`` without a workload."""

    workloads: tuple[NamedWorkload, ...]
    schema: Literal["hbatune.workloads/1"] = field(default="hbatune.workloads/1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `probe`."""
    parser.add_argument("workload", metavar="WORKLOAD", nargs="?")
    parser.add_argument("targets", metavar="TARGET", nargs="*")
    arguments.add_options(parser, "--destructive", "--file")
    # More than 64 MiB, since the rate of filling is measured on these. ext4 allows 16 TiB.
    size = arguments.make_size_type(1 << 44, MIN_SCRATCH_SIZE)
    parser.add_argument("--size", metavar="SIZE", type=size)
    group = parser.add_argument_group("your own workload, instead of WORKLOAD")
    group.add_argument("--depth", metavar="N", type=arguments.make_number_type(1, 4096))
    size = arguments.make_size_type(workloads.MAX_BLOCK_SIZE)
    group.add_argument("--block", metavar="SIZE", type=size)
    group.add_argument("--mix", metavar="PERCENT", type=arguments.make_number_type(0, 100))
    group.add_argument("--jobs", metavar="N", type=arguments.make_number_type(1, 256))
    group.add_argument("--rate", metavar="IOPS", type=arguments.make_number_type(1, 100_000_000))
    arguments.add_options(group, "--watch", "--trace")
    parser.add_argument("--runtime", metavar="SECONDS", type=arguments.make_seconds_type())
    arguments.add_options(parser, "--together")
    parser.add_argument("--export", metavar="PROGRAM", choices=list(load_texts("exports.toml")))
    arguments.add_options(parser, "--profile", "--json")


def run(args: argparse.Namespace) -> int:
    """List the workloads, or run one; exit 1 if a run gave no results."""
    if args.runtime is not None and not 0 < args.runtime <= MAX_RUNTIME_S:
        raise UsageError(f"--runtime must be above 0 and at most {MAX_RUNTIME_S:.0f} seconds")
    own_workload = _make_own_workload(args)
    if own_workload is None and args.workload is None:
        _list_workloads(as_json=args.json)
        return 0
    if own_workload is not None and args.workload is not None:
        # There is no workload's name, so every argument is a target.
        first = arguments.resolve_targets([args.workload], args, shows_uses=True)
        args.targets = [*first, *args.targets]
    chosen = own_workload or workloads.find_workload(args.workload, installed_library())
    if args.file is not None:
        _check_file_request(args, chosen)
    else:
        _check_request(args, chosen)
    _check_export(args, chosen)
    arguments.require_fio()
    if args.runtime is not None and args.trace is None:
        runs = [replace(workload, runtime=args.runtime) for workload in chosen.runs]
        chosen = replace(chosen, runs=tuple(runs))
    request = ProbeRequest(
        workload=chosen,
        targets=args.targets,
        folder=args.file,
        size=args.size,
        profile=args.profile,
        together=args.together,
    )
    probed = run_workload(make_context(), request)
    for result in probed.results:
        for text in probe_tables.describe_replay(result):
            print_note(f"{result.target}: {text}")
    if args.export is not None:
        _show_exports(args.export, probed)
    elif args.json:
        show_json(_make_document(chosen, probed))
    else:
        probe_tables.show_curves(probed.sweeps, probed.standings)
        _show_runs(probed)
        _print_conclusions(probed)
    return 0 if probed.complete else 1


def _make_own_workload(args: argparse.Namespace) -> NamedWorkload | None:
    options = (args.depth, args.block, args.mix, args.jobs, args.rate, args.watch)
    if all(option is None for option in (*options, args.trace)):
        return None
    if args.workload in load_workloads(installed_library()):
        problem = "--depth, --block, --mix, --jobs, --rate, --watch and --trace define your own"
        hint = "omit the name, or write a workload file: docs/probing.md"
        raise UsageError(f"{problem} workload, and {args.workload} is another", hint=hint)
    if args.trace is not None:
        if args.together or any(option is not None for option in options):
            raise UsageError("--trace is the complete load of a disk", hint="omit other options")
        from hbatune.probe.replay import make_replay  # most probes replay nothing

        writes = args.destructive or args.file is not None
        workload = make_replay(args.trace, args.runtime, writes=writes)
        return NamedWorkload("trace", probe_tables.format_load(workload), (), (workload,))
    if args.watch is not None:
        from hbatune.sizing.needs import find_running_depth, read_moments  # most probes need none

        if args.depth is not None or args.workload is None or args.targets:
            raise UsageError("--watch has the depth of one disk", hint="name it, without --depth")
        args.depth = find_running_depth(read_moments(args.watch), args.workload)
    usual = Workload()
    reads = 100 if args.mix is None else args.mix
    pattern = {0: Pattern.RANDOM_WRITE, 100: Pattern.RANDOM_READ}.get(reads, Pattern.RANDOM_MIX)
    workload = Workload(
        pattern=pattern,
        block_size=args.block or usual.block_size,
        depth=args.depth or (workloads.DEFAULT_MAX_WAITING if args.rate else usual.depth),
        jobs=args.jobs or usual.jobs,
        reads=reads,
        rate=args.rate,
    )
    return NamedWorkload("custom", probe_tables.format_load(workload), (), (workload,))


def _check_request(args: argparse.Namespace, chosen: NamedWorkload) -> None:
    if args.size is not None:
        raise UsageError("--size is for a file", hint="name its directory with --file")
    if not args.targets:
        raise UsageError("nothing to probe", hint="name a disk: `hbatune list` shows them")
    if chosen.writes and not args.destructive:
        hint = "name an empty disk and --destructive, or a workload that only reads"
        raise UsageError(f"{chosen.name} writes, and destroys what is on a disk", hint=hint)
    if args.together and chosen.sets_depth:
        problem = f"takes a workload that sets nothing, and {chosen.name} sets the depth of a disk"
        raise UsageError(f"--together {problem}")
    if args.together and any(workload.writer for workload in chosen.runs):
        raise UsageError(fill_message("probe", "writer", workload=chosen.name))
    # Such a run sets the queue depth of the LUN, which is a write to sysfs.
    if chosen.sets_depth:
        arguments.require_root(f"probe {chosen.name}")


def _check_file_request(args: argparse.Namespace, chosen: NamedWorkload) -> None:
    if args.together:
        raise UsageError("--together is for the disks of an adapter, and --file is one file")
    if args.targets:
        raise UsageError("--file replaces targets", hint="use only one of them")
    if chosen.sets_depth:
        raise UsageError(f"{chosen.name} sets the depth of a disk, and a file has no depth")


def _check_export(args: argparse.Namespace, chosen: NamedWorkload) -> None:
    if args.export is None:
        return
    if args.json or args.together:
        raise UsageError("--export has its own form", hint="omit --json and --together")
    if args.export == "scylla" and args.file is None:
        raise UsageError("--export scylla is for a filesystem", hint="name a directory with --file")
    measured = {run.pattern for run in chosen.runs if comparison.is_corner(run)}
    if not measured.issuperset(load_texts("exports.toml")[args.export]["rates"]):
        problem = f"{chosen.name} does not measure all rates of --export {args.export}"
        raise UsageError(problem, hint="use the workload four-corners")


def _show_exports(program: str, probed: ProbeRuns) -> None:
    """Print the results as configuration of a program; HbatuneError for a target without it."""
    for text in _explain_missing(probed):
        print_note(text)
    for target in dict.fromkeys(result.target for result in probed.results):
        results = [result for result in probed.results if result.target == target]
        mount = find_mount_point(Path(target)) if target.startswith("/") else target
        media = {e.medium for e in probed.machine.endpoints if mount in (e.target, *e.mounts)}
        medium = media.pop() if len(media) == 1 else Medium.UNKNOWN
        lines = comparison.export_results(program, results, medium, mount)
        for line in (f"# {target}", *lines):
            show_line(line)


def _make_document(chosen: NamedWorkload, probed: ProbeRuns) -> ProbeDocument:
    host, together = os.uname(), probed.together
    return ProbeDocument(
        workload=chosen.name,
        sources=chosen.sources,
        hostname=host.nodename,
        kernel=host.release,
        runs=probed.runs,
        knees=tuple(Bend(s.target, s.workload.queue_depth, s.knee) for s in probed.sweeps),
        standings={target: standing for target, (_, standing) in probed.standings.items()},
        together=None if together is None else together.results,
    )


def _print_conclusions(probed: ProbeRuns) -> None:
    profile = probed.profile.name if probed.profile else ""
    lines = list(probe_tables.describe_standings(probed.standings, profile))
    lines += probe_tables.describe_mixes(probed.results)
    if probed.together is not None:
        lines += probe_tables.describe_together(probed.together)
    lines += _yield_caveats(probed)
    for line in lines:
        print_line(line)
    probe_tables.show_document_tables(probed.results, probed.machine)


def _list_workloads(*, as_json: bool) -> None:
    named = load_workloads(installed_library()).values()
    if as_json:
        show_json(WorkloadsDocument(tuple(named)))
        return
    table = Table(load_columns("workloads"))
    for workload in named:
        runs, sources = str(len(workload.runs)), ", ".join(workload.sources)
        table.rows.append([workload.name, runs, workload.title, sources])
    show_table(table)


def _show_runs(probed: ProbeRuns) -> None:
    show_table(Table(load_columns("probe"), list(map(_make_cells, probed.results))))
    for text in _explain_missing(probed):
        print_line(text, hang=2)


def _explain_missing(probed: ProbeRuns) -> Iterator[str]:
    """Yield a line for each run without a result."""
    for run in probed.runs:
        outcome = run.outcome
        if not isinstance(outcome, ProbeResult):
            prefix = "not probed" if isinstance(outcome, Skipped) else "failed"
            yield f"{outcome.target}: {prefix}: {probe_tables.explain_missing_result(outcome)}"


def _make_cells(result: ProbeResult) -> Sequence[str]:
    workload = result.workload
    pattern, depth = "trace" if workload.trace else str(workload.pattern), str(workload.issued)
    if workload.pattern is Pattern.RANDOM_MIX:
        pattern += f" {workload.reads}/{100 - workload.reads}"
    if workload.rate:
        pattern += f" at {workload.rate}/s"
    if workload.queue_depth:
        depth += f" of {workload.queue_depth}"
    figures = result.figures
    values: list[float | None] = [figures.iops, figures.bandwidth / 1e9, figures.mean_us]
    values += [figures.p99_us, figures.iops_per_cpu_percent]
    cells = [format_digits(value) if value else EMPTY_CELL for value in values]
    note = probe_tables.describe_doubt(result)
    if not note and figures.written_beside is not None:
        note = f"with a bulk writer of {format_digits(figures.written_beside / 1e6)} MB/s"
    return [result.target, pattern, str(workload.block_size), depth, *cells, note]


def _yield_caveats(probed: ProbeRuns) -> Iterator[str]:
    probe_results = probed.results
    for target in dict.fromkeys(result.target for result in probe_results if result.blank):
        yield f"{target}: {probe_tables.BLANK_NOTE}."
    if any(result.served and result.cpus is None for result in probe_results):
        yield "fio shared the CPUs that serve the adapter's interrupts: too few other CPUs exist."
    if probe_results and not any(run.workload.writes for run in probed.runs):
        yield "Only reads were measured."
