"""A daemon that starts after an upgrade whose sources no longer cover a local rule."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

from tests.hosts.machines import build_many_luns
from tests.hosts.namespace import OWN_CONFIGURATION, run
from tests.hosts.tree import Described

_DRIVER = """
import json
import subprocess
import sys
import time
from pathlib import Path

MAIN = [sys.executable, "-c", "import sys; from hbatune.cli import main; sys.exit(main())"]
RULES = Path("/etc/hbatune/rules.d/mine.toml")
TEXT = '[[rule]]\\nname = "mine"\\nsetting = "read_ahead_kb"\\nvalue = %s\\n'
TEXT += 'because = "ours"\\nsource = "%s"\\n'
QUEUE = Path("/sys/class/block/sda/queue")


def command(*words):
    done = subprocess.run([*MAIN, *words], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def status_until(condition):
    limit = time.monotonic() + 60
    while True:
        document = json.loads(command("status", "--json")[1] or "{}")
        if condition(document.get("status") or {}) or time.monotonic() > limit:
            return command("status")


def values():
    return [(QUEUE / name).read_text().strip() for name in ("read_ahead_kb", "nr_requests")]


RULES.parent.mkdir(parents=True)
Path("/etc/hbatune/hbatune.toml").write_text('profile = "oltp"\\n[act]\\nmemory_share = 1.0\\n')
(QUEUE / "nr_requests").write_text("1024")
RULES.write_text(TEXT % (512, "site"))
answers = [command("apply", "--profile", "oltp", "--no-probe")[0], values()]
RULES.write_text(TEXT % (512, "D0-2"))
(QUEUE / "nr_requests").write_text("1024")
with subprocess.Popen([*MAIN, "daemon"], stdout=2) as daemon:
    try:
        answers += [status_until(lambda status: status.get("ready")), values()]
        passes = json.loads(command("status", "--json")[1])["status"]["passes"]
        daemon.send_signal(1)
        status_until(lambda status: status.get("passes", 0) > passes)
        answers += [values(), command("diff")[0]]
        RULES.write_text(TEXT % (256, "site"))
        daemon.send_signal(1)
        answers += [status_until(lambda status: not status["doubts"]), values()]
    finally:
        daemon.terminate()
print(json.dumps(answers))
"""


def test_doubtful_rule_keeps_daemon_running(built: Callable[[Described], Path]) -> None:
    root = built(build_many_luns(1, adapters=1))
    command = [*OWN_CONFIGURATION, sys.executable, "-c", _DRIVER]
    code, applied, doubtful, started, reloaded, diff, corrected, last = json.loads(
        run(root, command, timeout=300)
    )
    assert (code, applied) == (0, ["512", "2048"])
    text = " ".join(doubtful[1].split())
    assert doubtful[0] == 1
    assert "a rule is invalid, so its settings stay unchanged: /etc/hbatune/rules.d/mine" in text
    assert 'rule "mine": key `source`: D0-2 does not cover read_ahead_kb (`hbatune expl' in text
    assert started == reloaded == ["512", "2048"], "the good rules are repaired, and nothing else"
    assert diff == 2
    assert (corrected[0], last) == (0, ["256", "2048"])
