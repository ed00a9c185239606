"""Every command that an output recommends runs in the state in which it is printed.

The commands that only look leave no file behind. A recommended command that only looks runs as it
is printed. A command that changes something runs with --dry-run. Neither may end as bad usage, at
the lock, or with an internal error.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from tests.hosts import fabrics, interrupts
from tests.hosts.machines import build_many_luns
from tests.hosts.namespace import OWN_CONFIGURATION, run
from tests.hosts.tree import Described

LOOKS = (
    *("list", "diff", "diff --profile oltp", "check", "check --profile oltp", "explain {target}"),
    *("explain {target} nr_requests", "profiles", "profiles oltp", "status", "probe"),
    *("config show", "config show --all", "config check"),
    *("watch --count 1 --interval 0.1", "history", "rollback --dry-run", "uninstall --dry-run"),
    *("apply --profile oltp --dry-run", "size --iops 200k", "size --iops 900m"),
)
"""The commands whose outputs are searched for recommended commands."""

STATES = {
    "not set up": (),
    "applied": ("apply --profile oltp --no-probe {target}",),
    "drifted": (
        "apply --profile oltp --no-probe",
        "echo 100 > /sys/class/block/sda/queue/nr_requests",
    ),
    "rolled back": ("apply --profile oltp --no-probe {target}", "rollback"),
}
"""The commands that bring a new host into a state; values of plain files can be refused."""

HOSTS: dict[str, tuple[Callable[[], Described], str]] = {
    "two nodes": (interrupts.two_nodes, "irq50"),
    "fabric": (fabrics.lpfc, "sda"),
    "two LUNs": (partial(build_many_luns, 2, adapters=1), "sda"),
}
# The described nr_requests does not follow the scheduler, so a rollback cannot restore it.
HEADLINES = {
    ("two nodes", "drifted"): "has drifted: profile oltp, 11 of 12 settings as wanted",
    ("two LUNs", "drifted"): "has drifted: profile oltp, 4 of 5 settings as wanted",
    ("two LUNs", "rolled back"): "is not rolled back completely: 1 original value not restored yet",
}
"""The end of the first line of `status`, for states that need a proof."""
FAILED = {2, 3, 70, 127}
"""Exit codes of bad usage, a lock, an internal error and a missing command."""

_DRIVER = """
import json, os, sys
from pathlib import Path

def list_files():
    tops = ("/etc", "/run", "/var/lib")
    files = [(f"{at}/{name}") for top in tops for at, _, names in os.walk(top) for name in names]
    return sorted((path, os.lstat(path).st_mtime_ns) for path in files)

sys.path[:0] = [sys.argv[1]]
from tests.hosts.forked import run_forked
from tests.hosts.test_remedies import find_runnable
states, looks = json.load(sys.stdin)
printed = {}
for before in states:
    if before.startswith("echo "):
        _, text, _, path = before.split()
        Path(path).write_text(text)
    else:
        printed[before] = run_forked(before.split())
files = list_files()
# No later command changes the machine, so each of them runs once.
looked = {}

def look_once(words):
    key = tuple(words)
    if key not in looked:
        looked[key] = run_forked(words)
    return looked[key]

for look in looks:
    printed[look] = look_once(look.split())
done = {}
for look, (code, out, err) in printed.items():
    remedies = [[words, *look_once(words)] for words in find_runnable(out + err)]
    done[look] = [code, out, remedies]
print(json.dumps([done, list_files() == files]))
"""

_COMMAND = re.compile(
    r"`(?:sudo )?hbatune (?P<quoted>[^`]+)`"
    r"|(?:with|run) (?:sudo )?hbatune (?P<named>\w+)"
    r"|^ *(?:Next|Undo)? {2,}(?:sudo )?hbatune (?P<listed>\S+(?: \S+)*)",
    re.MULTILINE,
)
_LOOKING = {
    *("audit", "check", "compare", "config", "diff", "explain", "forecast", "help", "history"),
    *("list", "profiles", "size", "status"),
}
_CHANGING = {"apply", "rollback", "uninstall"}
"""Commands with --dry-run. That of `install` needs systemd's and udev's own programs."""


def find_runnable(text: str) -> Iterator[list[str]]:
    """Yield the words of the commands in a text that can run here and change nothing."""
    commands = ["".join(filter(None, match.groups())) for match in _COMMAND.finditer(text)]
    for command in dict.fromkeys(commands):
        words = command.split()
        if {"-H", "--host"} & set(words) or any(word.isupper() for word in words):
            continue  # it is for another host, or an example with a name to fill in
        if words[0] in _CHANGING:
            yield [*words, *(() if "--dry-run" in words else ("--dry-run",))]
        elif words[0] == "watch":
            yield [*words, "--count", "1", "--interval", "0.1"]
        elif words[0] in _LOOKING:
            yield words


CASES = [
    *product(("two nodes", "fabric"), ("not set up", "applied", "rolled back")),
    *(("two nodes", "drifted"), ("two LUNs", "drifted"), ("two LUNs", "rolled back")),
]
"""Hosts and states. Two LUNs are for a rollback that restores only some values."""


@pytest.mark.parametrize(("host", "state"), CASES)
def test_recommended_commands_run(
    built: Callable[[Described], Path], host: str, state: str
) -> None:
    build, target = HOSTS[host]
    texts = [[text.format(target=target) for text in texts] for texts in (STATES[state], LOOKS)]
    script = 'given=$1; shift; printf %s "$given" | "$@"'
    words = [*OWN_CONFIGURATION, "sh", "-c", script, "sh", json.dumps(texts)]
    checkout = str(Path(__file__).parents[2])
    printed = run(built(build()), [*words, sys.executable, "-c", _DRIVER, checkout])
    looks, is_unchanged = json.loads(printed)
    assert is_unchanged, "a command that only looks wrote a file"
    failed, recommended = [], {}
    for look, (_, _, remedies) in looks.items():
        recommended[look] = [" ".join(remedy[0]) for remedy in remedies]
        for command, code, _, problem in remedies:
            if code in FAILED:
                failed.append((look, " ".join(command), problem))
    assert failed == []
    headline = looks["status"][1].partition("\n")[0]
    assert headline.endswith(HEADLINES.get((host, state), "")), headline
    if state == "not set up":
        assert recommended[f"explain {target}"] == [f"explain {target} --profile balanced"]
    if host == "two nodes" and state != "applied":
        assert recommended["check"] == ["apply --profile oltp 0000:01:00.0 --dry-run"]


_COPIED_RULE = r"""
import json, re, subprocess, sys
from pathlib import Path
HBATUNE = [sys.executable, "-c", "import sys; from hbatune.cli import main; sys.exit(main())"]

