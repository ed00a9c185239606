"""The end of the demo: what it has shown, what it has not, and what to do next."""

import re
import shlex
import subprocess
from pathlib import Path

from hbatune.cli.parser import make_full_parser

DEMO = Path(__file__).parents[2] / "lab/demo.sh"
TEXT = DEMO.read_text(encoding="utf-8")
HEADING = re.compile(r"^heading '(.*)'$", re.M)


def test_demo_ends_with_honest_summary() -> None:
    *_, last = HEADING.finditer(TEXT)
    assert last[1] == "What this has shown"
    # The functions of the script stand before its first command.
    functions, _, _ = TEXT.partition("\nmkdir ")
    command = ["bash", "-euc", f"{functions}\n{TEXT[last.start() :]}"]
    summary = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert summary.index("What this has shown") < summary.index("Shown, on a real kernel")
    limits = re.search(r"^Not shown: (.+)$", summary, re.M)
    assert limits, "it says what it has not shown"
    assert "your own disks" in limits[1]
    assert re.search(r"^ +hbatune status ", summary.partition("Next, ")[2], re.M)


def test_commands_of_demo_parse() -> None:
    commands = re.findall(r"^(?:run \d | {4})(hbatune .*)$", TEXT, re.M)
    assert len(commands) > 5
    for command in commands:
        words = shlex.split(command.replace("$disk", "sda"), comments=True)
        make_full_parser().parse_args(words[1:])
