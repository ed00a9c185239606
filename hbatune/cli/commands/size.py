"""`hbatune size`: estimate the drives, links and queue depths for a load.

Its reference values are from D0-9, D0-12, D0-15, D0-16, D3-11, D4-9, D4-10 and D4-12 to D4-15.
Depths follow D2-2 to D2-5 and D2-7.
"""

import argparse
from collections.abc import Callable

from msgspec.structs import replace

from hbatune.cli import arguments
from hbatune.errors import ExitCode, UsageError
from hbatune.facts.machine import gather_machine
from hbatune.facts.model import Machine
from hbatune.policy.config import load_configuration
from hbatune.policy.library import SIZING, ArrayModel, installed_library, load_cited
from hbatune.shipped import find_shipped
from hbatune.sizing import needs, shortfall
from hbatune.snapshot.file import load_snapshot
from hbatune.text import sizing_tables
from hbatune.text.terminal import print_line, show_json

DEFAULT_HEADROOM = 30
"""The default percentage that stays free: the middle of D0-9's 20 to 40."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `size`."""
    load = parser.add_argument_group("a load")
    for option, metavar, parse, default in (
        ("--iops", "N", _parse_rate, None),
        ("--gb-per-s", "N", _parse_amount, None),
        ("--block", "SIZE", arguments.make_size_type(1 << 30), None),
        ("--reads", "P", _make_percent_type(100), 100),
        ("--p99", "MS", _parse_amount, None),
        ("--hdd-iops", "N", _parse_rate, None),
        # At 100 % free, no capacity would remain.
        ("--headroom", "P", _make_percent_type(99), DEFAULT_HEADROOM),
    ):
        load.add_argument(option, metavar=metavar, type=parse, default=default)
    arguments.add_options(load, "--watch", "--all")
    array = parser.add_argument_group("an array that hosts share")
    number = arguments.make_number_type(1)
    for option in ("--hosts", "--port-limit", "--lun-limit", "--data-drives", "--luns", "--hbas"):
        array.add_argument(option, metavar="N", type=number)
    for option in ("--ports", "--fabrics"):
        array.add_argument(option, metavar="N", type=number, default=1)
    array.add_argument("--array", metavar="NAME")
    selectors = list(map(str, shortfall.Selector))
    selector = str(shortfall.Selector.SERVICE_TIME)
    array.add_argument("--selector", choices=selectors, default=selector, metavar="HOW")
    arguments.add_options(parser, "--snapshot", "--json", "--no-pager")


def run(args: argparse.Namespace) -> int:
    """Print the requirements of the load; exit 1 if the host cannot carry it."""
    figures: needs.SizingFigures = load_cited(find_shipped("rules") / SIZING, needs.SizingFigures)
    load = _make_load(args)
    if load is None and args.hosts is None:
        hint = "--iops, --gb-per-s or --watch for a load, --hosts for an array"
        raise UsageError("neither a load nor an array is given", hint=hint)
    if args.snapshot is not None:
        machine = load_snapshot(args.snapshot).machine
    else:
        machine = gather_machine((), deadline=load_configuration().act.deadline_seconds)
    required, array, depth, answer, headline = None, None, None, None, None
    resources: tuple[shortfall.ResourceComparison, ...] = ()
    if load is not None:
        yardsticks = installed_library().yardsticks()
        load = replace(load, hdd_iops=args.hdd_iops)
        required = needs.find_needs(load, args.headroom / 100, yardsticks, figures)
        resources = shortfall.compare_host(required, machine)
        answer = shortfall.evaluate_host(resources)
        headline = sizing_tables.format_headline(required, machine.hostname, answer)
    if args.hosts is not None:
        array = _make_array(args, machine)
        depth = shortfall.find_depth(array)
    if args.json:
        sized = sizing_tables.SizeDocument(needs=required, host=resources, array=array, depth=depth)
        show_json(replace(sized, answer=answer, headline=headline))
    else:
        if required is not None and headline is not None:
            sizing_tables.show_answer(headline, resources)
            has_ipr = any(adapter.family == "ipr" for adapter in machine.adapters)  # as in D4
            sizing_tables.show_needs(required, unfold=args.all or has_ipr)
        if array is not None and depth is not None:
            if required is not None:
                print_line()
            sizing_tables.show_depth(array, depth)
    return 0 if answer in (None, "carries") else ExitCode.FOUND


def _make_load(args: argparse.Namespace) -> needs.WantedLoad | None:
    if args.watch is not None:
        if args.iops is not None or args.gb_per_s is not None:
            raise UsageError("--watch has the load, and so has --iops or --gb-per-s: name one")
        return replace(needs.find_busiest_load(needs.read_moments(args.watch)), p99_ms=args.p99)
    if args.iops is None and args.gb_per_s is None:
        return None
    return needs.make_load(args.iops, args.gb_per_s, args.block, args.reads, args.p99)


def _make_array(args: argparse.Namespace, machine: Machine) -> shortfall.SharedArray:
    array_luns, array_hbas = shortfall.count_array_parts(machine)
    luns, hbas = args.luns or array_luns, args.hbas or array_hbas
    for option, count, noun in (("--luns", luns, "LUN"), ("--hbas", hbas, "adapter")):
        if not count:
            problem = f"{machine.hostname} has no {noun} of a shared array"
            raise UsageError(problem, hint=f"give the number for each host: {option}")
    model = None if args.array is None else _find_model(args.array)
    if model is not None and model.per_data_drive and args.data_drives is None:
        problem = f"the limit of a LUN of {model.name} depends on its drives"
        raise UsageError(problem, hint="say how many hold its data: --data-drives")
    return shortfall.SharedArray(
        hosts=args.hosts,
        luns=luns,
        hbas=hbas,
        ports=args.ports,
        fabrics=min(args.fabrics, hbas),
        selector=shortfall.Selector(args.selector),
        port_limit=args.port_limit,
        lun_limit=args.lun_limit,
        model=model,
        data_drives=args.data_drives or 0,
    )


def _find_model(name: str) -> ArrayModel:
    models = installed_library().arrays()
    matches = [model for model in models if name.lower() in model.name.lower()]
    if len(matches) != 1:
        problem = "matches more than one of" if matches else "matches none of"
        names = ", ".join(model.name for model in matches or models)
        raise UsageError(f"--array {name!r} {problem} the known models: {names}")
    return matches[0]


def _convert_rate(text: str) -> float:
    factor = {"k": 1e3, "m": 1e6}.get(text[-1:].lower())
    return float(text) if factor is None else float(text[:-1]) * factor


def _is_amount(amount: float) -> bool:
    return 0 < amount <= 1e12


def _make_percent_type(limit: int) -> Callable[[str], int]:
    wanted = f"a percentage from 0 to {limit}"
    return arguments.make_type(int, lambda percentage: 0 <= percentage <= limit, wanted)


_RATE = "a number above 0, such as 200000, 200k or 1.1M,"
_parse_rate = arguments.make_type(_convert_rate, _is_amount, _RATE)
_parse_amount = arguments.make_type(float, _is_amount, "a number above 0")
