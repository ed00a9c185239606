"""The imports of a command: a budget of lines for each, and modules that it must never load."""

import importlib.util
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from hbatune.agent import status
from hbatune.cli import COMMANDS
from hbatune.cli.command import NO_OPTIONS
from hbatune.cli.parser import make_parser
from tests.unit.statuses import good_status

MAX_LINES = {
    "apply": 21600,
    "audit": 23950,
    "autotune": 28050,
    "capture": 20900,
    "check": 20700,
    "compare": 23900,
    "config": 14900,
    "daemon": 15100,
    "diff": 17400,
    "explain": 18000,
    "forecast": 18900,
    "help": 1400,
    "history": 19400,
    "install": 23000,
    "list": 17700,
    "probe": 26200,
    "profiles": 9650,
    "report": 26500,
    "rollback": 21500,
    "size": 15100,
    "snapshot": 18600,
    "status": 20700,
    "uninstall": 23000,
    "watch": 19450,
    "why": 21600,
}
"""Lines of hbatune's own modules at most, without the families of adapters."""

FAMILIES = "hbatune.facts.families."
MEASURING = {"random", "statistics", "subprocess", "hbatune.operations.verify", "hbatune.probe.run"}
"""Modules that an apply without probes has no use for."""

RUN = {
    "diff": ("--profile", "oltp", "--json"),
    "list": (),
    "profiles": (),
    "status": (),
    "explain": ("--profile", "oltp"),
}
"""What is run; of the other commands only the help, which imports the command's module."""

LOOKING = ("diff", "list", "profiles", "explain")
HEAVY = {
    *("difflib", "hashlib", "jinja2", "json", "pkgutil", "pyudev", "random", "rich", "socket"),
    *("statistics", "subprocess", "tempfile", "tomlkit"),
    *("locale", "pickle", "shlex", "shutil"),
}
"""Modules that no command which only looks has a use for."""

FOR_STATUS = {"random", "socket", "statistics"}
"""Modules of the history of verdicts and of the daemon's events, which `status` shows."""

NOT_FOR_STATUS = {
    *("configparser", "shutil", "statistics", "hbatune.agent.orders", "hbatune.operations.context"),
    *("hbatune.probe.history", "hbatune.text.notes"),
}
"""Modules of the verdicts, the daemon and tuned, which a host without them does not import."""

NOT_FOR_DIFF = {"copy", "hbatune.facts.health"}
"""Modules of half a millisecond each, which a diff on a host without TuneD does not use."""

UNUSED = {"difflib", "jinja2", "pkgutil", "tempfile", "tomlkit"}
"""Those that a daemon has no use for as it starts."""

_BEFORE = """
import sys
before = set(sys.modules)
"""
_WITHOUT_TUNED = """
from pathlib import Path
from hbatune.facts import services
services.TUNED_PROFILE = Path("/nonexistent")
"""
"""A diff imports this module in any case, and others only for a profile of TuneD."""
_RUN = """
import contextlib, io
from hbatune.cli import main
out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
    with contextlib.suppress(SystemExit):
        main(sys.argv[1:])
print(*sorted(set(sys.modules) - before))
"""


def count_lines(modules: Iterable[str]) -> int:
    """Return the lines of hbatune's own modules among ``modules``, without the families."""
    lines = 0
    for name in modules:
        if name.split(".")[0] != "hbatune" or FAMILIES in name:
            continue
        spec = importlib.util.find_spec(name)
        assert spec is not None
        lines += Path(str(spec.origin)).read_text(encoding="utf-8").count("\n")
    return lines


def imported(command: str) -> set[str]:
    """Return the modules that a command brings with it, itself among them."""
    words = (command, *RUN.get(command, ("--help",)))
    program = _BEFORE + (_WITHOUT_TUNED if command == "diff" else "") + _RUN
    done = subprocess.run(
        # Isolated: what an environment adds to each start is not the command's.
        [sys.executable, "-I", "-c", program, *words],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def test_every_command_has_budget() -> None:
    assert set(MAX_LINES) == set(COMMANDS)


@pytest.mark.parametrize("command", MAX_LINES)
def test_command_obeys_import_budget(command: str) -> None:
    imported_modules = imported(command)
    assert f"hbatune.cli.commands.{command}" in imported_modules
    assert count_lines(imported_modules) <= MAX_LINES[command], sorted(imported_modules)
    if command in LOOKING:
        assert not imported_modules & HEAVY
    if command == "apply":
        assert not imported_modules & MEASURING
    if command == "diff":
        assert not imported_modules & NOT_FOR_DIFF
    if command == "status":
        assert not imported_modules & NOT_FOR_STATUS
    if command == "daemon":
        assert not imported_modules & UNUSED


def test_bare_daemon_needs_no_parser() -> None:
    parser, _ = make_parser(["daemon"])
    assert vars(parser.parse_args(["daemon"])) == NO_OPTIONS


def test_good_status_imports_few_modules(tmp_path: Path) -> None:
    file = tmp_path / "status.json"
    status.save(file, good_status())
    words = f"""
import sys
from pathlib import Path
from hbatune.act.paths import Paths
from hbatune.policy import library
Paths.status, Paths.history = Path({str(file)!r}), Path("/nowhere")
library.STORED_RULES = Path("/nowhere")
from hbatune.cli import main
assert main(["status"]) == 0
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-I", "-c", words], stdout=subprocess.PIPE, check=True)
    report, module_line = done.stdout.decode().rsplit("\n", 2)[:2]
    assert "12 endpoints" in report
    assert count_lines(module_line.split()) <= 18400, module_line
    assert not set(module_line.split()) & (HEAVY - FOR_STATUS)
    assert "hbatune.operations.snapshot" not in module_line.split()


def test_status_lines_import_no_planning() -> None:
    words = "import sys, hbatune.agent.status, hbatune.text.status_lines; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", words], stdout=subprocess.PIPE, check=True)
    module_names = set(done.stdout.decode().split())
    assert count_lines(module_names) <= 14200, sorted(module_names)
    rooms = ("operations", "plan.make", "facts.machine")
    assert not module_names & {f"hbatune.{room}" for room in rooms}


IMPORTED = "import sys; print(*sorted(name for name in sys.modules if name.startswith('hbatune')))"


def imported_by(*arguments: str) -> set[str]:
    code = (
        "import atexit; from hbatune.cli import main\n"
        f"atexit.register(lambda: exec({IMPORTED!r}))\n"
        f"main({list(arguments)!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_version_imports_little() -> None:
    cli = {"hbatune.cli", "hbatune.cli.streams", "hbatune.errors"}
    assert imported_by("--version") == {"hbatune", *cli}


def test_command_imports_no_sibling() -> None:
    commands = {module for module in imported_by("diff", "--help") if "cli.commands." in module}
    assert commands == {"hbatune.cli.commands.diff"}
