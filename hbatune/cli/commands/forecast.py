"""`hbatune forecast`: changes of this host's storage by a kernel upgrade, before the reboot."""

import argparse
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import asdict

from hbatune.cli import arguments
from hbatune.errors import ExitCode
from hbatune.operations.snapshot import Forecast, forecast_host
from hbatune.plan.kernel_changes import ChangeKind, KernelChange
from hbatune.settings.setting import Value
from hbatune.shipped import load_texts
from hbatune.text.basic_output import format_count
from hbatune.text.leftovers import print_leftovers
from hbatune.text.plan_tables import fold_names, fold_rows, format_value
from hbatune.text.tables import Table, load_columns
from hbatune.text.terminal import print_line, show_json, show_table


class ForecastRow(Struct, frozen=True):
    """One value that the other kernel changes; null if a kernel does not have it."""

    target: str
    id: str
    attribute: str
    now: Value | None
    then: Value | None
    effect: str


class ForecastDocument(Struct, frozen=True, kw_only=True):
    """The JSON document of `forecast`.

    ``then`` is the series of the other kernel, ``installed`` its release on this host if its
    modules were read.
    """

    schema: str = "hbatune.forecast/1"
    hostname: str
    kernel: str
    then: str
    installed: str | None
    rows: tuple[ForecastRow, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `forecast`."""
    parser.add_argument("--kernel", metavar="VERSION", required=True)
    arguments.add_options(parser, "--snapshot", "--json", "--no-pager")


def run(args: argparse.Namespace) -> int:
    """Print the changes; exit 1 if there are any."""
    forecast = forecast_host(print_leftovers, args.kernel, args.snapshot)
    rows = tuple(map(_make_row, forecast.changes))
    if args.json:
        fields = asdict(forecast)
        del fields["changes"]  # the rows have them as text
        show_json(ForecastDocument(**fields, rows=rows))
    else:
        _show_forecast(forecast, rows)
    return ExitCode.FOUND if forecast.changes else 0


def _make_row(change: KernelChange) -> ForecastRow:
    kind = "removed" if change.kind is ChangeKind.OPTION and change.then is None else change.kind
    effects = load_texts("messages.toml")["kernel_change"]
    values = (change.target, change.id, change.attribute, change.now, change.then)
    return ForecastRow(*values, effects.get(kind) or effects.get(change.attribute, ""))


def _show_forecast(forecast: Forecast, rows: tuple[ForecastRow, ...]) -> None:
    """Print the changes; equal changes of many disks share one row."""
    kernels = f"from {forecast.kernel} to {forecast.then}"
    if not rows:
        print_line(f"No changes of {forecast.hostname}'s storage {kernels}.")
        return
    table = Table(load_columns("forecast"))
    for targets, row in fold_rows(rows, attrgetter("attribute", "now", "then", "effect")):
        values = [format_value(row.now), format_value(row.then)]
        table.rows.append([fold_names(targets), row.attribute, *values, row.effect])
    show_table(table)
    print_line()
    targets_text = format_count(len({row.target for row in rows}), "target")
    print_line(f"{format_count(len(table.rows), 'change')} of {targets_text} {kernels}.")
    if forecast.installed is not None:
        print_line(f"Drivers and options come from the installed kernel {forecast.installed}.")
    if all(change.kind is ChangeKind.DEFAULT for change in forecast.changes):
        print_line("Only defaults change. hbatune sets the values of an active profile again.")
