"""`status` of a real daemon that stops working: it exits with 1, and says why.

Tools of systemd and udev that hang: `uninstall` gives them up and reports them.
"""

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

# Starts the daemon with short limits, breaks it, waits until `status` notices, and repairs it.
_DRIVER = """
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

MAIN = "import sys; from hbatune.cli import main; sys.exit(main())"
QUICK = "from hbatune.agent import loop; loop.SHOWN_AFTER_S, loop.PASS_LIMIT_S = 0.05, 1.0; "
QUICK += "loop.SAVE_EVERY_S = 0.1; "
FILL = Path("/run/fill")
WORKING, BROKEN = ("tuned", "findings"), ("stalled",)  # an audit may find something


def status():
    words = [sys.executable, "-c", MAIN, "status"]
    text = subprocess.run(words, capture_output=True, text=True)
    document = json.loads(subprocess.run([*words, "--json"], capture_output=True).stdout)
    return text.returncode, text.stdout, document


def until(states, meanwhile=lambda: None):
    limit = time.monotonic() + 60
    while status()[2]["state"] not in states and time.monotonic() < limit:
        meanwhile()
    return status()  # its text is older than its document, perhaps of the state before


def passes_of(daemon):
    children = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text()
    return [int(pid) for pid in children.split()]


def stopped(daemon):
    daemon.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, daemon.pid, os.WSTOPPED | os.WNOWAIT)
    found = until(BROKEN)
    daemon.send_signal(signal.SIGCONT)
    return found


def hanging_pass(daemon):
    def send(number):
        for pid in passes_of(daemon):
            os.kill(pid, number)

    found = until(BROKEN, lambda: send(signal.SIGSTOP))  # the next audit hangs
    send(signal.SIGCONT)
    return found


def full(daemon):
    subprocess.run(["mount", "-o", "remount,size=1m", "/run"], check=True)
    with open(FILL, "wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass
    found = until(BROKEN)
    FILL.unlink()
    return found


def without_inodes(daemon):
    subprocess.run(["mount", "-o", "remount,nr_inodes=200", "/run"], check=True)
    made = []
    try:
        while True:
            path = Path(f"/run/inode{len(made)}")
            path.touch()
            made.append(path)
    except OSError:
        pass
    found = until(BROKEN)
    for path in made:
        path.unlink()
    return found


Path("/etc/hbatune").mkdir()
Path("/etc/hbatune/hbatune.toml").write_text('profile = "oltp"\\n[daemon]\\naudit_seconds = 1\\n')
with subprocess.Popen([sys.executable, "-c", QUICK + MAIN, "daemon"], stdout=2) as daemon:
    try:
        healthy = until(WORKING)
        broken = globals()[sys.argv[1]](daemon)
        again = until(WORKING)
    finally:
        daemon.terminate()
print(json.dumps([healthy, broken, again]))
"""


@pytest.mark.parametrize(
    ("fault", "cause", "words"),
    [
        ("stopped", "signal", "a signal has stopped its process"),
        ("hanging_pass", "pass", "has not ended, limit 1 s"),
        ("full", "file", "it cannot write /run/hbatune/status.json: No space left on device"),
        ("without_inodes", "file", "it cannot write /run/hbatune/status.json: No space left"),
    ],
)
def test_status_reports_stalled_daemon(built: Build, fault: str, cause: str, words: str) -> None:
    root = built(interrupts.two_nodes())
    command = [*OWN_CONFIGURATION, sys.executable, "-c", _DRIVER, fault]
    healthy, broken, again = json.loads(run(root, command, timeout=300))
    assert broken[0] == 1
    assert "it is stalled: " in broken[1]
    assert words in broken[1]
    document: dict[str, Any] = broken[2]
    assert (document["state"], document["running"], document["well"]) == ("stalled", True, False)
    assert cause in [stall["cause"] for stall in document["stalls"]]
    assert healthy[2]["daemon"] == again[2]["daemon"] == "ok"


# The tools exist, and never end; /run/systemd/system makes systemd this machine's init.
_HUNG_TOOLS = """
mkdir -p /run/bin /run/systemd/system /run/udev /etc/hbatune
touch /run/udev/control
# 1: without systemd, which the script below hides from it, nothing starts the daemon.
"$@" install --profile oltp >/dev/null 2>&1
code=$?
[ $code -eq 1 ] || echo "install failed: $code"
cp /proc/irq/50/smp_affinity_list /run/before
"$@" apply --profile oltp --no-probe irq50 >/dev/null
cat /proc/irq/50/smp_affinity_list
printf '#!/bin/sh\\nsleep 1000\\n' >/run/bin/systemctl
cp /run/bin/systemctl /run/bin/udevadm
chmod +x /run/bin/*
PATH=/run/bin:$PATH "$@" uninstall >/dev/null 2>/run/errors
echo $?
cat /proc/irq/50/smp_affinity_list
ls /etc/udev/rules.d/89-hbatune.rules /var/lib/hbatune/journal.json 2>/dev/null | wc -l
cat /run/errors
"""

_SHORT = """
import sys
from pathlib import Path
from hbatune.act import system
from hbatune.cli import main
from hbatune.operations import install
system.CALL_S = system.STOP_S = system.SETTLE_S = 0.5
if sys.argv[1] == "install":
    system.has_systemd = lambda: False
    system._is_udev_running = lambda: False
    # No unit can name a checkout with a blank in its path.
    install._find_executable = lambda *_: Path("/usr/bin/hbatune")
    install.require_trusted_command = lambda *_: None
sys.exit(main())
"""


def test_uninstall_abandons_hung_tools(built: Build) -> None:
    root = built(interrupts.two_nodes())
    command = ["sh", "-c", _HUNG_TOOLS, "sh", sys.executable, "-c", _SHORT]
    printed = run(root, [*OWN_CONFIGURATION, *command], timeout=120).decode()
    applied, code, restored, files, *errors = printed.splitlines()
    assert (applied, code, restored, files) == ("0", "1", "5", "0"), printed
    messages = " ".join(" ".join(errors).split())
    assert "failed: it did not end within 0.5 s; `systemctl list-jobs`" in messages
    assert "`ps -eo pid,stat,wchan,args | grep udev` shows the hung worker" in messages
