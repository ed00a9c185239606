"""A /run that takes no files stops neither a rollback nor the daemon's repairs, nor does a fork."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.hosts import interrupts
from tests.hosts.namespace import OWN_CONFIGURATION, run
from tests.hosts.tree import Described

Build = Callable[[Described], Path]

# Common to all scripts: commands, the values that they set, and ways to make a folder unwritable.
_KIT = r"""
import errno
import json
import os
import subprocess
import sys
from pathlib import Path

RUN = Path("/run/hbatune")
HBATUNE = [sys.executable, "-c", "import sys; from hbatune.cli import main; sys.exit(main())"]
RULE = '[[rule]]\nname = "{0}"\nsetting = "{0}"\nvalue = {1}\nbecause = "a test"\nsource = "site"\n'
VALUES = [Path(f"/sys/class/block/{disk}/{file}")
          for disk in ("sda", "sdb") for file in ("queue/nomerges", "device/queue_depth")]
VALUES += [Path("/proc/irq/50/smp_affinity_list")]
AFFINITY = '[[rule]]\nname = "i"\nsetting = "irq_affinity"\nspread = true\n'
PROFILE = Path("/etc/hbatune/profiles/small.toml")


def prepare():
    PROFILE.parent.mkdir(parents=True)
    PROFILE.write_text('title = "small"\n' + RULE.format("nomerges", 1)
                       + RULE.format("queue_depth", 96))


def values():
    return [file.read_text().strip() for file in VALUES]


def hbatune(*words, shell=""):
    command = ["sh", "-c", shell + 'exec "$@"', "sh", *HBATUNE, *words]
    done = subprocess.run(command, capture_output=True, text=True)
    return {"code": done.returncode, "out": done.stdout, "err": done.stderr, "values": values()}


def mount(folder, options):
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)


def spoil(kind, folder):
    "Make the folder unwritable; it is a file system with few bytes and inodes."
    if kind == "read-only":
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        return
    try:
        for number in range(10_000):
            with open(folder / f"filler{number}", "wb", buffering=0) as file:
                while kind == "bytes":
                    file.write(bytes(4096))
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
        return
    raise AssertionError("not full")


FEW = "mode=711,size=512k,nr_inodes=64"
prepare()
before = values()
found = {"before": before}
"""


def ran(built: Build, script: str, *words: str) -> Any:
    """Run a script on a described machine and return the document that it prints."""
    root = built(interrupts.two_nodes())
    text = f"{_KIT}\n{script}\nprint(json.dumps(found))\n"
    command = [*OWN_CONFIGURATION, sys.executable, "-c", text, *words]
    return json.loads(run(root, command, timeout=300))


KINDS = ("bytes", "inodes", "read-only")


@pytest.mark.parametrize("kind", KINDS)
def test_rollback_survives_unwritable_run(built: Build, kind: str) -> None:
    results = ran(
        built,
        """
mount(RUN, FEW)
found["apply"] = hbatune("apply", "--profile", "small", "--no-probe")
spoil(sys.argv[1], RUN)
found["rollback"] = hbatune("rollback")
found["again"] = hbatune("apply", "--profile", "small", "--no-probe")
found["rollback again"] = hbatune("rollback", "sda", "sdb")
""",
        kind,
    )
    assert results["apply"]["code"] == 0, results["apply"]
    assert results["apply"]["values"] != results["before"]
    assert results["rollback"]["values"] == results["before"], results["rollback"]
    assert results["rollback"]["code"] == 0, results["rollback"]
    assert results["rollback again"]["values"] == results["before"], results["rollback again"]


@pytest.mark.parametrize("kind", KINDS)
def test_unwritable_run_allows_commands(built: Build, kind: str) -> None:
    results = ran(
        built,
        """
mount(RUN, FEW)
spoil(sys.argv[1], RUN)
found["apply"] = hbatune("apply", "--profile", "small", "--no-probe")
found["locks"] = [str(path) for path in (RUN / "lock", Path("/var/lib/hbatune/lock"))
                  if path.exists()]
found["rollback"] = hbatune("rollback")
""",
        kind,
    )
    # Files without content take no blocks.
    reason = {"bytes": None, "inodes": "No space left on device", "read-only": "Read-only"}[kind]
    spare = kind != "bytes"
    assert results["locks"] == ["/var/lib/hbatune/lock" if spare else "/run/hbatune/lock"]
    assert results["apply"]["values"] != results["before"]
    assert results["apply"]["code"] == (1 if reason else 0), results["apply"]
    if reason:
        assert reason in results["apply"]["err"]
        assert "run it as root" not in results["apply"]["err"]
    assert results["rollback"]["values"] == results["before"], results["rollback"]
    assert results["rollback"]["code"] == 0, results["rollback"]


def test_remaining_irqbalance_list_fails_rollback(built: Build) -> None:
    results = ran(
        built,
        """
mount(RUN, FEW)
found["apply"] = hbatune("apply", "--profile", "oltp", "--no-probe", "irq50")
spoil("read-only", RUN)
found["rollback"] = hbatune("rollback")
subprocess.run(["mount", "-o", "remount,rw", RUN], check=True)
found["again"] = hbatune("rollback")
found["list"] = (RUN / "irqs").exists()
""",
    )
    assert results["apply"]["code"] == 0, results["apply"]
    assert results["apply"]["values"] != results["before"]
    assert results["rollback"]["values"] == results["before"]
    assert results["rollback"]["code"] == 1, results["rollback"]
    assert "cannot set irqbalance's list" in results["rollback"]["err"]
    assert "remount it read-write" in results["rollback"]["err"]
    assert (results["again"]["code"], results["list"]) == (0, False), results["again"]


@pytest.mark.parametrize("kind", KINDS)
def test_daemon_repairs_despite_unwritable_run(built: Build, kind: str) -> None:
    results = ran(
        built,
        """
