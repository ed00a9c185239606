"""One meaning of the names on the command line, for every command."""

import os

import pytest
from msgspec.structs import replace

from hbatune.act import journal, rollback_record
from hbatune.act.journal import Entry, Journal
from hbatune.act.lock import ClaimTable, Lock
from hbatune.act.paths import Paths
from hbatune.facts.model import Kind, Role
from hbatune.facts.targets import UnknownTargetError, choose_targets, find_named_targets
from tests.unit.machines import adapter, endpoint, host, machine, vector

NAA = "naa.5000c500a1b2c3d4"
EMPTY = adapter(target="0000:00:02.0", family="ahci", hosts=(host(name="host7"),))
DISK = endpoint(target="sda", id=f"{NAA}@0000:01:00.0/sas-0x5-lun-0")
DATA = vector(irq=41, id="x@0000:01:00.0/1", adapter="0000:01:00.0", role=Role.DATA)
LINE = replace(DATA, irq=40, id="x@0000:01:00.0/0", role=Role.ADMIN)
MACHINE = replace(machine(DISK, adapters=(adapter(), EMPTY)), vectors=(DATA, LINE))


@pytest.mark.parametrize("name", ["0000:00:02.0", "host7"])
def test_diskless_adapter_is_target(name: str) -> None:
    chosen = choose_targets(MACHINE, [name])
    assert [adapter.target for adapter in chosen.adapters] == ["0000:00:02.0"]
    assert (chosen.endpoints, chosen.vectors) == ((), ())


def test_no_name_selects_everything() -> None:
    chosen = choose_targets(MACHINE, [])
    assert chosen.ids is None
    assert len(chosen.adapters) == 2


@pytest.mark.parametrize(
    "name",
    [
        *(NAA, NAA.upper(), "0x5000c500a1b2c3d4", "wwn-0x5000C500A1B2C3D4"),
        *("scsi-35000c500a1b2c3d4", "/dev/disk/by-id/wwn-0x5000c500a1b2c3d4", "35000c500a1b2c3d4"),
    ],
)
def test_stable_name_matches_any_spelling(name: str) -> None:
    assert find_named_targets(MACHINE, [name]) == {DISK.id}


def test_map_selects_paths_and_adapters() -> None:
    paths = [
        endpoint(target=f"sd{letter}", id=letter, adapter=where, kind=Kind.PATH, map="dm-0")
        for letter, where in (("a", "0000:01:00.0"), ("b", "0000:02:00.0"))
    ]
    joined = endpoint(target="dm-0", id="m", adapter=None, kind=Kind.MAP, paths=("sda", "sdb"))
    adapters = (adapter(), adapter(target="0000:02:00.0"), EMPTY)
    chosen = choose_targets(machine(*paths, joined, adapters=adapters), ["dm-0"])
    assert chosen.ids == frozenset({"a", "b", "m"})
    assert [adapter.target for adapter in chosen.adapters] == ["0000:01:00.0", "0000:02:00.0"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("sdaa", "did you mean"),
        ("0000:00:02.1", "0000:00:02.0"),
        ("irq40", "carries no data"),
        ("", "hbatune list"),
    ],
)
def test_unknown_target_gives_hint(name: str, hint: str) -> None:
    with pytest.raises(UnknownTargetError) as caught:
        choose_targets(MACHINE, [name])
    assert hint in str(caught.value.hint)


def test_state_files_ignore_umask() -> None:
    before = os.umask(0o077)
    try:
        entry = Entry("a", "sda", None, "nr_requests", 256, 2048)
        with Lock(Paths.lock):
            journal.save(Paths.journal, Journal("boot", (entry,)))
            rollback_record.record_rollback(Paths(), ("a",))
            ClaimTable(Paths.claims, 1)
    finally:
        os.umask(before)
    modes = {
        path.name.partition("-")[0]: path.stat().st_mode & 0o777
        for path in (Paths.journal, *Paths.rollbacks.iterdir(), Paths.claims, Paths.lock)
    }
    assert modes == {
        "journal.json": 0o644,
        "targets": 0o644,
        "claims": 0o644,
        "lock": 0o600,
    }
    # Others pass through, and can neither list nor open (and so not lock) a folder.
    assert {path.stat().st_mode & 0o777 for path in (Paths.state, Paths.run)} == {0o711}


def test_long_name_gives_short_message() -> None:
    with pytest.raises(UnknownTargetError) as caught:
        choose_targets(machine(), ["x" * 100_000])
    assert len(caught.value.message) < 300
    assert caught.value.message.startswith("no target 'xxx")
