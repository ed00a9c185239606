"""What a command imports: a budget of modules for each, beside what it must never load."""

import subprocess
import sys
from pathlib import Path

import pytest

from hbatune.agent import status
from hbatune.cli import COMMANDS
from hbatune.cli.command import NO_OPTIONS
from hbatune.cli.parser import make_parser
from tests.unit.statuses import good_status

OWN = {
    "apply": 114,
    "audit": 145,
    "autotune": 143,
    "check": 125,
    "compare": 145,
    "daemon": 155,
    "diff": 86,
    "explain": 90,
    "help": 13,
    "history": 120,
    "install": 119,
    "list": 90,
    "probe": 132,
    "profiles": 55,
    "report": 135,
    "rollback": 116,
    "size": 100,
    "snapshot": 115,
    "status": 13,
    "uninstall": 118,
    "watch": 110,
}
"""hbatune's own modules at most, the families of adapters left out."""

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

LOOKING = ("diff", "list", "profiles", "status", "explain")
HEAVY = {
    *("difflib", "hashlib", "jinja2", "json", "pkgutil", "pyudev", "random", "rich", "socket"),
    *("statistics", "subprocess", "tempfile", "tomlkit"),
    *("locale", "pickle", "shlex", "shutil"),
}
"""Modules that no command which only looks has a use for."""

NOT_FOR_STATUS = {"argparse", "msgspec", "typing"}
"""Modules that a monitoring agent's question has no use for."""

UNUSED = {"difflib", "jinja2", "pkgutil", "tempfile", "tomlkit"}
"""Those that a daemon has no use for as it starts."""

_RUN = """
import sys
before = set(sys.modules)
import contextlib, io
from hbatune.cli import main
out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
    with contextlib.suppress(SystemExit):
        main(sys.argv[1:])
print(*sorted(set(sys.modules) - before))
"""


def imported(command: str) -> set[str]:
    """Return the modules that a command brings with it, itself among them."""
    words = (command, *RUN.get(command, ("--help",)))
    done = subprocess.run(
        # Isolated: what an environment adds to each start is not the command's.
        [sys.executable, "-I", "-c", _RUN, *words],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def test_every_command_has_budget() -> None:
    assert set(OWN) == set(COMMANDS)


@pytest.mark.parametrize("command", OWN)
def test_command_obeys_import_budget(command: str) -> None:
    found = imported(command)
    own = {each for each in found if each.split(".")[0] == "hbatune" and FAMILIES not in each}
    assert f"hbatune.cli.commands.{command}" in own
    assert len(own) <= OWN[command], sorted(own)
    if command in LOOKING:
        assert not found & HEAVY
    if command == "apply":
        assert not found & MEASURING
    if command == "daemon":
        assert not found & UNUSED
    if command == "status":
        assert not found & NOT_FOR_STATUS


@pytest.mark.parametrize("command", ["status", "daemon"])
def test_bare_command_needs_no_parser(command: str) -> None:
    parser, module = make_parser([command])
    assert module is not None
    assert vars(parser.parse_args([command])) == {**NO_OPTIONS, **module.NO_ARGUMENTS}


def test_good_status_imports_few_modules(tmp_path: Path) -> None:
    file = tmp_path / "status.json"
    status.save(file, good_status())
    words = f"""
import sys
from hbatune.act import paths
paths.STATUS, paths.HISTORY = paths.Path({str(file)!r}), paths.Path("/nowhere")
from hbatune.cli import main
assert main(["status"]) == 0
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-I", "-c", words], stdout=subprocess.PIPE, check=True)
    told, found = done.stdout.decode().rsplit("\n", 2)[:2]
    assert "12 endpoints" in told
    own = {each for each in found.split() if each.split(".")[0] == "hbatune"}
    assert len(own) <= OWN["status"] + 4, sorted(own)
    assert not set(found.split()) & NOT_FOR_STATUS


def test_status_lines_import_no_planning() -> None:
    words = "import sys, hbatune.agent.status, hbatune.text.status_lines; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", words], stdout=subprocess.PIPE, check=True)
    found = set(done.stdout.decode().split())
    own = {each for each in found if each.startswith("hbatune.") and FAMILIES not in each}
    assert len(own) <= 65, sorted(own)
    rooms = ("operations", "probe.history", "plan.make", "act.journal", "facts.machine")
    assert not found & {f"hbatune.{room}" for room in rooms}


IMPORTED = "import sys; print(*sorted(each for each in sys.modules if each.startswith('hbatune')))"


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
    commands = {each for each in imported_by("diff", "--help") if "cli.commands." in each}
    assert commands == {"hbatune.cli.commands.diff"}