from hbatune.agent import passes
from hbatune.agent.events import DeviceEvent
from hbatune.agent.orders import decode_report
from hbatune.agent.orders import Order, PassReason
from hbatune.policy.config import load_configuration
from hbatune.policy.vendors import load_chosen_profile

Path("/etc/hbatune/hbatune.toml").write_text('profile = "small"\\n')
config = load_configuration()
memory = passes.Memory()


def made(order):
    report = decode_report(passes.run(order, config, load_chosen_profile(None, config), memory))
    return {"error": report.error, "written": len(report.written), "values": values()}


mount(RUN, FEW)
found["start"] = made(Order(PassReason.START))
spoil(sys.argv[1], RUN)
VALUES[0].write_text("2\\n")
found["event"] = made(Order(PassReason.EVENT, (DeviceEvent("sda"),)))
VALUES[1].write_text("10\\n")
found["audit"] = made(Order(PassReason.AUDIT))
memory.close()
found["rollback"] = hbatune("rollback")
""",
        kind,
    )
    assert results["start"]["values"] != results["before"], results["start"]
    for name in ("start", "event", "audit"):
        assert results[name]["error"] is None, results[name]
        assert results[name]["values"] == results["start"]["values"], name
    assert results["event"]["written"] == results["audit"]["written"] == 1
    assert results["rollback"]["values"] == results["before"]
    assert results["rollback"]["code"] == 0, results["rollback"]


# Takes the lock and holds it until its input ends.
_HOLDER = """
HOLDER = '''
import sys
from hbatune.act.paths import Paths
from hbatune.act.lock import Lock
from hbatune.errors import HbatuneError
try:
    with Lock(Paths.lock, spare=Paths.lock_spare):
        print("held", flush=True)
        sys.stdin.read()
except HbatuneError as error:
    print(type(error).__name__, error.message, flush=True)
'''


def holder():
    pipe = subprocess.PIPE
    started = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=pipe, stdout=pipe, text=True)
    return started, started.stdout.readline().strip()
"""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("later", ["same", "writable"])
def test_lock_has_one_holder(built: Build, kind: str, later: str) -> None:
    results = ran(
        built,
        f"""{_HOLDER}
mount(RUN, FEW)
if sys.argv[1] == "read-only":
    hbatune("rollback")  # makes the lock
spoil(sys.argv[1], RUN)
first, found["first"] = holder()
if sys.argv[2] == "writable":
    subprocess.run(["mount", "-o", "remount,rw", RUN], check=True)
    for file in RUN.glob("filler*"):
        file.unlink()
second, found["second"] = holder()
found["pid"] = first.pid
first.communicate()
third, found["third"] = holder()
second.communicate(), third.communicate()
""",
        kind,
        later,
    )
    assert results["first"] == results["third"] == "held"
    assert results["second"].startswith(f"LockedError another hbatune (process {results['pid']}")


def test_lock_error_reports_read_only(built: Build) -> None:
    results = ran(
        built,
        """
mount(RUN, FEW)
spoil("read-only", RUN)
mount(Path("/var/lib"), "ro")
found["rollback"] = hbatune("rollback")
""",
    )
    assert results["rollback"]["code"] == 1, results["rollback"]
    assert "the lock /run/hbatune/lock cannot be made: Read-only" in results["rollback"]["err"]
    assert "remount it read-write" in results["rollback"]["err"]
    assert "run it as root" not in results["rollback"]["err"]


# Runs a command whose first forks are refused.
_REFUSED = """
HBATUNE[2] = '''
import errno, os, subprocess, sys
from hbatune.cli import main
from hbatune.workers import pool
fork, run, refused = os.fork, subprocess._fork_exec, int(os.environ.get("REFUSED", "0"))


def sometimes(call):
    def limited(*arguments):
        global refused
        refused -= 1
        if refused >= 0:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return call(*arguments)

    return limited


os.fork, subprocess._fork_exec = sometimes(fork), sometimes(run)
pool.START_PATIENCE_S = 0.5 if refused > 100 else 5
sys.exit(main())
'''
"""


def test_rollback_retries_refused_forks(built: Build) -> None:
    results = ran(
        built,
        f"""{_REFUSED}
found["apply"] = hbatune("apply", "--profile", "small", "--no-probe")
found["never"] = hbatune("rollback", shell="export REFUSED=100000;")
found["first"] = hbatune("rollback", shell="export REFUSED=3;")
""",
    )
    assert results["apply"]["code"] == 0
    never = results["never"]
    assert (never["code"], never["values"]) == (1, results["apply"]["values"])
    for name in ("sda", "sdb", "nomerges", "queue_depth", "no process could be started"):
        assert name in never["out"], never
    assert "4 could not be restored" in never["out"]
    assert results["first"]["values"] == results["before"], results["first"]
    assert results["first"]["code"] == 0, results["first"]


def test_few_descriptors_never_fake_success(built: Build) -> None:
    results = ran(
        built,
        """
found["limits"] = {}
for limit in (6, 8, 12, 16):
    hbatune("apply", "--profile", "small", "--no-probe")
    found["limits"][limit] = hbatune("rollback", shell=f"ulimit -n {limit};")
    found["last"] = hbatune("rollback")
""",
    )
    assert results["last"]["code"] == 0
    codes = {}
    for limit, done in results["limits"].items():
        codes[limit] = done["code"]
        assert (done["code"] == 0) <= (done["values"] == results["before"]), (limit, done)
    assert {0, 1} <= set(codes.values()) <= {0, 1}, codes
