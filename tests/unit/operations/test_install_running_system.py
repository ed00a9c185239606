"""install and uninstall on the running system: what is told to systemd and udev, and by whom."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.act import journal, rollback_record, system
from hbatune.act.journal import Entry, Journal
from hbatune.act.paths import Paths
from hbatune.act.rollback_record import RollbackRecords
from hbatune.act.system import ToolResult
from hbatune.boot import placement
from hbatune.cli import main
from hbatune.facts.model import Machine
from hbatune.operations import install
from tests.unit.command_runs import see_machine
from tests.unit.machines import endpoint, machine
from tests.unit.site_folder import SiteFolder

HERE = machine(endpoint())
REQUIRE = install.require_trusted_command
FAILED = ToolResult(("systemctl", "restart", "hbatune.service"), 1, "Job failed.")


@pytest.fixture(autouse=True)
def system_calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, site: SiteFolder) -> list[str]:
    """Record the calls to systemd and udev. Every path of hbatune lies in a folder of the test."""
    for name in ("units", "udev_rules", "udev_writer", "modprobe"):
        path: Path = getattr(Paths, name)
        monkeypatch.setattr(Paths, name, tmp_path / "machine" / path.relative_to("/"))
    monkeypatch.setattr("hbatune.cli.arguments.require_root", lambda command: None)
    # The checkout that the tests run in may be anywhere: other users may have write access, and its
    # path may have a blank, which no unit can name.
    program = tmp_path / "hbatune"
    program.touch(mode=0o755)
    monkeypatch.setattr("sys.argv", [str(program)])
    monkeypatch.setattr("hbatune.operations.install.require_trusted_command", lambda *_: None)
    calls: list[str] = []
    for name in ("reload_rules", "reload_units", "disable"):
        monkeypatch.setattr(f"hbatune.act.system.{name}", _note(calls, name))
    monkeypatch.setattr("hbatune.act.system.enable", _enable(calls))
    see_machine(monkeypatch, lambda: HERE)
    return calls


def _note(calls: list[str], name: str) -> Callable[..., None]:
    return lambda *_: calls.append(name)


def _enable(calls: list[str]) -> Callable[..., ToolResult]:
    def enable(*, restart: bool) -> ToolResult:
        calls.append("restarted" if restart else "reloaded")
        return ToolResult(("systemctl",), 0, "")

    return enable


def test_install_starts_or_reloads_daemon(system_calls: list[str]) -> None:
    assert main(["install", "--profile", "oltp"]) == 0
    assert system_calls == ["reload_rules", "restarted"]
    assert main(["install", "--profile", "balanced"]) == 0
    assert system_calls[2:] == ["reload_rules", "reloaded"]
    assert "from its profile balanced" in Paths.udev_rules.read_text()


def test_invalid_exclusion_stops_install(
    system_calls: list[str], site: SiteFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    site.put("hbatune.toml", '[site]\nexclude = ["/dev/disk/by-id/wwn-0x1", "sda"]\n')
    assert main(["install", "--profile", "oltp"]) == 2
    errors = capsys.readouterr().err
    assert "exclude: '/dev/disk/by-id/wwn-0x1'" in errors
    assert "'sda'" not in errors
    assert not Paths.udev_rules.exists()
    assert system_calls == []
    site.put("hbatune.toml", '[site]\nexclude = ["WWN-0x5000C500SDA"]\n')
    assert main(["install", "--profile", "oltp"]) == 0


def test_start_failure_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hbatune.act.system.enable", lambda *, restart: FAILED)
    assert main(["install", "--profile", "oltp"]) == 1
    assert "`systemctl restart hbatune.service` failed: Job failed." in capsys.readouterr().err


def test_missing_systemd_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hbatune.act.system.enable", lambda *, restart: None)
    assert main(["install", "--profile", "oltp"]) == 1, "nothing starts the daemon"
    assert "systemd is not running" in capsys.readouterr().err


def test_excessive_memory_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small: Machine = replace(HERE, memory=1 << 20)
    see_machine(monkeypatch, lambda: small)
    assert main(["install", "--profile", "oltp"]) == 2
    assert "of memory" in capsys.readouterr().err
    assert not Paths.udev_rules.exists()
    assert not Paths.manifest.exists()


def test_rollback_requires_named_profile(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rollback_record.record_rollback(Paths())
    assert main(["install"]) == 2
    assert "everything was rolled back here" in capsys.readouterr().err
    assert main(["install", "--profile", "oltp"]) == 0
    assert rollback_record.load(Paths()) == RollbackRecords()


def test_writable_folder_gets_no_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = tmp_path / "hbatune"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    tmp_path.chmod(0o1777)
    monkeypatch.setattr("sys.argv", [str(command)])
    monkeypatch.setattr("hbatune.operations.install.require_trusted_command", REQUIRE)
    assert main(["install", "--profile", "oltp"]) == 2
    errors = capsys.readouterr().err
    assert f"(on the way to {command}) must be writable only by root" in errors
    assert "has mode 1777" in errors
    assert "chmod" not in errors, "what is everybody's stays so"
    assert not Paths.udev_rules.exists()
    assert not Paths.manifest.exists()


def test_path_with_blank_gets_no_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my tools").mkdir()
    command = tmp_path / "my tools/hbatune"
    command.touch(mode=0o755)
    monkeypatch.setattr("sys.argv", [str(command)])
    assert main(["install", "--profile", "oltp"]) == 2
    errors = " ".join(capsys.readouterr().err.split())
    assert f"no unit can name '{command}'" in errors
    assert "choose a path with only the characters a-z" in errors
    assert not Paths.manifest.exists()


def test_uninstall_leaves_nothing(
    system_calls: list[str], tmp_path: Path, site: SiteFolder
) -> None:
    main(["install", "--profile", "oltp"])
    Paths.history.write_text("[]")
    del system_calls[:]
    assert main(["uninstall"]) == 0
    assert system_calls == ["disable", "reload_rules", "reload_units", "reload_rules"]
    top = {"etc", "run", "var", "var/lib"}  # which every machine has
    machine = tmp_path / "machine"
    assert {str(path.relative_to(machine)) for path in machine.rglob("*")} <= top


@pytest.fixture
def old_unit(monkeypatch: pytest.MonkeyPatch, system_calls: list[str]) -> Path:
    """Return the path of a unit that the package 0.1.0 has installed, next to the daemon's."""
    main(["install", "--profile", "oltp"])
    unit = Paths.units / system.OLD_LATENCY
    unit.write_text("[Service]\nExecStart=/usr/bin/hbatune watch --collect\n")
    placement.record_file(Path("/"), Paths.manifest, unit)
    del system_calls[:]

    def disable(*units: str) -> None:
        system_calls.extend(f"disable {unit}" for unit in units)

    monkeypatch.setattr("hbatune.act.system.disable", disable)
    return unit


