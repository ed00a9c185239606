"""Real commands and the daemon's passes on a journal that is missing, older or damaged."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hosts.machines import build_many_luns
from tests.hosts.namespace import OWN_CONFIGURATION, run
from tests.hosts.tree import Described

Built = Callable[[Described], Path]

_SCRIPT = """
exec 2>&1
set -e
cd "$CHECKOUT"
mkdir -p /etc/hbatune
printf 'profile = "oltp"\\n[act]\\nmemory_share = 1.0\\n' > /etc/hbatune/hbatune.toml
state=/var/lib/hbatune
hbatune() { code=0; "$PYTHON" -m hbatune "$@" || code=$?; echo "$1: exit $code"; }
values() {
    for disk in sda sdb sdc; do
        printf '%s ' "$(cat /sys/class/block/$disk/queue/nr_requests)"
    done
    echo
}
apply() { hbatune apply --profile oltp --no-probe "$@" > /run/applied; tail -n 1 /run/applied; }
# As many digits as the profile's value: a plain file is not cut by a write.
for disk in sda sdb sdc; do echo 1024 > /sys/class/block/$disk/queue/nr_requests; done
"""

_PASSES = """
import os, sys
from msgspec.structs import replace
from pathlib import Path
from hbatune.agent import orders, work
from hbatune.agent.child import Server
from hbatune.agent.events import DeviceEvent
from hbatune.agent.orders import Order, PassReason
from hbatune.facts.machine import gather_machine
from hbatune.policy.config import load_configuration
from hbatune.policy.vendors import load_chosen_profile
from tests.bench.events import request_pass

config = load_configuration()
profile = load_chosen_profile(None, config)
passes = work.PassMaker(config, profile)
server = Server(passes.make, on_idle=passes.rest)

def event(name):
    return request_pass(server, Order(PassReason.EVENT, (DeviceEvent(name),)))[0]

settings = {rule.setting for rule in profile.rules}
left = frozenset((each.id, name) for each in gather_machine(()).endpoints for name in settings)
"""

LOGGED = """
request_pass(server, replace(Order(PassReason.START), left=left))  # it looks, and sets nothing
for name in ("sda", "sdb", "sdc"):
    event(name)
server.kill()
"""

VANISHES = """
import hbatune.agent.orders, tests.bench.events as events
request_pass(server, Order(PassReason.START))
Path("/var/lib/hbatune/journal.json").unlink()
Path("/sys/class/block/sdb/queue/nr_requests").write_text("1000")
server.ask(orders.encode(Order(PassReason.EVENT, (DeviceEvent("sdb"),))))
sent = None
while sent is None:
    events.select.select([server], [], [])
    sent = server.read()
print("daemon:", events.decode_report(sent).error)
server.kill()
"""


def run_script(root: Path, script: str) -> str:
    words = ["env", f"PYTHON={sys.executable}", "sh", "-c", _SCRIPT + script]
    return run(root, [*OWN_CONFIGURATION, *words]).decode()


def passes(script: str) -> str:
    return f'"$PYTHON" - <<END\n{_PASSES}{script}\nEND\n'


def codes(output: str) -> list[str]:
    return re.findall(r"^\w+: exit \d+$", output, re.MULTILINE)


@pytest.fixture
def root(built: Built) -> Path:
    return built(build_many_luns(3, 1))


def test_missing_journal_reported_once(root: Path) -> None:
    output = run_script(
        root,
        "apply; rm -r $state; apply --allow-reset; cat /run/applied; hbatune rollback; values\n"
        "hbatune rollback; apply",
    )
    assert codes(output) == [
        *("apply: exit 0", "apply: exit 1", "apply: exit 1"),
        *("rollback: exit 1", "rollback: exit 0", "apply: exit 0"),
    ]
    assert output.count("the journal /var/lib/hbatune/journal.json is missing") == 2
    assert "No values could be restored: their original values are lost." in output


def test_older_journal_restores_partially(root: Path) -> None:
    output = run_script(
        root,
        "apply sda; cp -a $state /run/backup; apply; rm -r $state; cp -a /run/backup $state\n"
        "values; hbatune rollback --dry-run --json; hbatune rollback; values",
    )
    rollbacks = ["rollback: exit 0", "rollback: exit 1"]
    assert codes(output) == ["apply: exit 0", "apply: exit 0", *rollbacks]
    assert '"losses":[{"kind":"older"' in re.sub(r"\s", "", output)
    assert "journal.json is older than the last one of this boot" in output
    assert re.findall(r"^[\d ]+$", output, re.MULTILINE) == ["2048 2048 2048 ", "1024 2048 2048 "]


def test_torn_line_costs_one_disk(root: Path) -> None:
    output = run_script(
        root,
        passes(LOGGED) + "grep -n . $state/journal.log | cut -c1-1 | tr -d '\\n'; echo; values\n"
        'line=$(grep -n \'"target":"sdb"\' $state/journal.log | head -n 1 | cut -d: -f1)\n'
        'sed -i "${line}s/.\\{60\\}$//" $state/journal.log; echo "line $line"\n'
        "hbatune rollback; values; hbatune rollback; hbatune uninstall; ls /var/lib",
    )
    [line] = re.findall(r"^line (\d+)$", output, re.MULTILINE)
    assert f"/var/lib/hbatune/journal.log: line {line} is damaged (sdb " in output
    assert "move it aside" not in output
    assert codes(output) == ["rollback: exit 1", "rollback: exit 0", "uninstall: exit 0"]
    assert re.findall(r"^[\d ]+ $", output, re.MULTILINE) == ["2048 2048 2048 ", "1024 2048 1024 "]


def test_broken_character_costs_one_value(root: Path) -> None:
    output = run_script(
        root,
        "apply\n"
        'line=$(grep -n \'"sdb".*"nr_requests"\' $state/journal.json | cut -d: -f1)\n'
        'sed -i "${line}s/before/befo}e/" $state/journal.json; echo "line $line"\n'
        "apply; hbatune status > /dev/null; hbatune uninstall; values\n"
        "ls $state/journal.json.damaged-1; hbatune uninstall; ls /var/lib",
    )
    [line] = re.findall(r"^line (\d+)$", output, re.MULTILINE)
    assert f"/var/lib/hbatune/journal.json: line {line} is damaged (sdb nr_requests)" in output
    assert codes(output) == [
        *("apply: exit 0", "apply: exit 1", "uninstall: exit 1", "uninstall: exit 0"),
    ]
    assert re.findall(r"^[\d ]+ $", output, re.MULTILINE) == ["1024 2048 1024 "]
    assert output.endswith("remains here; the package stays.\nuninstall: exit 0\n")


def test_daemon_reports_vanished_journal(root: Path) -> None:
    output = run_script(root, passes(VANISHES) + "values; hbatune rollback; values")
    assert "daemon: the journal /var/lib/hbatune/journal.json is missing: the daemon has" in output
    assert codes(output) == ["rollback: exit 0"]
    assert re.findall(r"^[\d ]+ $", output, re.MULTILINE) == ["2048 2048 2048 ", "1024 1024 1024 "]
