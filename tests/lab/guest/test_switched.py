"""A comparison switches scheduler, depth and nr_requests together, on the real block layer."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hbatune.probe import run
from tests.lab.guest.command import Done, hbatune
from tests.lab.guest.known import PROFILES, few_pairs, measure_nothing
from tests.lab.guest.values import cat, everything, put, scheduler

State = tuple[str, str, str]
"""The scheduler, the queue depth and nr_requests of a disk."""
_RULE = """
[[rule]]
name = "the-{setting}"
setting = "{setting}"
value = {value}
because = "a test"
source = "site"
"""
_PROFILE = (
    'title = "three settings"\n[probe]\npattern = "randread"\nblock_size = "4k"\ndepth = 24\n'
)


@pytest.fixture
def lun(scsi_debug: Callable[..., list[str]]) -> Iterator[str]:
    [disk] = scsi_debug(max_luns=1, max_queue=192)
    yield disk
    hbatune("rollback")
    (PROFILES / "three.toml").unlink(missing_ok=True)


def compare(disk: str, seen: Path, *words: str, **values: str) -> tuple[Done, set[State]]:
    """Apply a profile with these values; return the result and the states that were measured."""
    PROFILES.mkdir(parents=True, exist_ok=True)
    rules = (_RULE.format(setting=name, value=value) for name, value in values.items())
    (PROFILES / "three.toml").write_text(_PROFILE + "".join(rules))
    seen.write_text("")

    def note() -> None:
        with seen.open("a") as file:
            print(json.dumps(read_state(disk)), file=file)

    def prepare() -> None:
        few_pairs()
        measure_nothing(note)
        run.find_disturbance = lambda subject: None

    words = ("apply", "--profile", "three", "--once", "--json", *words, disk)
    done = hbatune(*words, prepare=prepare)
    return done, {tuple(json.loads(line)) for line in seen.read_text().splitlines()}


def read_state(disk: str) -> State:
    return scheduler(disk), cat(disk, "device/queue_depth"), cat(disk, "queue/nr_requests")


@pytest.mark.parametrize("first", ["none", "mq-deadline"])
def test_all_planned_settings_are_switched(lun: str, first: str, tmp_path: Path) -> None:
    second = {"none": "mq-deadline", "mq-deadline": "none"}[first]
    put(lun, "queue/scheduler", first)
    put(lun, "device/queue_depth", "32")
    before, values = read_state(lun), everything()
    goal = {"scheduler": f'"{second}"', "queue_depth": "128", "nr_requests": "2048"}
    done, states = compare(lun, tmp_path / "seen", **goal)
    assert done.code == 0, done.out + done.err
    [proof] = done.json["verdicts"]
    assert (proof["verdict"]["runs"], proof["written"]) == (2, None)
    requests = "2048" if second == "mq-deadline" else cat(lun, "mq/0/nr_tags")
    assert states == {before, (second, "128", requests)}
    if first == "none":
        done, states = compare(lun, tmp_path / "seen", "--verify", **goal)
        assert done.code == 0, done.out + done.err
        assert states == {before, (second, "128", requests)}, "what is set already is compared"
    assert hbatune("rollback").code == 0
    assert everything() == values
