"""What a person types: one module per command. Text for people and exit codes are made here only.

A command module has ``SUMMARY``, ``add_arguments(parser)`` and ``run(args) -> int``. It is
imported when it is called, so that ``hbatune --version`` costs next to nothing.
"""

import sys
from collections.abc import Sequence

from hbatune import __version__
from hbatune.cli.streams import open_standard_streams

COMMANDS = {
    "list": "the adapters and endpoints of this machine",
    "profiles": "the profiles, or the rules of one with their sources",
    "explain": "why a setting of a target would be what it is",
    "diff": "what differs from a profile",
    "check": "what to look at: links, interrupts, limits, errors, versions",
    "snapshot": "write all facts of this host to one file, for others to look at",
    "apply": "make it so, with a short probe before and after",
    "probe": "run a workload that only reads, and show what was measured",
    "history": "what was measured, run against run, and what is stale by now",
    "report": "write one page with what was changed, what it did, and the pictures of it",
    "daemon": "keep it so: what appears is tuned, what drifts is put right",
    "status": "how the daemon is doing",
    "watch": "what storage does now: latency, load, errors, alerts",
    "rollback": "put everything back as it was before the first apply",
    "install": "keep a profile from boot on: udev rules and a daemon",
    "uninstall": "take away what install and apply have made",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    open_standard_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments in (["--version"], ["-V"]):
        print(f"hbatune {__version__}")
        return 0
    from hbatune.cli.command import run

    return run(arguments)
