"""Tests of hbatune/operations/boot_files.py."""

from pathlib import Path

import pytest

from hbatune.act.paths import Paths
from hbatune.boot import placement
from hbatune.boot.compile import compile_rules
from hbatune.boot.placement import Piece
from hbatune.cli.command_context import make_context
from hbatune.operations import boot_files
from hbatune.policy.config import Config, Site
from tests.unit.site_folder import SiteFolder


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Paths, "udev_rules", tmp_path / "rules.d/89-hbatune.rules")
    monkeypatch.setattr(Paths, "udev_writer", tmp_path / "hbatune-write.sh")
    monkeypatch.setattr("hbatune.act.system.reload_rules", lambda: None)


def installed() -> None:
    placement.place_pieces(placement.ROOT, Paths.manifest, [Piece(Paths.udev_rules, "old\n")])


def test_missing_rules_stay_missing() -> None:
    assert boot_files.refresh_active_rules(make_context(), Config(profile="oltp"), ())
    assert not Paths.udev_rules.exists()


def test_apply_regenerates_rules(site: SiteFolder) -> None:
    installed()
    assert boot_files.refresh_rules(make_context(), compile_rules(site.load("balanced"), Site()))
    rules_text = Paths.udev_rules.read_text()
    assert "from its profile balanced" in rules_text
    assert f'PROGRAM=="/bin/sh {Paths.udev_writer} ' in rules_text
    assert "set_value" in Paths.udev_writer.read_text()


def test_rules_skip_rolled_back_disk(site: SiteFolder) -> None:
    installed()
    rolled_back_id = "naa.5000c500@0000:01:00.0/scsi-0:7:1"
    rules = compile_rules(site.load(), Site(), excluded=(rolled_back_id,))
    assert boot_files.refresh_rules(make_context(), rules)
    named = 'ATTR{device/wwid}=="naa.5000c500", KERNELS=="0000:01:00.0", GOTO="hbatune_end"'
    assert named in Paths.udev_rules.read_text()


def test_edited_rules_are_preserved(site: SiteFolder, capsys: pytest.CaptureFixture[str]) -> None:
    installed()
    Paths.udev_rules.write_text("mine\n")
    assert not boot_files.refresh_rules(make_context(), compile_rules(site.load(), Site()))
    assert not boot_files.withdraw_rules(make_context())
    assert Paths.udev_rules.read_text() == "mine\n"
    errors = capsys.readouterr().err
    assert "the udev rules were not changed" in errors
    assert "it tunes disks still" in errors


def test_edited_program_is_preserved(site: SiteFolder, capsys: pytest.CaptureFixture[str]) -> None:
    installed()
    rules = compile_rules(site.load(), Site())
    assert boot_files.refresh_rules(make_context(), rules)
    Paths.udev_writer.write_text("mine\n")
    other = compile_rules(site.load("throughput"), Site())
    assert not boot_files.refresh_rules(make_context(), other)
    assert Paths.udev_writer.read_text() == "mine\n"
    assert "hbatune-write.sh" in capsys.readouterr().err


def test_apply_recreates_withdrawn_rules(site: SiteFolder) -> None:
    installed()
    assert boot_files.withdraw_rules(make_context())
    assert not Paths.udev_rules.exists()
    assert boot_files.withdraw_rules(make_context())
    assert boot_files.refresh_rules(make_context(), compile_rules(site.load(), Site()))
    assert Paths.udev_rules.exists()
