"""The cause of a latency, against planted causes on disks with a fixed service time."""

from pathlib import Path

import pytest

from tests.lab.guest.command import Forked, hbatune
from tests.lab.guest.kit import set_service_time, wait_a_moment
from tests.lab.guest.planted_causes import (
    INSTANCE,
    PLANTS,
    READS,
    SERVICE_NS,
    Loader,
    Plant,
    add_luns,
    ask,
    loaded,
)
from tests.lab.guest.values import put

KERNELS = ("6.12",)
RUNS = 3
LOCK = Path("/run/hbatune/trace.lock")


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_planted_cause_is_found(scsi_debug: Loader, plant: Plant) -> None:
    """A run has few requests on a slow machine: the soak test counts wrong answers."""
    wrong = []
    with plant(scsi_debug) as (disk, expected):
        for _ in range(RUNS):
            answer = ask(disk)
            if {name: answer[name] for name in expected} != expected:
                wrong.append(answer)
            assert (answer["gain"] > 0.1) == (answer["lever"] != "none")
    assert len(wrong) < RUNS / 2, wrong


def test_paths_limit_their_map(joined: tuple[str, list[str]]) -> None:
    name, paths = joined
    set_service_time("ndelay", SERVICE_NS)
    for path in paths:
        put(path, "device/queue_depth", "4")
    # On a disk of 8 MiB, threads that read at random would often read the same sector. Its events
    # do not tell the requests apart.
    apart = ("--readonly", "--rw=read", "--offset_increment=300k", "--size=300k", *READS[2:])
    with loaded(name, apart):
        answer = ask(paths[0])
    assert (answer["target"], answer["lever"]) == (name, "queue_depth")


def test_idle_disk_has_no_answer(scsi_debug: Loader) -> None:
    """The trace of a killed run is removed, and a second run at the same time is refused."""
    [lun] = add_luns(scsi_debug, max_luns=1, max_queue=64)
    INSTANCE.mkdir()
    running = Forked("why", lun, "--seconds", "2")
    while not LOCK.exists():
        wait_a_moment()
    second = hbatune("why", lun)
    assert second.code == 3
    assert "is tracing a disk" in second.err
    first = running.wait()
    assert first.code == 1, first.err
    assert first.out.startswith("The load is too small to answer: ")
    assert not INSTANCE.exists()
    assert not LOCK.exists()