def document(*words):
    return json.loads(subprocess.run([*HBATUNE, *words, "--json"], stdout=subprocess.PIPE).stdout)

host = Path("/sys/class/scsi_host/host0")
for name, text in {"zio": "Mode 6", "zio_timer": "900 us"}.items():
    (host / name).chmod(0o644)
    (host / name).write_text(text)
findings = document("check")["findings"]
[advice] = [entry["advice"] for entry in findings if entry["id"] == "coalescing-on"]
keys = re.findall(r"(\w+ = (?:\d+|\"[^\"]*\"))", advice)
Path("/etc/hbatune/rules.d").mkdir(parents=True)
Path("/etc/hbatune/rules.d/copied.toml").write_text("[[rule]]\n" + "\n".join(keys))
rows = document("apply", "--profile", "oltp", "--dry-run", "--allow-reset")["rows"]
print(json.dumps([row for row in rows if row["setting"] == "zio"]))
"""


def test_copied_coalescing_rule_works(built: Callable[[Described], Path]) -> None:
    command = [*OWN_CONFIGURATION, sys.executable, "-c", _COPIED_RULE]
    [row] = json.loads(run(built(fabrics.qla2xxx()), command))
    assert (row["target"], row["state"], row["value"]) == ("host0", "drift", 0)


DAMAGES = {
    "unknown key": ("hbatune.toml", '# ours\nprofil = "oltp"\n'),
    "unknown profile": ("hbatune.toml", '# ours\nprofile = "oltpp"\n'),
    "unknown use": ("hbatune.toml", 'profile = "oltp"\nsite.uses.oracle = ["sda"]\n'),
    "no TOML": ("hbatune.toml", 'profile = "oltp"\n[site\n'),
    "invalid rule": (
        "rules.d/10.toml",
        "[[rule]]\nsetting = 'nr_request'\nname = 'x'\nbecause = 'x'\nsource = 'site'\n",
    ),
}
"""A file of the configuration, and its contents; the error is in the second line."""

_DAMAGED = r"""
import json, sys
from pathlib import Path
sys.path[:0] = [sys.argv[1]]
from tests.hosts.forked import run_forked
[damages, looks] = json.load(sys.stdin)
answers = {}
for damage, (file, text) in damages.items():
    path = Path("/etc/hbatune", file)
    path.parent.mkdir(parents=True, exist_ok=True)
    Path("/etc/hbatune/hbatune.toml").write_text('profile = "oltp"\n')
    path.write_text(text)
    for look in looks:
        code, out, err = run_forked(look.split())
        answers[f"{damage}: {look}"] = [code, out + err]
    path.unlink()
print(json.dumps(answers))
"""


def test_damaged_configuration_names_a_working_remedy(built: Callable[[Described], Path]) -> None:
    looks = ("diff", "apply", "check", "explain sda", "status")
    given = json.dumps([DAMAGES, [*looks, "config check"]])
    script = 'given=$1; shift; printf %s "$given" | "$@"'
    checkout = str(Path(__file__).parents[2])
    driver = [sys.executable, "-c", _DAMAGED, checkout]
    words = [*OWN_CONFIGURATION, "sh", "-c", script, "sh", given, *driver]
    answers = json.loads(run(built(fabrics.lpfc()), words))
    for damage, (file, _) in DAMAGES.items():
        for look in looks:
            code, printed = answers[f"{damage}: {look}"]
            text = " ".join(printed.split())
            assert code == (1 if look == "status" else 2), (damage, look, text)
            assert f"/etc/hbatune/{file}: line " in text, (damage, look)
            assert "hbatune config check" in text, (damage, look)
        code, printed = answers[f"{damage}: config check"]
        assert code == 2, (damage, printed)
        assert f"/etc/hbatune/{file}:2: " in printed, (damage, printed)
