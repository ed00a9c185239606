"""The 9600's driver with other options, with other firmware and loaded anew."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.guest import tri_mode
from tests.lab.guest.command import Done, configure, hbatune
from tests.lab.guest.main_job import CARD_ALONE, apply_and_back, expected, list_disk_kinds
from tests.lab.guest.tri_mode import Card, loaded

TOPOLOGY = "tri-mode"


@pytest.fixture(autouse=True)
def one_profile() -> Iterator[None]:
    """The lab's own disks stay out of it."""
    configure(CARD_ALONE)
    yield
    configure("")


def test_flat_host_applies_and_reverts() -> None:
    """Firmware that offers multipath: no SAS transport class, all drives on channel 0."""
    with Card() as card:
        card.set("multipath", "on")
        try:
            with loaded():
                assert not list(Path("/sys/class/sas_end_device").iterdir())
                assert {cat_address(disk)[1] for disk in tri_mode.disks()} == {"0"}
                assert list_disk_kinds() == expected()
                apply_and_back()
        finally:
            card.set("multipath", "off")
    # The finally of ``loaded`` has loaded the driver while the card still was flat.
    with loaded():
        assert list(Path("/sys/class/sas_end_device").iterdir())


def cat_address(disk: str) -> list[str]:
    return (Path("/sys/block") / disk / "device").resolve().name.split(":")


def test_polled_vectors_are_not_moved() -> None:
    with loaded(poll_queues=1):
        document = hbatune("list", "--json").json
        [card] = [adapter for adapter in document["adapters"] if adapter["family"] == "mpi3mr"]
        vectors = [vector for vector in document["vectors"] if vector["adapter"] == card["target"]]
        assert [vector["role"] for vector in vectors] == ["admin", "data", "data", "polled"]
        # The kernel chooses which serves which CPU (lib/group_cpus.c: group_cpus_evenly).
        assert sorted(vector["serves"] for vector in vectors[1:3]) == ["0", "1"]
        polled = f"irq{vectors[-1]['irq']}"
        plan = hbatune("diff", "--profile", "oltp", "--json")
        assert not plan.rows(target=polled)
        assert "free, never fires" in hbatune("list", "--all").out


def test_reloaded_driver_is_tuned() -> None:
    assert applied().code == 0
    wanted = tri_mode.depths()
    with loaded():
        assert set(tri_mode.depths().values()) == {tri_mode.OWN}
        assert applied().code == 0
        assert sorted(tri_mode.depths().values()) == sorted(wanted.values())
        back = hbatune("rollback")
        assert back.code == 0, back.out + back.err
        assert set(tri_mode.depths().values()) == {tri_mode.OWN}


def applied() -> Done:
    return hbatune("apply", "--profile", "oltp", "--no-probe")
