"""Tests of hbatune/text/leftovers.py."""

from pathlib import Path

import pytest

from hbatune.act import lock
from hbatune.act.chain import Chain
from hbatune.act.journal import Entry, Journal
from hbatune.act.lock import ClaimTable
from hbatune.act.rollback_record import RollbackRecords
from hbatune.operations.situation import Traces
from hbatune.text.leftovers import print_leftovers
from hbatune.workers import find_this_process
from tests.unit.machines import machine

WAITS = "; until then, adding and removing disks of this adapter waits"


@pytest.mark.parametrize(
    ("setting", "turn", "text"),
    [
        ("nr_requests", "/sys/block/sda", WAITS),
        ("scheduler", "/sys/block/sda", WAITS),
        ("nr_requests", None, ""),  # this kernel locks no adapter
        ("max_sectors_kb", "/sys/block/sda", ""),
    ],
)
def test_stuck_write_names_what_waits(
    setting: str, turn: str | None, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer, path = find_this_process(), tmp_path / "claims"
    with ClaimTable(path, 1) as table:
        table.started(writer, Chain("sda", "id-sda", "a", None, "/sys/block/sda", (), turn=turn))
    filed = Journal("boot", entries=(Entry("id-sda", "sda", "a", setting, 1, 2, doubt=writer),))
    claims = lock.find_outstanding_claims(path)
    print_leftovers(Traces(filed, RollbackRecords(), machine(), tuple(claims)))
    printed = " ".join(capsys.readouterr().err.split())
    assert printed.endswith(f"hbatune skips its settings until its I/O ends{text}")
