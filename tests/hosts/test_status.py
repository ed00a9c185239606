"""`status` in the states of a host: with a daemon, without one, and as a user."""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.hosts import fabrics, hbas, interrupts
from tests.hosts.machines import build_many_luns
from tests.hosts.namespace import OWN_CONFIGURATION, run
from tests.hosts.tree import Described, Disk, Mapped

Build = Callable[[Described], Path]
_FROM_KERNEL_LOG = ("medium-errors", "space-errors", "transport-errors", "io-errors")

_DRIVER = """
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.hosts.test_remedies import FAILED, find_runnable

MAIN = [sys.executable, "-c", "import sys; from hbatune.cli import main; sys.exit(main())"]
QUEUE = Path("/sys/class/block/sda/queue")
CONFIGURATION = Path("/etc/hbatune/hbatune.toml")
answers = {}


def hbatune(*words):
    return subprocess.run([*MAIN, *words], capture_output=True, text=True)


def note(name):
    before = sorted(map(str, Path("/var/lib/hbatune").rglob("*")))
    done = hbatune("status", "--json")
    text = hbatune("status")
    assert (done.returncode == text.returncode), (done, text)
    assert before == sorted(map(str, Path("/var/lib/hbatune").rglob("*")))
    document = json.loads(done.stdout or "{}")
    answers[name] = [text.returncode, text.stdout, document, done.stderr]
    for words in find_runnable("\\n".join(f"Next   {command}" for command, _ in document["next"])):
        remedy = hbatune(*words)
        # `config check` exits with 2 for the error that it shows.
        assert remedy.returncode not in FAILED or words == ["config", "check"], (name, remedy)


def until(condition):
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        document = json.loads(hbatune("status", "--json").stdout or "{}")
        if condition(document):
            return


class daemon:
    def __enter__(self):
        self.process = subprocess.Popen([*MAIN, "daemon"], stdout=2)
        until(lambda document: (document.get("status") or {}).get("ready"))

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def configure(text):
    CONFIGURATION.parent.mkdir(exist_ok=True)
    CONFIGURATION.write_text(text)


APPLY = ("apply", "--profile", "oltp", "--no-probe")


%s
print(json.dumps(answers))
"""


def see(root: Path, steps: str) -> dict[str, Any]:
    command = [*OWN_CONFIGURATION, sys.executable, "-c", _DRIVER % steps]
    answers: dict[str, Any] = json.loads(run(root, command, timeout=300))
    return answers


def states(answers: dict[str, Any]) -> dict[str, tuple[str, int]]:
    return {name: (answer[2]["state"], answer[0]) for name, answer in answers.items()}


_WITHOUT_DAEMON = """
note("new")
hbatune(*APPLY)
note("applied")
unused = Path("/etc/hbatune/profiles/unused.toml")
unused.parent.mkdir(parents=True)
unused.write_text("title = 1")
note("invalid profile that is not used")
unused.unlink()
(QUEUE / "nr_requests").write_text("100")
note("drifted")
hbatune(*APPLY)
units = Path("/etc/systemd/system")
units.mkdir(parents=True)
(units / "hbatune.service").touch()
note("stopped")
tool, booted = Path("/run/bin/systemctl"), Path("/run/systemd/system")
tool.parent.mkdir()
booted.mkdir(parents=True)
tool.write_text('#!/bin/sh\\ntest "$*" = "is-failed hbatune.service"\\n')
tool.chmod(0o755)
os.environ["PATH"] = f"/run/bin:{os.environ['PATH']}"
note("failed")
booted.rmdir()
configure('profil = "oltp"')
note("mistake")
configure('profile = "oltp"')
hbatune("rollback")
note("half rolled back")
"""


