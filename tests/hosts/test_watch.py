"""The full screen of `watch` on described machines, in a pseudo-terminal."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.hosts import hbas
from tests.hosts.namespace import OWN_CONFIGURATION, run
from tests.hosts.stacks import stacks
from tests.hosts.tree import Described

Built = Callable[[Described], Path]

# Runs the watch in a terminal of this size, on a machine whose disks do 1,000 reads a second, the
# last disk the slowest. Each step waits until a text is on the screen, and then does something.
_DRIVER = r"""
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from select import select
from pathlib import Path

environment, words, size, steps, fault = json.loads(sys.argv[1])
stats, names = Path("/proc/diskstats"), sorted(os.listdir("/sys/class/block"))
began = time.monotonic()


def count():
    reads = int(1000 * (time.monotonic() - began))
    lines = []
    for number, name in enumerate(names):
        milliseconds = reads * (4 if name == names[-1] else 1) // 10 ** (name != names[-1])
        counts = f"{reads} 0 {reads * 8} {milliseconds} 0 0 0 0 1 {milliseconds} {milliseconds}"
        lines.append(f"8 {16 * number} {name} {counts} 0 0 0 0 0 0\n")
    stats.write_text("".join(lines))


def resize(width, height):
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))


count()
ours, theirs = pty.openpty()
resize(*size)
before = termios.tcgetattr(theirs)
main = f"import sys; from hbatune.cli import main; {fault}; sys.exit(main())"
command = [sys.executable, "-c", main, "watch", "--profile", "oltp", "--interval", "0.2", *words]
variables = {"PATH": os.environ["PATH"], "TERM": "xterm", "LANG": "C.UTF-8", **environment}
streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
process = subprocess.Popen(
    command,
    env=variables,
    start_new_session=True,
    # Ctrl-C reaches only the processes that a terminal controls.
    preexec_fn=lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0),
    **streams,
)
output, screens = b"", []


def read_screen(text, deadline):
    global output
    while time.monotonic() < deadline:
        count()
        if select([ours], [], [], 0.05)[0]:
            output += os.read(ours, 65536)
        picture = output.decode(errors="replace").rpartition("\x1b[H")[2]
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", picture).replace("\r", "")
        # The rows are complete once the last line has begun.
        is_complete = re.search(r"(q quit|filter: ).*$", plain) or b"1049h" not in output
        if re.search(text, plain) and is_complete:
            return plain
    process.kill()
    raise SystemExit(f"{text} is not on the screen:\n{plain}")


for text, action, argument in steps:
    screens.append(read_screen(text, time.monotonic() + 30))
    if action == "key":
        os.write(ours, argument.encode())
    elif action == "signal":
        process.send_signal(argument)
    elif action == "size":
        resize(*argument)
code = process.wait(60)
while select([ours], [], [], 0.1)[0]:
    output += os.read(ours, 65536)