def test_install_removes_old_unit(old_unit: Path, system_calls: list[str]) -> None:
    assert main(["install"]) == 0
    assert system_calls == ["disable hbatune-latency.service", "reload_rules", "reloaded"]
    assert not old_unit.exists()
    assert main(["install"]) == 0
    assert system_calls[3:] == ["reload_rules", "reloaded"]


@pytest.mark.parametrize("is_removed", [False, True])
def test_uninstall_stops_old_unit(
    old_unit: Path, system_calls: list[str], *, is_removed: bool
) -> None:
    if is_removed:  # by an upgrade of the package
        old_unit.unlink()
    assert main(["uninstall"]) == 0
    stopped = [call for call in system_calls if "disable" in call]
    expected = ["disable hbatune.service", "disable hbatune-latency.service"]
    assert stopped == (expected[:1] if is_removed else expected)
    assert not old_unit.exists()


def test_uninstall_fails_if_udev_hangs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["install", "--profile", "oltp"])
    hung = ToolResult(("udevadm", "control", "--reload"), 124, "it did not end within 120 s")
    monkeypatch.setattr("hbatune.act.system.reload_rules", lambda: hung)
    assert main(["uninstall"]) == 1
    errors = " ".join(capsys.readouterr().err.split())
    assert "`udevadm control --reload` failed: it did not end within 120 s; `ps -eo pid" in errors
    assert not Paths.state.exists()


def test_failed_restore_preserves_state(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["install", "--profile", "oltp"])
    [disk] = HERE.endpoints
    entry = Entry(disk.id, disk.target, disk.adapter, "nr_requests", 256, 2048)
    journal.save(Paths.journal, Journal(HERE.boot_id, (entry,)))
    assert main(["uninstall"]) == 1
    assert "hbatune keeps its own state" in capsys.readouterr().err
    assert Paths.journal.exists()
    assert main(["uninstall", "--keep-values"]) == 0
    assert not Paths.state.exists()


def test_keep_values_conflicts_with_rollback(
    system_calls: list[str], site: SiteFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["install", "--profile", "oltp"])
    del system_calls[:]
    site.put("hbatune.toml", "[daemon]\nrollback_on_stop = true\n")
    assert main(["uninstall", "--keep-values"]) == 2
    assert "rollback_on_stop" in capsys.readouterr().err
    assert system_calls == []
    assert Paths.udev_rules.exists()


def test_broken_configuration_allows_uninstall(
    site: SiteFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["install", "--profile", "oltp"])
    file = site.put("hbatune.toml", "[daemon\n")
    assert main(["uninstall"]) == 1, "a file is left"
    assert f"{file} is no TOML" in capsys.readouterr().err
    assert file.read_text() == "[daemon\n"
    assert not Paths.udev_rules.exists()
    assert main(["uninstall", "--keep-values"]) == 1


def test_edited_options_are_preserved(capsys: pytest.CaptureFixture[str]) -> None:
    Paths.modprobe.parent.mkdir(parents=True)
    Paths.modprobe.write_text("options nvme io_queue_depth=2048\n")
    main(["install", "--profile", "oltp"])
    Paths.modprobe.write_text("mine\n")
    assert main(["uninstall"]) == 1
    assert f"{Paths.modprobe} is not as hbatune wrote it, and is left" in capsys.readouterr().err
    assert Paths.modprobe.read_text() == "mine\n"
    assert not Paths.udev_rules.exists()


def test_uninstall_requires_root(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert main(["uninstall"]) == 2
    assert "needs root" in capsys.readouterr().err