def test_state_without_daemon(built: Build) -> None:
    answers = see(built(build_many_luns(2, adapters=1)), _WITHOUT_DAEMON)
    assert states(answers) == {
        "new": ("not_set_up", 4),
        "applied": ("applied", 4),
        "invalid profile that is not used": ("applied", 4),
        "drifted": ("drifted", 1),
        "stopped": ("stopped", 4),
        "failed": ("failed", 4),
        "mistake": ("mistake", 1),
        # The described nr_requests does not follow the scheduler, so it cannot be restored.
        "half rolled back": ("half_back", 1),
    }
    texts = {name: " ".join(answer[1].split()) for name, answer in answers.items()}
    assert "2 original values not restored yet" in texts["half rolled back"]
    assert 'unknown key "profil"' in texts["mistake"]
    assert "4 of 5 settings as wanted" in texts["drifted"]
    assert "hbatune install --profile oltp" in texts["applied"]


_LOWERED = """
(QUEUE / "nr_requests").write_text("64")
hbatune(*APPLY)
note("lowered")
with daemon():
    note("lowered, with a daemon")
"""


def test_lowered_value_is_left_alone(built: Build) -> None:
    answers = see(built(build_many_luns(2, adapters=1)), _LOWERED)
    assert states(answers) == {"lowered": ("applied", 4), "lowered, with a daemon": ("tuned", 0)}
    for _, text, document, _ in answers.values():
        assert document["counts"]["excluded"] == 1
        assert "Left alone sda nr_requests 64: below the driver's own 256" in text
        assert text.partition("\n")[0].endswith("4 of 4 settings as wanted, 1 left alone")
        [adapter] = document["adapters"]
        assert adapter["disks"] == {"disk": 2}
        assert f"  Adapter    {adapter['target']}  {adapter['product']}, 2 disks\n" in text


_WITH_DAEMON = """
SITE = '\\n[site]\\nexclude = ["sda", "sdb"]\\n'
configure('profile = "oltp"' + SITE)
with daemon():
    note("tuned")
    hbatune("rollback")
    until(lambda document: document["status"]["rolled_back"])
    note("rolled back")
note("rolled back, without a daemon")
configure('profile = "oltp"\\n[daemon]\\naudit_seconds = 1\\ndrift = "%s"' + SITE)
hbatune(*APPLY)
with daemon():
    Path("/proc/irq/50/smp_affinity_list").write_text("5")
    until(lambda document: document["state"] == "drifted")
    note("drifted")
"""


@pytest.mark.parametrize("drift", ["report", "ignore"])
def test_state_with_daemon(built: Build, drift: str) -> None:
    answers = see(built(interrupts.two_nodes()), _WITH_DAEMON % drift)
    assert states(answers) == {
        "tuned": ("tuned", 0),
        "rolled back": ("rolled_back", 1),
        "rolled back, without a daemon": ("rolled_back", 4),
        "drifted": ("drifted", 1),
    }
    assert "sudo hbatune apply --profile oltp" in answers["rolled back"][1]
    assert answers["tuned"][2]["journal"] == {"values": 6}


_FINDINGS = """
configure('profile = "oltp"\\n[daemon]\\naudit_seconds = 1')
hbatune(*APPLY)
with daemon():
    until(lambda document: document["findings"])
    note("checked")
    Path("/var/lib/hbatune/counters.json").unlink()  # the daemon had no earlier counters
    answers["check"] = json.loads(hbatune("check", "--json").stdout)["findings"]
"""


def test_daemon_counts_findings_of_check(built: Build) -> None:
    answers = see(built(build_many_luns(2, adapters=1)), _FINDINGS)
    code, text, document, _ = answers["checked"]
    severities = [f["severity"] for f in answers["check"] if f["id"] not in _FROM_KERNEL_LOG]
    assert "advice" in severities
    severe = {name: number for name, number in document["findings"].items() if name != "info"}
    assert severe == Counter(name for name in severities if name != "info")
    assert (document["state"], code) == ("findings", 1)
    assert abs(document["checked"] - document["time"]) < 60
    assert re.search(r"Findings advice 1 \(\d+ s ago, without the kernel's", " ".join(text.split()))


