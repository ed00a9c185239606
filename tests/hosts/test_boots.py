"""What outlives a boot: ids, what was rolled back, and the journals of before."""

from collections.abc import Callable, Collection
from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.act.journal import Journal
from hbatune.act.rollback_record import RollbackRecord, RollbackRecords
from hbatune.boot.compile import compile_rules
from hbatune.facts.assembly import without_attributes
from hbatune.facts.model import Endpoint, Machine
from hbatune.facts.targets import choose_targets, find_named_targets, list_targets
from hbatune.operations.situation import Situation
from hbatune.plan.rows import State
from hbatune.policy.config import Config, Site
from hbatune.settings.table import list_attributes
from tests.hosts.boots import server
from tests.hosts.namespace import gather_in
from tests.hosts.tree import Described, build
from tests.hosts.udev_events import event, shipped_profile

Gather = Callable[[Described], tuple[Path, Machine]]

LATER = ("sdd", "sdc", "sda", "sde", "sdb")
PROFILE = shipped_profile("oltp")


@pytest.fixture
def boot(tmp_path: Path) -> Gather:
    """Return what boots a described machine: its tree and its facts, each boot with an id."""
    count = 0

    def gather(described: Described) -> tuple[Path, Machine]:
        nonlocal count
        count += 1
        root = tmp_path / f"boot-{count}"
        build(described, root)
        return root, replace(gather_in(root, list_attributes()), boot_id=f"boot-{count}")

    return gather


def disk(machine: Machine, wwid: str) -> Endpoint:
    [endpoint] = (endpoint for endpoint in machine.endpoints if endpoint.id.startswith(f"{wwid}@"))
    return endpoint


def left_alone(machine: Machine, records: RollbackRecords) -> set[str]:
    """The disks that the profile would tune and hbatune does not."""
    chosen, filed = choose_targets(machine, ()), Journal(machine.boot_id)
    situation = Situation(Config(), PROFILE, machine, chosen, filed, records, (), {}, Site())
    return {row.target for row in situation.plan().rows if row.state is State.EXCLUDED}


def written(root: Path, machine: Machine, excluded: Collection[str]) -> set[str]:
    """The disks that the rules for boot set anything on."""
    rules = compile_rules(PROFILE, Site(), excluded=excluded)
    return {
        endpoint.target for endpoint in machine.endpoints if event(root, endpoint, rules).written
    }


def test_ids_survive_renumbering(boot: Gather) -> None:
    _, first_boot = boot(server())
    _, second_boot = boot(server(7, names=LATER))
    assert {endpoint.target for endpoint in first_boot.endpoints} != {
        endpoint.target for endpoint in second_boot.endpoints
    }
    assert set(list_targets(first_boot)) == set(list_targets(second_boot))
    assert {vector.id for vector in first_boot.vectors} == {
        vector.id for vector in second_boot.vectors
    }
    assert {endpoint.id.partition("@")[2] for endpoint in first_boot.endpoints} == {
        "0000:01:00.0/sas-0x5000c500a1b2c3e1-lun-0",
        "0000:01:00.0/sas-0x5000c500a1b2c3d1-lun-0",
        "0000:02:00.0/scsi-0:4:0",
        "0000:00:1f.2/ata-2",
        "0000:04:00.0",
        "iscsi/ip-10.0.0.1:3260-iscsi-iqn.2003-01.org.linux-iscsi:disk-lun-1",
    }
    assert {control.id for control in first_boot.controls} == {
        "host-0@0000:01:00.0",
        "host-0@0000:02:00.0",
        "host-0@0000:00:1f.2",
        "host-1@0000:00:1f.2",
        "controller-0@0000:04:00.0",
        "host-0@iscsi",
    }


@pytest.mark.parametrize("wwid", ["naa.5000c500a1b2c3d0", "eui.0025385b71b00c6f", "naa.5002"])
def test_rollback_survives_reboot(boot: Gather, wwid: str) -> None:
    _, first_boot = boot(server())
    rolled_back = RollbackRecord("targets-1", (disk(first_boot, wwid).id,))
    root, second_boot = boot(server(7, names=LATER))
    records = RollbackRecords((rolled_back,)).with_current_ids(second_boot)
    again = disk(second_boot, wwid)
    assert left_alone(second_boot, records) == {again.target}
    unhindered = written(root, second_boot, ())
    assert len(unhindered) > 1
    assert written(root, second_boot, records.ids) == unhindered - {again.target}


def test_replacement_drive_is_tuned(boot: Gather) -> None:
    _, first_boot = boot(server())
    removed_disk = disk(first_boot, "naa.5000c500a1b2c3d0")
    rolled_back = RollbackRecord("targets-1", (removed_disk.id,))
    root, second_boot = boot(server(swapped=True))
    new = disk(second_boot, "naa.5000c500bbbbbbb0")
    assert new.address == removed_disk.address
    records = RollbackRecords((rolled_back,)).with_current_ids(second_boot)
    assert left_alone(second_boot, records) == set()
    assert new.target in written(root, second_boot, records.ids)


def test_target_names_resolve(boot: Gather) -> None:
    _, machine = boot(server(3, names=LATER))
    for endpoint in machine.endpoints:
        for name in (
            endpoint.target,
            f"/dev/{endpoint.target}",
            endpoint.id,
        ):
            assert find_named_targets(machine, [name]) == {endpoint.id}
    assert without_attributes(machine).endpoints[0].id == machine.endpoints[0].id
