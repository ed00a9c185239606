"""Tests of hbatune/operations/situation.py."""

from typing import Any

import pytest
from msgspec.structs import replace

from hbatune.act.journal import Entry
from hbatune.act.paths import Paths
from hbatune.facts.machine import WHOLE_MACHINE, Scope
from hbatune.facts.model import Endpoint, Machine
from hbatune.operations import situation
from hbatune.operations.reconcile import MachineCache, scan_disks
from hbatune.operations.situation import SituationRequest, read_situation, unlocked_means
from hbatune.plan.rows import Plan, State
from hbatune.policy.config import Config
from hbatune.policy.profile import AtLeast, Exactly, Match
from tests.unit.machines import attributes, endpoint, machine
from tests.unit.profiles import profile
from tests.unit.site_folder import SiteFolder

DEEP = profile(("queue_depth", AtLeast(64)))


def drive(target: str, depth: str) -> Endpoint:
    """Return a drive whose initial depth the firmware determines."""
    return endpoint(
        target=target, family="mpi3mr", attributes=attributes(device__queue_depth=depth)
    )


LOWERED = drive("sdb", "8")
EQUAL = machine(drive("sda", "32"), LOWERED)


def see_part(monkeypatch: pytest.MonkeyPatch, part: Machine) -> None:
    """Have partial scans return this part, and full scans both drives."""

    def gather(requested: object, scope: Scope = WHOLE_MACHINE, **options: Any) -> Machine:
        return part if scope.disks else EQUAL

    monkeypatch.setattr(situation, "gather_machine", gather)
    monkeypatch.setattr(situation, "read_saved_texts", lambda endpoints: {})


def test_named_disk_is_compared_with_peers(
    monkeypatch: pytest.MonkeyPatch, site: SiteFolder
) -> None:
    see_part(monkeypatch, machine(LOWERED))
    request = SituationRequest(profile=DEEP, targets=["sdb"], narrow=True)
    [row] = read_situation(request).plan().rows
    assert (row.target, row.state) == ("sdb", State.EXCLUDED)


@pytest.mark.parametrize("known", [EQUAL, machine(drive("sda", "32"))])
def test_partial_pass_needs_peers(
    known: Machine, monkeypatch: pytest.MonkeyPatch, site: SiteFolder
) -> None:
    """A udev rule may have lowered the depth of a disk that just appeared."""
    see_part(monkeypatch, machine(LOWERED))
    paths = Paths()
    means, last = unlocked_means(paths), MachineCache(paths.journal)
    last.take_whole(known, Plan("", ()), ())
    assert scan_disks(Config(), DEEP, ["sdb"], last, means) is None, "the daemon scans everything"


@pytest.mark.parametrize("reconcile", [False, True])
def test_new_disk_is_raised_like_peers(
    reconcile: bool, monkeypatch: pytest.MonkeyPatch, site: SiteFolder
) -> None:
    """The daemon's plan for an event does not reconcile, but knows the depths of the journal."""
    raised, new = drive("sda", "64"), drive("sdb", "32")
    monkeypatch.setattr(situation, "gather_machine", lambda *args, **options: machine(raised, new))
    monkeypatch.setattr(situation, "read_saved_texts", lambda endpoints: {})
    full = read_situation(SituationRequest(profile=DEEP))
    entry = Entry(raised.id, raised.target, raised.adapter, "queue_depth", 32, 64)
    full = replace(full, journal=replace(full.journal, entries=(entry,)))
    [row] = [row for row in full.plan(reconcile=reconcile).rows if row.target == "sdb"]
    assert (row.state, row.value) == (State.DRIFT, 64)


def test_partial_pass_raises_constant_depth(
    monkeypatch: pytest.MonkeyPatch, site: SiteFolder
) -> None:
    see_part(monkeypatch, machine(replace(drive("sdb", "64"), family="mptsas")))
    paths = Paths()
    means, last = unlocked_means(paths), MachineCache(paths.journal)
    last.take_whole(EQUAL, Plan("", ()), ())
    deeper = profile(("queue_depth", AtLeast(100)))
    part = scan_disks(Config(), deeper, ["sdb"], last, means)
    assert part is not None, "no other disk has to be read"
    assert [row.value for row in part.plan().rows] == [100]


def test_partial_pass_does_not_know_uses(monkeypatch: pytest.MonkeyPatch, site: SiteFolder) -> None:
    """It reads no mounts and pools, and would restore what a rule for a use has set."""
    see_part(monkeypatch, machine(drive("sdb", "64")))
    paths = Paths()
    means, last = unlocked_means(paths), MachineCache(paths.journal)
    last.take_whole(EQUAL, Plan("", ()), ())
    assert scan_disks(Config(), profile(), ["sdb"], last, means) is not None
    [rule] = profile(("nomerges", Exactly(1))).rules
    of_use = replace(profile(), rules=(replace(rule, when=Match(use=("/srv",))),))
    assert scan_disks(Config(), of_use, ["sdb"], last, means) is None