restored = termios.tcgetattr(theirs) == before
result = {"code": code, "screens": screens, "restored": restored, "output": output.decode()}
print(json.dumps(result))
"""

Step = tuple[str, str, Any]
QUIT: Step = ("sd[a-z] ", "key", "q")


def watch(
    root: Path,
    *steps: Step,
    size: tuple[int, int] = (80, 24),
    words: tuple[str, ...] = (),
    environment: dict[str, str] | None = None,
    fault: str = "pass",
) -> dict[str, Any]:
    (root / "proc/diskstats").write_text("")
    request = json.dumps([environment or {}, words, size, steps, fault])
    command = [*OWN_CONFIGURATION, sys.executable, "-c", _DRIVER, request]
    result: dict[str, Any] = json.loads(run(root, command))
    return result


@pytest.mark.parametrize("size", [(80, 24), (132, 43)])
def test_screen_shows_slow_disk_first(built: Built, size: tuple[int, int]) -> None:
    done = watch(built(hbas.mpi3mr()), QUIT, size=size)
    [screen] = done["screens"]
    lines = screen.split("\n")
    assert len(lines) == size[1]
    assert max(map(len, lines)) <= size[0]
    text = "\n".join(lines)
    assert re.search(r"[1-9],\d{3} IOPS  0.0\d GB/s read  0.00 written$", lines[0].rstrip()), text
    assert "oltp" in lines[0]
    assert "of 4 disks over the goal" in lines[1]
    assert "`mount -t tracefs tracefs /sys/kernel/tracing`" in text
    assert re.search(r"0000:01:00.0 .* 16 GT/s x16 ", text)
    rows = re.findall(r"^.{3}(sd[a-z]) ", text, re.MULTILINE)
    assert (len(rows), rows[0]) == (4, "sdd"), text
    assert done["code"] == 0


@pytest.mark.parametrize(
    "end", [("key", "q"), ("key", "\x03"), ("signal", 15), ("signal", 1), ("signal", 2)]
)
def test_every_end_restores_terminal(built: Built, end: tuple[str, Any]) -> None:
    done = watch(built(hbas.mpi3mr()), ("sd[a-z] ", *end))
    assert (done["code"], done["restored"]) == (0, True)
    assert done["output"].count("\x1b[?1049h") == done["output"].count("\x1b[?1049l") == 1
    assert done["output"].rindex("\x1b[?25h") > done["output"].rindex("\x1b[?25l")
    assert "Traceback" not in done["output"]


def test_internal_error_restores_terminal(built: Built) -> None:
    fault = "from hbatune.text import watch_view; watch_view.format_digits = None"
    done = watch(built(hbas.mpi3mr()), fault=fault)
    assert (done["code"], done["restored"]) == (70, True)
    assert "TypeError" in done["output"].rpartition("\x1b[?1049l")[2]


def test_new_size_redraws_screen(built: Built) -> None:
    """Long before the next reading."""
    done = watch(
        built(hbas.mpi3mr()),
        ("no reading yet", "size", (100, 30)),
        (r"^(.*\n){29}.*q quit", "key", "q"),
        words=("--interval", "3000"),
    )
    assert [len(screen.split("\n")) for screen in done["screens"]] == [24, 30]


def test_keys_change_screen(built: Built) -> None:
    done = watch(
        built(hbas.mpi3mr()),
        ("sd[a-z] ", "key", "ssss"),
        ("sort: name", "key", "/nvm"),
        ("filter: nvm ", "key", "\n"),
        ("filter: nvm ", "key", "\x1b"),
        ("sort: name", "key", "p"),
        ("paused", "key", "?"),
        (r"\? +show or hide", "key", "q"),
    )
    names = [re.findall(r"^.{3}(sd[a-z]) ", screen, re.MULTILINE) for screen in done["screens"]]
    assert names[1] == ["sda", "sdb", "sdc", "sdd"]
    assert len(names[3]) == 1
    assert done["code"] == 0


def test_screen_shows_and_finds_uses(built: Built) -> None:
    done = watch(
        built(stacks()),
        (r"sda md127 vg-0/home vg-0/pg-data  ", "key", "/vg1/"),
        (r"filter: vg1/ ", "key", "\x03"),
        size=(132, 43),
    )
    texts = [" ".join(screen.split()) for screen in done["screens"]]
    assert "dm-3 mpatha vg1/data sas ssd x2" in texts[0]
    rows = re.findall(r"^\W*(sd.|dm-.) ", done["screens"][1], re.MULTILINE)
    assert set(rows) == {"dm-3", "sde", "sdf"}


def test_plain_terminals_get_lines(built: Built) -> None:
    root = built(hbas.mpi3mr())
    stop: Step = ("TIME +TARGET", "signal", 2)
    count = ("--count", "1")
    cases: list[tuple[tuple[str, ...], dict[str, str], tuple[Step, ...]]] = [
        (("--plain",), {}, (stop,)),
        ((), {"TERM": "dumb"}, (stop,)),
        (count, {}, ()),
    ]
    for words, variables, steps in cases:
        done = watch(root, *steps, words=words, environment=variables)
        assert "\x1b[" not in done["output"], words
        assert re.search(r"TIME +TARGET", done["output"]), words
        assert done["code"] == 0


def test_console_gets_ascii_without_colours(built: Built) -> None:
    done = watch(built(hbas.mpi3mr()), QUIT, environment={"TERM": "linux", "NO_COLOR": "1"})
    assert done["screens"][0].isascii()
    assert "\x1b[3" not in done["output"]
