"""`rollback --dry-run`: what would go back, without a write."""

import json
from pathlib import Path

import pytest

from hbatune.act.paths import Paths
from hbatune.cli import main
from tests.documented import validate
from tests.unit.command_runs import see_machine
from tests.unit.disk_files import Disk
from tests.unit.machines import machine
from tests.unit.site_folder import NOMERGES_PROFILE, SiteFolder

APPLY = ("apply", "--profile", "test", "--no-probe")
PREVIEW = ("rollback", "--dry-run")


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, site: SiteFolder) -> tuple[Disk, Disk]:
    """Two disks whose nomerges a profile sets."""
    first, second = Disk(tmp_path / "sys", "sda"), Disk(tmp_path / "sys", "sdb")
    site.put("profiles/test.toml", NOMERGES_PROFILE)
    see_machine(monkeypatch, lambda: machine(first.endpoint(), second.endpoint()))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("hbatune.act.interrupts.ban_interrupts", lambda irqs, paths: None)
    return first, second


def nomerges(disk: Disk) -> str:
    return (disk.path / "queue/nomerges").read_text().strip()


@pytest.mark.usefixtures("disks")
def test_missing_journal_restores_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PREVIEW]) == 0
    assert capsys.readouterr().out == "Nothing to restore: the journal is empty.\n"


@pytest.mark.usefixtures("disks")
def test_invalid_configuration_claims_no_rollback(
    site: SiteFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    site.put("hbatune.toml", "profile = [")
    assert main([*PREVIEW]) == 0
    output, messages = capsys.readouterr()
    assert output == "Nothing to restore: the journal is empty.\n"
    assert messages.strip().endswith("; a rollback does not need it")


def test_preview_shows_values_without_writing(
    disks: tuple[Disk, Disk], capsys: pytest.CaptureFixture[str]
) -> None:
    main([*APPLY])
    before = Paths.journal.read_bytes()
    capsys.readouterr()
    assert main([*PREVIEW]) == 0
    output = capsys.readouterr().out
    assert "2 values would be restored; 0 unchanged." in output
    assert "Nothing was written." in output
    assert [nomerges(disk) for disk in disks] == ["1", "1"]
    assert Paths.journal.read_bytes() == before
    assert not Paths.hands_off.exists()


def test_preview_needs_no_root(
    disks: tuple[Disk, Disk],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    main([*APPLY])
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    capsys.readouterr()
    assert main([*PREVIEW, "sda"]) == 0
    assert "1 value would be restored" in capsys.readouterr().out


def test_json_preview_lists_outcomes(
    disks: tuple[Disk, Disk], capsys: pytest.CaptureFixture[str]
) -> None:
    main([*APPLY])
    (disks[0].path / "queue/nomerges").write_text("0\n")  # somebody has put one back already
    capsys.readouterr()
    main([*PREVIEW, "--json"])
    document = json.loads(capsys.readouterr().out)
    validate(document)
    rows = {row["target"]: row for row in document["rows"]}
    assert (rows["sda"]["outcome"], rows["sda"]["current"]) == ("kept", 0)
    assert (rows["sdb"]["outcome"], rows["sdb"]["before"]) == (None, 0)
    assert document["outcomes"] == {"kept": 1}
    assert main(["rollback"]) == 0
    assert [nomerges(disk) for disk in disks] == ["0", "0"]
