"""The remaining time that the bar of a long command shows, against the real one."""

import json
import os
import platform
import pty
import re
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from hbatune.cli import main
from tests.lab.guest.conftest import scsi_debug
from tests.lab.guest.known import SERVICE_NS, deep, forget, profile
from tests.lab.guest.values import cat

__all__ = ["scsi_debug"]

KERNELS = ("6.12",)
ARTIFACTS = Path("/run/lab/artifacts/bench")  # fetched by the host
TOLERANCE = 0.2
FIRST_SHARE = 0.1
"""The share of a run in which the bar may still learn how long a step takes."""
COLOR = re.compile(rb"\x1b\[[\d;]*m")
BAR = re.compile(rb"(\d+)/(\d+) +(?:(\d+):)?(\d\d):(\d\d)")


class Announcement(msgspec.Struct, frozen=True):
    """What the bar showed: the steps, and the seconds since its start and to its end."""

    steps: int
    total: int
    elapsed: float
    remaining: int


def record_bar(*words: str) -> list[Announcement]:
    """Run a command on a terminal, and return what its bar showed."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS="100", LINES="24")
        sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
        os._exit(main(list(words)))
    shown: list[Announcement] = []
    text, began = b"", time.monotonic()
    while True:
        try:
            text = COLOR.sub(b"", text + os.read(terminal, 1 << 16))
        except OSError:  # EIO: the command has ended
            break
        for match in BAR.finditer(text):
            steps, total, hours, minutes, seconds = (int(number or 0) for number in match.groups())
            if not shown:
                began = time.monotonic()
            remaining = 3600 * hours + 60 * minutes + seconds
            shown.append(Announcement(steps, total, time.monotonic() - began, remaining))
            text = text[match.end() :]
    os.waitpid(child, 0)
    return shown


def find_worst_error(shown: list[Announcement]) -> float:
    """Return the largest difference between an announced end and the real one, as a share."""
    end = shown[-1].elapsed
    later = [announced for announced in shown if announced.elapsed >= FIRST_SHARE * end]
    return max(abs(announced.elapsed + announced.remaining - end) / end for announced in later)


@pytest.fixture
def lun(scsi_debug: Callable[..., list[str]]) -> Iterator[str]:
    [disk] = scsi_debug(max_luns=1, max_queue=192, delay=0, ndelay=SERVICE_NS)
    yield deep(disk)
    forget("same")


@pytest.mark.deadline(1800)
def test_remaining_time_is_right(lun: str) -> None:
    kilobytes = 2 * int(cat(lun, "queue/read_ahead_kb"))
    commands = {
        "probe depth-sweep": ("probe", "depth-sweep", lun),
        "apply": ("apply", *profile("same", "read_ahead_kb", kilobytes, 24), lun),
        "autotune": ("autotune", lun),
    }
    errors, seconds = {}, {}
    for name, words in commands.items():
        shown = record_bar(*words)
        assert shown, name
        print(name, shown)
        assert shown[-1].steps == shown[-1].total, shown[-1]
        seconds[name], errors[name] = round(shown[-1].elapsed, 1), round(find_worst_error(shown), 3)
    results = {
        "what": "the largest difference between the announced end of a run and the real one",
        "date": datetime.now(UTC).date().isoformat(),
        "kernel": platform.release(),
        "seconds": seconds,
        "worst_error": errors,
    }
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    (ARTIFACTS / "progress.json").write_text(json.dumps(results, indent=1) + "\n")
    assert max(errors.values()) <= TOLERANCE, errors