_DRIFT = """
hbatune(*APPLY)
for number, name in enumerate("abcdefghij"):
    Path(f"/sys/class/block/sd{name}/queue/nr_requests").write_text(str(100 + number // 2))
note("five values")
for name in "cdefghij":
    Path(f"/sys/class/block/sd{name}/queue/nr_requests").write_text("104")
note("two values")
for number, name in enumerate("abcdefghij"):
    Path(f"/sys/class/block/sd{name}/queue/nr_requests").write_text(str(100 + number))
note("ten values")
"""


def test_drift_is_grouped_by_values(built: Build) -> None:
    answers = see(built(build_many_luns(10, adapters=1)), _DRIFT)
    rows = {name: re.findall(r"sd\S.*→ 2048", answer[1]) for name, answer in answers.items()}
    assert rows["two values"] == [
        "sda sdb  nr_requests  100 → 2048",
        "sdc..sdj (8)  nr_requests  104 → 2048",
    ]
    assert (len(rows["five values"]), len(rows["ten values"])) == (5, 6)
    assert "and 4 more groups: `hbatune diff`" in answers["ten values"][1]
    assert "more groups" not in answers["five values"][1]


_SHARED = """
hbatune("apply", "--profile", "oltp", "--no-probe")
note("applied")
configure('profile = "oltp"')
with daemon():
    note("with a daemon")
"""


def _build_fc_map() -> Described:
    """Build a host with one LUN of an array over two FC paths, joined by a map."""
    machine = fabrics.qla2xxx()
    [function], [host] = machine.functions, machine.functions[0].hosts
    luns = []
    for number, lun in enumerate(host.luns):
        address, port = f"0:0:{number}:0", f"rport-0:0-{number}"
        luns.append(replace(lun, address=address, port=port, wwid="naa.6000"))
    host = replace(host, luns=tuple(luns))
    mapped = (Mapped(Disk("dm-0", tags=2038), "mpath-36000", ("sda", "sdb")),)
    return Described((replace(function, hosts=(host,)),), mapped=mapped)


def test_disks_of_shared_array_are_left_alone(built: Build) -> None:
    answers = see(built(_build_fc_map()), _SHARED)
    assert list(states(answers)) == ["applied", "with a daemon"]
    for _, text, document, _ in answers.values():
        assert "is tuned in part" in document["headline"]
        assert document["headline"].endswith("; 1 disk without a rule")
        assert document["counts"]["unmatched"] == 1, "the map, without its paths"
        assert "Left alone dm-0 sda sdb: only the site knows" in text
        assert "[[site.array]]" in " ".join(text.split())


_AS_USER = """
hbatune(*APPLY)
done = subprocess.run([*MAIN, "status"], capture_output=True, user=65534, extra_groups=[])
answers["user"] = [done.returncode, done.stdout.decode(), done.stderr.decode()]
"""


def test_user_sees_applied_settings(built: Build) -> None:
    root = built(build_many_luns(2, adapters=1))
    root.chmod(0o755)
    code, text, messages = see(root, _AS_USER)["user"]
    assert (code, messages) == (4, "")
    assert "is tuned until the next boot: profile oltp, 5 of 5 settings as wanted" in text


