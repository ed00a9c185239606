"""Default applies counted on a disk with a fixed time for each I/O, whose right answer is known.

A change that costs 15 % at the load is reverted, a change that helps only bursts stays, and no
change without an effect raises an alarm. The announced time is compared with the real one.
"""

import json
import platform
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hbatune.act.executor import Means
from hbatune.operations import verify
from tests.lab.guest.command import Done, hbatune
from tests.lab.guest.kit import set_service_time
from tests.lab.guest.known import (
    SERVICE_NS,
    cut_depth,
    deep,
    double_read_ahead,
    forget,
    raise_depth_for_bursts,
)

KERNELS = ("6.12",)
TOPOLOGY = "counted"
ARTIFACTS = Path("/run/lab/artifacts/bench")  # fetched by the host
TIMES = 20
ANNOUNCED = Path("/run/lab/announced")
"""The moment of the last announcement: before it, an apply reads the machine and plans."""


@pytest.fixture(autouse=True)
def _note_announcements(monkeypatch: pytest.MonkeyPatch) -> None:
    before = verify.Verification.before

    def note_time(self: verify.Verification, means: Means) -> None:
        ANNOUNCED.write_text(str(time.monotonic()))
        before(self, means)

    monkeypatch.setattr(verify.Verification, "before", note_time)


@pytest.fixture
def lun(full_lun: str) -> Iterator[str]:
    yield full_lun
    for name in ("cut", "same", "deep"):
        forget(name)


def count_outcomes(name: str, series: str, lun: str, apply: Callable[[str], Done]) -> Counter[str]:
    """Apply the change many times; save and return the number of each result.

    A result is the exit code with the words of the verdicts and the bursts, or else the messages.
    """
    # Not counted: it reads fio from the guest's disk, which makes the counted clock jump.
    apply(deep(lun))
    hbatune("rollback")
    outcomes: Counter[str] = Counter()
    announced, real = [], []
    for _ in range(TIMES):
        set_service_time("ndelay", SERVICE_NS)
        deep(lun)
        done = apply(lun)
        real.append(round(time.monotonic() - float(ANNOUNCED.read_text()), 1))
        seconds = re.search(r"about (\d+) s, or", done.err)
        assert seconds is not None, done.err
        again = re.findall(r"compared again, for at most (\d+) s", done.err)
        announced.append(sum(map(int, (seconds[1], *again))))
        words = [proof["verdict"]["word"] for proof in done.json["verdicts"]]
        words += [f"{proof['verdict']['word']} in bursts" for proof in done.json["bursts"]]
        outcomes[f"{done.code}: {', '.join(words) or done.err}"] += 1
        hbatune("rollback")
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    results = {
        "what": f"default applies of {name}",
        "kernel": platform.release(),
        "date": datetime.now(UTC).date().isoformat(),
        "comparisons": TIMES,
        "words": dict(outcomes),
        "announced_seconds": announced,
        "seconds": real,
    }
    file = ARTIFACTS / f"verdicts_{apply.__name__}-{series}.json"
    file.write_text(json.dumps(results, indent=1) + "\n")
    return outcomes


@pytest.mark.deadline(7200)
def test_15_percent_cost_is_reverted(lun: str, series: str) -> None:
    outcomes = count_outcomes("a depth that costs 15 % at the load", series, lun, cut_depth)
    assert outcomes["1: regressed, regressed"] >= 19, outcomes


@pytest.mark.deadline(7200)
def test_no_change_raises_no_alarm(lun: str, series: str) -> None:
    outcomes = count_outcomes("a change without an effect", series, lun, double_read_ahead)
    assert set(outcomes) <= {"0: unchanged", "0: cannot tell"}, outcomes


@pytest.mark.deadline(7200)
def test_change_helping_bursts_stays(lun: str, series: str) -> None:
    name = "a depth that helps only bursts"
    outcomes = count_outcomes(name, series, lun, raise_depth_for_bursts)
    assert all(outcome.startswith("0: ") for outcome in outcomes), outcomes
