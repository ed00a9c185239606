"""What the pages tell a reader to do, done on a described machine, comes out as they say."""

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.hosts import hbas, interrupts
from tests.hosts.namespace import OWN_CONFIGURATION, run
from tests.hosts.tree import Described
from tests.pages import DOCS, README, commands, steps

Build = Callable[[Described], Path]

NOT_HERE = {"probe", "autotune", "watch", "install", "uninstall", "daemon", "report", "forecast"}
"""Commands that measure, go on for ever, are systemd's and udev's business, or need a kernel that
the forecast covers: a described machine has this machine's kernel."""

_THERE = {"sdh": "sdd"}
"""A disk that stands for the demo's."""

_MEASURING = ("--verify", "--watch", "load.json", "--trace", "db.trace")
"""Words about a measurement, which no described machine can do."""

READ_AHEAD = "/sys/class/block/sdd/queue/read_ahead_kb"
INTERRUPT = "/proc/irq/50/smp_affinity_list"

_DRIVER = """
import json, subprocess, sys
from pathlib import Path

HBATUNE = [sys.executable, "-c", "import sys; from hbatune.cli import main; sys.exit(main())"]
Path("/etc/hbatune/rules.d").mkdir(parents=True)
Path("/run/there").mkdir()
done = []
for kind, what in json.load(sys.stdin):
    if kind == "toml":
        Path("/etc/hbatune/rules.d/backup.toml").write_text(what)
        continue
    ran = subprocess.run([*HBATUNE, *what], capture_output=True, text=True, cwd="/run/there")
    values = {
        path: Path(path).read_text().strip() for path in sys.argv[1:] if Path(path).exists()
    }
    done.append((what, ran.returncode, ran.stdout, ran.stderr, values))
print(json.dumps(done))
"""


@dataclass(frozen=True)
class Ran:
    """A command, what came of it, and the values of the examples after it, by their files."""

    words: list[str]
    code: int
    out: str
    err: str
    values: dict[str, str]


def do(root: Path, todo: Sequence[tuple[str, object]]) -> list[Ran]:
    """Do this on the machine below ``root``; nothing can be measured on a described one."""
    script = 'todo=$1; shift; printf %s "$todo" | "$@"'
    words = [*OWN_CONFIGURATION, "sh", "-c", script, "sh", json.dumps(todo)]
    driver = [sys.executable, "-c", _DRIVER, READ_AHEAD, INTERRUPT]
    return [Ran(*load) for load in json.loads(run(root, [*words, *driver]))]


def unmeasured(words: list[str]) -> list[str]:
    """Return the command as it can be run where there is no I/O, on a disk that is there."""
    words = [_THERE.get(word, word) for word in words]
    if words[0] == "apply" and "--dry-run" not in words:
        return [*(word for word in words if word not in _MEASURING), "--no-probe"]
    return words


def test_first_rule_example_works(built: Build) -> None:
    page = DOCS / "write-your-first-rule.md"
    todo: list[tuple[str, object]] = []
    for kind, text in steps(page):
        if len([step for step in todo if step[0] == "toml"]) == 1 and kind == "toml":
            break  # the other files of the page are for other machines
        words = text.split()[1:]
        todo.append((kind, text if kind == "toml" else unmeasured(words)))
    before, original, planned, explained, applied, back = do(built(hbas.mpt3sas()), todo)
    assert (before.code, original.code) == (0, 0), before.err + original.err
    assert "volume" in before.out
    assert "512" not in original.out
    assert planned.code == 1, planned.err
    assert "the backup reads whole files in order" in " ".join(planned.out.split())
    [deciding] = [line for line in explained.out.splitlines() if line.startswith("decides")]
    assert "512" in deciding
    assert "read-ahead-for-backup" in explained.out
    assert applied.code == 0, applied.err
    assert applied.values[READ_AHEAD] == "512"
    # Its exit code says nothing here: a file that is no kernel's keeps the tail of a longer value.
    assert back.values[READ_AHEAD] == original.values[READ_AHEAD] == "128"


def test_undo_page_reports_success(built: Build) -> None:
    apply = ["apply", "--profile", "oltp", "--no-probe", "irq50", "irq60"]
    todo = (apply, *commands(DOCS / "undo.md"))
    applied, back, after, *_ = do(
        built(interrupts.two_nodes()), [("run", command) for command in todo]
    )
    assert (applied.code, back.code) == (0, 0), applied.err + back.err
    assert (applied.values[INTERRUPT], back.values[INTERRUPT]) == ("0", "5")
    assert re.search(r"^All \d+ values restored\.$", back.out, re.M)
    assert after.code == 1
    assert "irq50" in after.out, "it differs from the profile again"


@pytest.mark.parametrize("page", [README, *sorted(DOCS.glob("*.md"))], ids=lambda page: page.name)
def test_page_commands_run(built: Build, page: Path) -> None:
    todo = [
        ("run", unmeasured(words))
        for words in commands(page)
        if words[0] not in NOT_HERE and not {"--root", "-H"} & {*words}
    ]
    if not todo:
        pytest.skip("it has none that a described machine can run")
    for ran in do(built(hbas.mpt3sas()), todo):
        assert ran.code in (0, 1, 4), f"{ran.words}: {ran.err}"
        assert "Traceback" not in ran.err, ran.words
