"""Tests of hbatune/text/plan_tables.py: the rows of a plan on a terminal."""

from typing import Any

import pytest

from hbatune.facts.model import Endpoint
from hbatune.plan.rows import Outcome, Row, State
from hbatune.text.plan_tables import show_rows
from tests.unit.machines import endpoint, machine

SAS = "0000:01:00.0"


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("terminal", "plan_tables"):
        monkeypatch.setattr(f"hbatune.text.{module}.get_width", lambda stream=None: 80)


def make_row(target: str, setting: str, state: State = State.DRIFT, **fields: object) -> Row:
    """Return a row that raises 256 to 2048."""
    names = ("target", "id", "adapter", "setting", "current", "wanted", "value", "state")
    values = (target, target, SAS, setting, 256, 2048, 2048, state)
    rest = {"limit": None, "why": "a test", "source": "site", "rule": "test"}
    return Row(**{**dict(zip(names, values, strict=True)), **rest, **fields})  # type: ignore[arg-type]


def list_lines(capsys: pytest.CaptureFixture[str], *rows: Row, unfold: bool = False) -> list[str]:
    disks: list[Endpoint] = [endpoint(target=name, id=name) for name in ("sda", "sdb", "sdc")]
    show_rows(rows, machine(*disks), unfold=unfold)
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_disks_with_equal_rows_share_lines(capsys: pytest.CaptureFixture[str]) -> None:
    settings = ("nr_requests", "rq_affinity")
    equal = [make_row(disk, setting) for setting in settings for disk in ("sda", "sdb")]
    lines = list_lines(capsys, *equal, make_row("sdc", "nr_requests"))
    change = "256 → 2048 a test (site)"
    assert [line.partition(":")[0] for line in lines if ": sas ssd" in line] == ["sda sdb", "sdc"]
    assert lines.count(f"nr_requests {change}") == 2
    assert lines.count(f"rq_affinity {change}") == 1


def test_every_setting_of_controller_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [make_row("nvme0", setting) for setting in ("coalescing", "io_timeout")]
    for unfold in (False, True):
        lines = list_lines(capsys, *rows, unfold=unfold)
        for setting in ("coalescing", "io_timeout"):
            assert [line for line in lines if line.startswith(f"nvme0 {setting} 256 → 2048")]


def test_unwritten_value_has_no_arrow(capsys: pytest.CaptureFixture[str]) -> None:
    excluded = make_row("sda", "queue_depth", State.EXCLUDED, limit="lowered by hand", value=None)
    refused = make_row("sdb", "nr_requests", outcome=Outcome.REFUSED, errno=22)
    lines = list_lines(capsys, excluded, refused)
    assert "queue_depth 256 excluded lowered by hand" in lines
    assert "nr_requests 256 → 2048 refused Invalid argument" in lines


def test_vectors_with_one_reason_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    def make_vector(irq: int, current: int = 5, **fields: Any) -> Row:
        values = {"value": irq - 48, "wanted": "local", **fields}
        return make_row(f"irq{irq}", "irq_affinity", current=current, **values)

    moved = [make_vector(irq) for irq in (50, 51, 52)]
    refused = make_vector(54, outcome=Outcome.REFUSED, errno=22)
    name = "irq50 irq51 irq52 irq_affinity"
    assert list_lines(capsys, *moved)[-2] == f"{name} 5 → 2, 3, 4 a test (site)"
    unlike = [make_vector(irq, current=irq - 50) for irq in (50, 51, 52)]
    lines = list_lines(capsys, *unlike, refused)
    assert f"{name} 0, 1, 2 → 2, 3, 4 a test (site)" in lines
    assert "irq54 irq_affinity 5 → 6 refused Invalid argument" in lines
    many = [make_vector(irq) for irq in range(50, 114)]
    lines = list_lines(capsys, *many)
    assert "irq50..irq113 (64) irq_affinity 5 → 2, 3, ..., 65 a test (site)" in lines
    lines = list_lines(capsys, *many, unfold=True)
    assert [line for line in lines if line.startswith("irq51 irq_affinity 5 → 3 a test")]
    assert len(lines) > len(many)
