"""`hbatune forecast`: changes of this host's storage by a kernel upgrade, before the reboot."""

import argparse

from hbatune.cli import arguments
from hbatune.cli.command_context import make_context
from hbatune.errors import ExitCode
from hbatune.operations.forecast import forecast_host
from hbatune.text.basic_output import add_pager
from hbatune.text.forecast_table import make_forecast_document, show_forecast
from hbatune.text.terminal import show_json

SUMMARY = "show the changes of this host's storage by another kernel"
GROUP = "look"
EXAMPLES = (
    ("hbatune forecast --kernel 7.3", "this host, before the upgrade"),
    ("hbatune forecast --kernel 7.3 --snapshot db1.snap", "another host, from its snapshot"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `forecast`."""
    purpose = "the kernel to boot, as 7.3 or 7.3.4+deb13-amd64; an older one works, too"
    parser.add_argument("--kernel", metavar="VERSION", required=True, help=purpose)
    arguments.add_snapshot(parser)
    arguments.add_json(parser)
    add_pager(parser)


def run(args: argparse.Namespace) -> int:
    """Print the changes; exit 1 if there are any."""
    forecast = forecast_host(make_context(), args.kernel, args.snapshot)
    if args.json:
        show_json(make_forecast_document(forecast))
    else:
        show_forecast(forecast)
    return ExitCode.FOUND if forecast.changes else 0
