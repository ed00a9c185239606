"""The reports of passes on their way to the daemon: whole, and small where they arrive."""

import tracemalloc

from msgspec.structs import replace

from hbatune.agent.orders import (
    PIECE_SIZE,
    DepthLevel,
    Handled,
    PassReport,
    SettingChange,
    decode_report,
    encode_report,
)
from hbatune.facts.sampler import SampledPlaces
from hbatune.watch.readings import Subjects, WatchedAdapter
from tests.unit.watch_samples import HBA, disk

COUNT = 2 * PIECE_SIZE + 5


def report(count: int = COUNT) -> PassReport:
    """Return the report of a pass over so many disks, of which every third could not be set."""
    names = [f"sd{number}" for number in range(count)]
    ids = [f"naa.600605b0{number:024x}@{HBA}/scsi-2:{number}:0" for number in range(count)]
    disks = (disk(id=id, target=name, paths=()) for id, name in zip(ids, names, strict=True))
    changes = (
        SettingChange(name, id, "scheduler", "none", "mq-deadline", "one-queue", Handled.FAILED)
        for id, name in list(zip(ids, names, strict=True))[::3]
    )
    return PassReport(
        profile="oltp",
        endpoints=count,
        changes=tuple(changes),
        looked=tuple(ids[:2]),
        error="refused",
        subjects=Subjects(tuple(disks), (WatchedAdapter(HBA, (0, 1)),)),
        places=SampledPlaces(
            dict(zip(names, ids, strict=True)), tuple(names[1:]), {HBA: ("/sys/one", "/sys/other")}
        ),
        levels={id: DepthLevel(32, 1, 0) for id in ids[5:]},
        resettable=dict.fromkeys(names[:7], (254, 255)),
    )


def test_report_survives_encoding() -> None:
    for count in (0, 1, PIECE_SIZE, PIECE_SIZE + 1, COUNT):
        assert decode_report(encode_report(report(count))) == report(count)


def test_empty_report_survives_encoding() -> None:
    for sent in (PassReport(), PassReport(locked=True), PassReport(error="one\ntwo", hint="\n")):
        assert decode_report(encode_report(sent)) == sent


def test_equal_texts_are_shared() -> None:
    decoded = decode_report(encode_report(report()))
    assert decoded.subjects is not None
    ids = {id(disk.id) for disk in decoded.subjects.disks}
    assert {id(place) for place in decoded.places.disks.values()} == ids
    assert {id(level) for level in decoded.levels} <= ids
    assert {id(change.id) for change in decoded.changes} <= ids
    assert {id(place) for place in decoded.places.counter_disks} <= {
        id(place) for place in decoded.places.disks
    }
    assert len({id(change.rule) for change in decoded.changes}) == 1
    assert len({id(change.before) for change in decoded.changes}) == 1


def test_unchanged_disks_are_reused() -> None:
    first = decode_report(encode_report(report())).subjects
    assert first is not None
    changed = (replace(first.disks[0], knee=99), *first.disks[1:])
    sent = replace(report(), subjects=replace(first, disks=changed))
    second = decode_report(encode_report(sent), first.disks).subjects
    assert second is not None
    assert second.disks == changed
    assert second.disks[0].id is first.disks[0].id
    assert all(new is old for new, old in zip(second.disks[1:], first.disks[1:], strict=True))


def test_repeated_report_takes_little_memory() -> None:
    """Decoded at once, it took 1.5 KiB a disk more, which an allocator does not give back."""
    count = 2000
    sent = encode_report(replace(report(count), changes=(), levels={}))
    subjects = decode_report(sent).subjects
    assert subjects is not None
    tracemalloc.start()
    try:
        decode_report(sent, subjects.disks)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 512 * count
