"""Searches for a scheduler beside a bulk writer: on a disk where one is better, and where none is.

Of none and mq-deadline: what is better is told by fio alone, for ten seconds.
"""

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.lab.guest.command import hbatune
from tests.lab.guest.known import PROFILES, forget
from tests.lab.guest.values import BLOCK, cat, put
from tests.soak.guest.results import save_results

TOPOLOGY = "throttled"
KERNELS = ("6.12",)
SEARCHES = 20
SERVICE_NS = 5_000_000
LONG = ("--direct=1", "--ioengine=libaio", "--time_based", "--ramp_time=1", "--runtime=10")
READER = ("--name=reader", "--rw=randread", "--bs=4k", "--iodepth=4", "--randrepeat=0")
WRITER = ("--name=writer", "--rw=write", "--bs=1m", "--iodepth=32")


@pytest.fixture
def free(virtual_disks_wanted: None) -> Iterator[str]:
    """Return the name of a profile that wants nothing and has no objective."""
    PROFILES.mkdir(parents=True, exist_ok=True)
    (PROFILES / "free.toml").write_text('title = "no objective"\n')
    yield "free"
    hbatune("rollback")
    forget("free")


@pytest.fixture
def serial() -> Iterator[str]:
    """Return the disk that serves one request after another."""
    [disk] = [path.name for path in BLOCK.glob("sd*") if "SERIAL" in cat(path.name, "device/model")]
    yield disk
    put(disk, "queue/scheduler", "none")


def only_schedulers() -> None:
    """Have the search judge nothing else, by probes of one second, which is harder than by four."""
    from hbatune.operations import disk_probes
    from hbatune.search import tournament
    from hbatune.settings.setting import FixedSetting

    disk_probes.WRITER_TIME_FACTOR = 0.5
    disk_probes.find_depth_range = lambda endpoint: FixedSetting("a test")
    tournament.list_read_candidates = lambda endpoint, rows: (tournament.Candidate({}),)


Scores = list[tuple[int, float]]
"""Of one search, probe by probe: the number of the candidate, and one over the p99 in seconds."""


def searched(disk: str, profile: str) -> tuple[Counter[str], list[Scores]]:
    """Search so many times; return the words, with the scheduler that was named, and the scores."""
    words: Counter[str] = Counter()
    scores: list[Scores] = []
    for _ in range(SEARCHES):
        done = hbatune(
            *("autotune", disk, "--profile", profile, "--destructive", "--json"),
            prepare=only_schedulers,
        )
        [disk_result] = done.json["disks"]
        ended = (disk_result["ended"], disk_result["outcome"], disk_result["doubtful"])
        assert ended == (None, None, None), done.err
        named = {change["setting"]: change["after"] for change in disk_result["better"]}
        conclusion = disk_result["schedulers"]["answer"]["word"]
        words[f"{conclusion} {named['scheduler']}" if "scheduler" in named else conclusion] += 1
        probes = disk_result["schedulers"]["scores"]
        scores.append([(probe["candidate"], round(probe["score"], 3)) for probe in probes])
    return words, scores


def true_p99_ms(disk: str, scheduler: str) -> float:
    """Return the p99 of a reader with a bulk writer."""
    put(disk, "queue/scheduler", scheduler)
    jobs = (
        argument
        for job in (READER, WRITER)
        for argument in (*job, f"--filename=/dev/{disk}", *LONG)
    )
    words = ("fio", "--output-format=json", *jobs)
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    reader, _ = json.loads(done.stdout)["jobs"]
    return float(reader["read"]["clat_ns"]["percentile"]["99.000000"]) / 1e6


@pytest.mark.deadline(7200)
def test_equal_schedulers_have_no_winner(scsi_debug: Callable[..., list[str]], free: str) -> None:
    """Every command takes the same time, and there is room for all at once."""
    [disk] = scsi_debug(max_luns=1, dev_size_mb=64, delay=0, ndelay=SERVICE_NS)
    words, scores = searched(disk, free)
    description = "searches of a scheduler where all are alike"
    save_results(
        description, name="schedulers_alike", searches=SEARCHES, words=dict(words), scores=scores
    )
    assert not [conclusion for conclusion in words if conclusion.startswith("best")], words


@pytest.mark.deadline(7200)
def test_better_scheduler_is_named(serial: str, free: str) -> None:
    truth = {name: true_p99_ms(serial, name) for name in ("none", "mq-deadline")}
    put(serial, "queue/scheduler", "none")
    words, scores = searched(serial, free)
    best = min(truth, key=truth.__getitem__)
    description = (
        "searches of a scheduler on a disk of 200 MB/s that serves one request after another"
    )
    p99_ms = {name: round(milliseconds, 1) for name, milliseconds in truth.items()}
    save_results(
        description,
        name="schedulers_serial",
        searches=SEARCHES,
        p99_ms=p99_ms,
        words=dict(words),
        scores=scores,
    )
    assert words[f"best {best}"] >= SEARCHES - 1, (words, truth)
