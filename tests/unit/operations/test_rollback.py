"""The order of rollback, apply and uninstall: record, lock, values, state, lock file."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hbatune.act import lock, rollback_record
from hbatune.act.lock import Lock
from hbatune.act.paths import Paths
from hbatune.boot import placement
from hbatune.boot.placement import Piece
from hbatune.cli import main
from hbatune.errors import LockedError
from tests.unit.command_runs import see_machine
from tests.unit.disk_files import Disk
from tests.unit.machines import machine
from tests.unit.site_folder import NOMERGES_PROFILE, SiteFolder

APPLY = ("apply", "--profile", "test", "--no-probe")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, site: SiteFolder) -> Disk:
    """A disk whose nomerges the profile sets."""
    disk_files = Disk(tmp_path / "sys", "sda")
    site.put("profiles/test.toml", NOMERGES_PROFILE)
    see_machine(monkeypatch, lambda: machine(disk_files.endpoint()))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("hbatune.act.interrupts.ban_interrupts", lambda irqs, paths: None)
    for name in ("reload_rules", "reload_units", "disable", "announce"):
        monkeypatch.setattr(f"hbatune.act.system.{name}", lambda *units: None)
    monkeypatch.setattr("hbatune.operations.install.find_marked_disks", list)
    return disk_files


@contextmanager
def held_elsewhere(path: Path | None = None) -> Iterator[int]:
    """Hold a lock, by default that of the runs, in another process; yield its pid."""
    ready, started = os.pipe()
    hold, release = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(release)
        with Lock(path or Paths.lock):
            os.write(started, b"x")
            os.read(hold, 1)
        os._exit(0)
    os.close(hold)
    os.read(ready, 1)
    try:
        yield pid
    finally:
        os.close(release)
        os.waitpid(pid, 0)


def refused_elsewhere() -> bool:
    """Return whether another process finds the lock held."""
    pid = os.fork()
    if pid == 0:
        lock._locked_paths.clear()
        try:
            with Lock(Paths.lock):
                os._exit(0)
        except LockedError:
            os._exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3


def test_rollback_is_recorded_before_lock(disk: Disk, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*APPLY]) == 0
    with held_elsewhere() as pid:
        assert main(["rollback"]) == 3
    error = " ".join(capsys.readouterr().err.split())
    assert f"process {pid}: `" in error
    assert ", started 20" in error
    assert "the rollback is recorded, nothing is restored yet" in error
    assert "run `hbatune rollback` again" in error
    assert rollback_record.load(Paths()).covers_all
    assert disk.value("queue/nomerges") == "1"
    assert main(["rollback"]) == 0
    assert disk.value("queue/nomerges") == "0"


@pytest.mark.parametrize("targets", [["sdz"], ["sda", "sdz"]])
def test_unknown_target_is_not_recorded(disk: Disk, targets: list[str]) -> None:
    assert main([*APPLY]) == 0
    assert main(["rollback", *targets]) == 2
    assert rollback_record.load(Paths()).records == ()


def test_rollback_during_apply_cancels_writes(
    disk: Disk,
    site: SiteFolder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from hbatune.operations import apply, situation

    survey = situation.read_situation

    def survey_later(*arguments: Any, **options: Any) -> object:
        rollback_record.record_rollback(Paths())
        return survey(*arguments, **options)

    monkeypatch.setattr(apply, "read_situation", survey_later)
    assert main([*APPLY]) == 1
    output = capsys.readouterr()
    assert disk.value("queue/nomerges") == "0"
    assert "cancelled" in output.out
    assert "a rollback was recorded during this run" in " ".join(output.err.split())
    assert not (site.library.site / "hbatune.toml").exists(), "no profile is active"
    assert rollback_record.load(Paths()).covers_all, "it was not lifted"


def test_target_rollback_covers_one_disk(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    second_disk = Disk(tmp_path / "sys", "sdb")
    host = machine(disk.endpoint(), second_disk.endpoint())
    see_machine(monkeypatch, lambda: host)
    Paths.rollbacks.mkdir(parents=True)
    (Paths.rollbacks / "targets-1").write_text("{")
    assert main([*APPLY]) == 0, "it lifts the damaged record"
    (Paths.rollbacks / "targets-2").write_text("{")
    assert main(["rollback", "sda"]) == 0
    records = rollback_record.load(Paths())
    assert [record.ids for record in records.records if not record.damaged] == [
        (disk.endpoint().id,)
    ]


def test_uninstall_holds_one_lock(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main([*APPLY]) == 0
    refused: list[bool] = []

    def try_lock(*units: object) -> None:
        refused.append(refused_elsewhere())

    for name in ("reload_rules", "reload_units", "announce"):
        monkeypatch.setattr(f"hbatune.act.system.{name}", try_lock)
    assert main(["uninstall"]) == 0
    assert refused == [True, True, True]
    assert not Paths.state.exists()
    assert not Paths.lock.exists()


@pytest.mark.parametrize("options", [(), ("--keep-values",)])
def test_uninstall_waits_for_unmanaged_daemon(
    disk: Disk, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    assert main([*APPLY]) == 0
    with held_elsewhere(Paths.daemon_lock) as pid:
        assert main(["uninstall", *options]) == 3
    error = " ".join(capsys.readouterr().err.split())
    assert f"process {pid}: `" in error
    assert "is a daemon that still runs" in error
    assert "run `hbatune uninstall` again" in error
    assert disk.value("queue/nomerges") == "1"
    assert Paths.journal.exists()
    assert main(["uninstall", *options]) == 0
    assert not Paths.state.exists()
    assert not Paths.run.exists()


STATE_REMOVALS: list[tuple[str, bool]] = []
_watched: list[Path] = []


def _note_removal(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watched or event not in ("os.remove", "os.rmdir", "os.rename"):
        return
    path = Path(os.fsdecode(arguments[1 if event == "os.rename" else 0]))
    if any(path.is_relative_to(folder) for folder in _watched):
        STATE_REMOVALS.append((str(path), Paths.lock in lock._locked_paths))


def test_state_is_removed_under_lock(disk: Disk) -> None:
    """No function in act/ replaces or removes state outside the lock, except a rollback record."""
    sys.addaudithook(_note_removal)
    _watched.append(Paths.state)
    STATE_REMOVALS.clear()
    try:
        assert main([*APPLY]) == 0
        assert main(["rollback", "sda"]) == 0
        assert main([*APPLY, "sda"]) == 0
        assert main(["uninstall"]) == 0
    finally:
        _watched.clear()
    assert len(STATE_REMOVALS) > 5
    outside = {path for path, is_held in STATE_REMOVALS if not is_held}
    assert {Path(path).parent for path in outside} <= {Paths.rollbacks}


def test_damaged_manifest_permits_rollback(disk: Disk, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*APPLY]) == 0
    Paths.manifest.write_text("{")
    assert main(["rollback"]) == 1
    assert disk.value("queue/nomerges") == "0"
    assert f"{Paths.manifest} cannot be read" in capsys.readouterr().err


def test_unreadable_rules_permit_rollback(
    disk: Disk,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("udev_rules", "modprobe"):
        path: Path = getattr(Paths, name)
        monkeypatch.setattr(Paths, name, tmp_path / path.relative_to("/"))
    assert main([*APPLY]) == 0
    placed = [Piece(path, "#\n") for path in (Paths.udev_rules, Paths.modprobe)]
    placement.place_pieces(placement.ROOT, Paths.manifest, placed)
    read = Path.is_symlink

    def is_symlink(path: Path) -> bool:
        if path in (Paths.udev_rules, Paths.modprobe):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(path)

    monkeypatch.setattr(Path, "is_symlink", is_symlink)
    assert main(["rollback"]) == 1
    assert disk.value("queue/nomerges") == "0"
    errors = capsys.readouterr().err
    assert all(f"{piece.path} cannot be read" in errors for piece in placed)