_UPGRADE = """
import shutil

from hbatune.shipped import find_shipped

older = Path("/run/older")
shutil.copytree(find_shipped("rules"), older)
base = older / "base.toml"
base.write_text(base.read_text().replace("value = 2048", "value = 1024"))
code = (
    "import sys; from pathlib import Path; from hbatune.policy import library; "
    "library.find_shipped = lambda name: Path('/run/older'); "
    "from hbatune.cli import main; sys.exit(main())"
)
subprocess.run([sys.executable, "-c", code, *APPLY], capture_output=True, check=True)


def keep(name, *words):
    done = hbatune(*words)
    value = (QUEUE / "nr_requests").read_text().strip()
    answers[name] = [done.returncode, done.stdout, value, done.stderr]


"""
_BEFORE_APPLY = f"""{_UPGRADE}
keep("status", "status")
keep("diff", "diff")
keep("diff by name", "diff", "--profile", "oltp")
keep("check", "check")
keep("dry run", "apply", "--dry-run")
keep("changes", "profiles", "--changes")
"""
_UNTIL_APPLY = f"""{_UPGRADE}
with daemon():
    keep("daemon", "status")
    keep("apply", "apply", "--no-probe")
copy = Path("/var/lib/hbatune/rules/base.toml")
copy.write_text(copy.read_text() + "[")
keep("damaged", "status")
keep("start with damaged copy", "daemon")
keep("apply again", "apply", "--no-probe")
keep("repaired", "diff")
"""
_STORED = "the rules of the last `apply` are in effect; `hbatune profiles --changes` shows"
_CHANGES = "Rules this version's rules change 2 settings; `hbatune profiles --changes` shows them"


def test_commands_after_upgrade_use_rules_of_last_apply(built: Build) -> None:
    answers = see(built(build_many_luns(2, adapters=1)), _BEFORE_APPLY)
    texts = {name: " ".join(answer[1].split()) for name, answer in answers.items()}
    notes = {name: " ".join(answer[3].split()) for name, answer in answers.items()}
    assert {answer[2] for answer in answers.values()} == {"1024"}
    assert _CHANGES in texts["status"]
    assert answers["diff"][0] == 0
    assert _STORED in notes["diff"]
    assert answers["diff by name"][0] == 1
    assert _STORED not in notes["diff by name"]
    assert "1024 2048" in texts["dry run"]
    assert answers["changes"][0] == 1
    assert "Profile oltp: 2 to change," in texts["changes"]
    assert "1024 2048" in texts["changes"]
    assert "oltp" not in texts["check"], "`check` accepts a value of the stored rules"


def test_daemon_follows_rules_of_last_apply_until_next(built: Build) -> None:
    answers = see(built(build_many_luns(2, adapters=1)), _UNTIL_APPLY)
    texts = {name: " ".join(answer[1].split()) for name, answer in answers.items()}
    assert answers["daemon"][2] == "1024"
    assert _CHANGES in texts["daemon"]
    assert (answers["apply"][0], answers["apply"][2]) == (0, "2048")
    damaged = "/var/lib/hbatune/rules/base.toml"
    assert damaged in texts["damaged"]
    assert answers["start with damaged copy"][0] == 2
    assert damaged in answers["start with damaged copy"][3]
    assert "`sudo hbatune apply` stores" in answers["start with damaged copy"][3]
    assert (answers["apply again"][0], answers["repaired"][0]) == (0, 0)


_LOST_RULE = """
rule = 'ACTION=="add", SUBSYSTEM=="block", KERNEL=="sd*", ATTR{queue/scheduler}="kyber"'
Path("/usr/lib/udev/rules.d/60-io-scheduler.rules").write_text(rule + "\\n")
note("without a daemon")
profile = Path("/etc/hbatune/profiles/merging.toml")
profile.parent.mkdir(parents=True)
profile.write_text('''title = "Merging"
[[rule]]
name = "merging"
setting = "nomerges"
value = 0
because = "a test"
source = "site"
''')
configure('profile = "merging"\\n[daemon]\\naudit_seconds = 1')
with daemon():
    until(lambda document: document["findings"])
    note("with a daemon")
"""


def test_lost_rule_of_distribution_is_shown(built: Build) -> None:
    answers = see(built(hbas.mpt3sas()), _LOST_RULE)
    assert [answer[2]["running"] for answer in answers.values()] == [False, True]
    for _, text, document, _ in answers.values():
        [lost] = document["lost_rules"]
        assert "60-io-scheduler.rules, line 1, sets scheduler to kyber, but sd" in lost
        assert f"udev {lost}" in " ".join(text.split())
