"""Adapters whose coalescing nobody can set: each is a row that says so, and is not drift."""

import pytest

from hbatune.facts.families import family_of
from hbatune.plan.make import make_plan
from hbatune.plan.rows import Row, State
from hbatune.policy.profile import Exactly
from hbatune.text.limit_text import describe_limit
from hbatune.text.plan_tables import show_rows
from tests.unit.machines import adapter, machine
from tests.unit.profiles import profile


def rows(family: str, **overrides: object) -> list[Row]:
    card = adapter(target="0000:01:00.0", family=family, controller=None, **overrides)
    plan = make_plan(machine(adapters=(card,)), profile(("coalescing", Exactly(0))))
    return list(plan.rows)


@pytest.mark.parametrize("family", ["smartpqi", "ahci", "virtio_scsi", "ipr"])
def test_driver_without_lever_is_absent(family: str) -> None:
    [row] = rows(family)
    assert (row.target, row.adapter, row.setting) == ("0000:01:00.0", "0000:01:00.0", "coalescing")
    assert (row.state, row.value) == (State.ABSENT, None)
    assert "no option for it" in describe_limit(row.limit)


def test_hpsa_coalescing_is_fixed() -> None:
    [row] = rows("hpsa")
    assert (row.state, row.value) == (State.FIXED, None)


@pytest.mark.parametrize("family", ["lpfc", "qla2xxx", "mpi3mr", "mpt3sas", "megaraid_sas", "nvme"])
def test_driver_with_lever_is_omitted(family: str) -> None:
    assert rows(family) == []


def test_adapter_without_interrupts_is_omitted() -> None:
    assert rows("iscsi_tcp", pci=None) == []


def test_only_named_adapter_planned() -> None:
    card = adapter(target="0000:01:00.0", family="smartpqi", controller=None)
    wanted = profile(("coalescing", Exactly(0)))
    host = machine(adapters=(card,))
    assert make_plan(host, wanted, only={"sda@0000:02:00.0-0:0:0:0"}).rows == ()
    assert len(make_plan(host, wanted, only={"0000:01:00.0"}).rows) == 1


def test_row_shows_only_unfolded(capsys: pytest.CaptureFixture[str]) -> None:
    card = adapter(target="0000:01:00.0", family="smartpqi", controller=None)
    planned_rows = rows("smartpqi")
    show_rows(planned_rows, machine(adapters=(card,)), unfold=False)
    assert capsys.readouterr().out == ""
    show_rows(planned_rows, machine(adapters=(card,)), unfold=True)
    assert "no option for it" in capsys.readouterr().out


@pytest.mark.parametrize("driver", ["ata_piix", "rtsx_pci", "sdhci-pci", "mlx5_core"])
def test_unknown_driver_has_no_row(driver: str) -> None:
    assert rows(family_of(driver).name, driver=driver) == []
