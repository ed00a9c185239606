"""--module-options on the command line: shown, written down, taken away, and what is said of it."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.act.paths import Paths
from hbatune.cli import main
from hbatune.cli.command_context import make_context
from hbatune.facts.model import Attribute, Endpoint, Machine, Module
from hbatune.operations.apply import ApplyRequest, apply_profile
from hbatune.operations.boot_files import remove_options, write_options
from hbatune.operations.situation import SituationRequest, read_situation
from hbatune.plan.rows import Outcome, Row, State
from tests.unit.command_runs import see_machine
from tests.unit.machines import endpoint, machine
from tests.unit.site_folder import SiteFolder

DATA, ROOT = endpoint(mounts=("/srv",)), endpoint(mounts=("/",))


def restricted(disk: Endpoint) -> Machine:
    """A machine whose mpt3sas was loaded with MSI-X off and 1000 commands at most."""
    texts = {"msix_disable": "1", "max_queue_depth": "1000", "max_msix_vectors": "-1"}
    module = Module("mpt3sas", {name: Attribute(text, False) for name, text in texts.items()})
    return replace(machine(disk), modules=(module,))


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, site: SiteFolder) -> None:
    monkeypatch.setattr(Paths, "modprobe", tmp_path / "modprobe.d" / "hbatune.conf")
    monkeypatch.setattr(
        "hbatune.operations.boot_files.find_initramfs_command", lambda: "update-initramfs -u"
    )
    see(monkeypatch, restricted(DATA))


def see(monkeypatch: pytest.MonkeyPatch, host: Machine) -> None:
    see_machine(monkeypatch, lambda: host)


def write(*targets: str) -> tuple[Row, ...]:
    return write_options(
        make_context(), read_situation(SituationRequest(profile="oltp", targets=targets)), targets
    )


def list_option_states(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, str]:
    main(["diff", "--profile", "oltp", "--json", *words])
    rows = json.loads(capsys.readouterr().out)["rows"]
    return {row["setting"]: row["state"] for row in rows if "." in row["setting"]}


def test_options_are_shown_on_request(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert list_option_states(capsys) == {}
    assert list_option_states(capsys, "--module-options") == {
        "mpt3sas.msix_disable": "drift",
        "mpt3sas.max_queue_depth": "drift",
        "mpt3sas.max_msix_vectors": "ok",
    }
    assert not Paths.modprobe.exists()


def test_written_options_are_pending(
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = {row.setting: (row.state, row.outcome) for row in write()}
    assert done == {
        "mpt3sas.msix_disable": (State.PENDING, Outcome.WRITTEN),
        "mpt3sas.max_queue_depth": (State.PENDING, Outcome.WRITTEN),
        "mpt3sas.max_msix_vectors": (State.OK, Outcome.KEPT),
    }
    content = Paths.modprobe.read_text()
    assert "options mpt3sas max_queue_depth=-1\n" in content
    assert "options mpt3sas msix_disable=0\n" in content
    assert "max_msix_vectors" not in content
    errors = capsys.readouterr().err
    assert "loaded next" in errors
    assert "where the initramfs holds mpt3sas, rebuild that: `update-initramfs -u`" in errors
    assert set(list_option_states(capsys, "--module-options").values()) == {"pending", "ok"}


def test_snapshot_includes_pending_options(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    see_machine(monkeypatch, lambda: restricted(DATA))
    write()
    file = str(tmp_path / "host.snapshot")
    assert main(["snapshot", file]) == 0
    capsys.readouterr()
    states = list_option_states(capsys, "--module-options")
    Paths.modprobe.unlink()
    assert list_option_states(capsys, "--module-options", "--snapshot", file) == states
    assert "pending" in states.values()


def test_options_need_the_switch() -> None:
    apply_profile(make_context(), ApplyRequest(profile="oltp", once=True, probe=False))
    assert not Paths.modprobe.exists()


def test_root_adapter_needs_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    see(monkeypatch, restricted(ROOT))
    assert {row.state for row in write()} == {State.EXCLUDED, State.OK}
    assert not Paths.modprobe.exists()
    assert Outcome.WRITTEN in {row.outcome for row in write("0000:01:00.0")}
    assert "rebuild that, `update-initramfs -u`, or the next boot" in capsys.readouterr().err
    # A later run that does not name it leaves what was written down.
    write()
    assert "options mpt3sas msix_disable=0\n" in Paths.modprobe.read_text()


def test_unwritable_file_refuses_rows() -> None:
    Paths.modprobe.parent.write_text("in the way")
    refused = [row for row in write() if row.outcome is Outcome.REFUSED]
    assert {row.setting for row in refused} == {"mpt3sas.msix_disable", "mpt3sas.max_queue_depth"}
    assert all(row.errno for row in refused)


def test_unremovable_file_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    Paths.modprobe.mkdir(parents=True)
    assert not remove_options(make_context(), restricted(DATA))
    assert "cannot remove" in capsys.readouterr().err


def test_rollback_removes_option_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write()
    capsys.readouterr()
    assert remove_options(make_context(), restricted(ROOT))
    assert not Paths.modprobe.exists()
    errors = capsys.readouterr().err
    assert "was removed" in errors
    assert "rebuild that, `update-initramfs -u`" in errors
    assert remove_options(make_context(), restricted(ROOT))
    assert capsys.readouterr().err == ""
