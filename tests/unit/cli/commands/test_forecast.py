"""`hbatune forecast`: exit codes, the table and the JSON document."""

import json
from itertools import permutations
from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.cli import main
from hbatune.operations import snapshot as snapshots
from hbatune.plan.kernel_changes import SERIES
from hbatune.snapshot.file import Snapshot, encode_snapshot
from tests.documented import validate
from tests.hosts.parts import MODULES
from tests.recorded_boots import FOLDER
from tests.unit.check_inputs import ADAPTER
from tests.unit.fleets import host
from tests.unit.machines import adapter
from tests.unit.plan.test_kernel_changes import DISKS, RELEASES

Capture = pytest.CaptureFixture[str]


ONLY_DEFAULTS = "Only defaults change."
MODINFO = """#!/bin/sh
# modinfo -k RELEASE -F parm MODULE
test "$1 $3 $4" = "-k -F parm" || exit 2
case "$2 $5" in
"7.3.10+deb13-amd64 mpi3mr") printf 'max_sgl_entries:Segments (int)\\n' ;;
"7.3.10+deb13-amd64 xen_blkfront") ;;
*) exit 1 ;;
esac
"""


def describe_host(series: str, driver: str, *other_drivers: str) -> Snapshot:
    """Return a host with one rotational disk and adapters with these drivers."""
    snapshot = host(1)
    [old, *others] = snapshot.machine.endpoints
    attributes = DISKS["pvscsi"].endpoint(0 if series == "6.12" else 1).attributes
    machine = replace(
        snapshot.machine,
        kernel=RELEASES.get(series, series),
        endpoints=(replace(old, attributes=attributes), *others),
        adapters=(
            adapter(driver=driver),
            *(adapter(driver=name, target=name) for name in other_drivers),
        ),
    )
    [health] = snapshot.health.adapters.values()
    adapters = {hba.target: health for hba in machine.adapters}
    return replace(snapshot, machine=machine, health=replace(snapshot.health, adapters=adapters))


def save_host(folder: Path, series: str, *drivers: str) -> str:
    """Save the snapshot of a host, and return its path."""
    path = folder / "db1.snap"
    path.write_bytes(encode_snapshot(describe_host(series, *(drivers or ("vmw_pvscsi",)))))
    return str(path)


def test_changes_exit_1(tmp_path: Path, capsys: Capture) -> None:
    path = save_host(tmp_path, "6.12")
    assert main(["forecast", "--kernel", "7.3.9+custom", "--snapshot", path]) == 1
    text = capsys.readouterr().out
    assert "queue/max_sectors_kb" in text
    assert "1280" in text
    assert "4096" in text
    assert ONLY_DEFAULTS in text


def test_other_changes_are_not_called_defaults(tmp_path: Path, capsys: Capture) -> None:
    path = save_host(tmp_path, "6.12", "mpi3mr")
    assert main(["forecast", "--kernel", "7.3", "--snapshot", path]) == 1
    text = capsys.readouterr().out
    assert "mpi3mr.threaded_isr_poll" in text
    assert ONLY_DEFAULTS not in text


def forecast_installed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, releases: tuple[str, ...]
) -> None:
    """Run forecast on a host with these installed kernels."""
    modules, programs = folder / "modules", folder / "bin"
    for release in releases:
        (modules / release).mkdir(parents=True)
    programs.mkdir()
    (programs / "modinfo").write_text(MODINFO)
    (programs / "modinfo").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setattr(snapshots, "_MODULES", str(modules))
    snapshot = describe_host("6.12", "mpi3mr", "hpsa", "vbd")
    monkeypatch.setattr(snapshots, "take_snapshot", lambda show: snapshot)
    assert main(["forecast", "--kernel", "7.3", "--json"]) == 1


def test_modules_of_newest_installed_kernel_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    releases = ("6.12.117+deb12-amd64", "7.3.4+deb13-amd64", "7.3.10+deb13-amd64", "7.30.1-amd64")
    forecast_installed(tmp_path, monkeypatch, releases)
    document = json.loads(capsys.readouterr().out)
    assert document["installed"] == "7.3.10+deb13-amd64"
    rows = {(row["target"], row["attribute"], row["now"]) for row in document["rows"]}
    assert ("hpsa", "driver", "hpsa") in rows
    assert not {row for row in rows if row[0] in (ADAPTER, "vbd")}


def test_no_modules_are_read_without_installed_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    forecast_installed(tmp_path, monkeypatch, ("6.12.117+deb12-amd64",))
    document = json.loads(capsys.readouterr().out)
    assert document["installed"] is None
    attributes = {row["attribute"] for row in document["rows"]}
    assert "mpi3mr.threaded_isr_poll" in attributes
    assert "driver" not in attributes


def test_json_has_a_row_for_each_value(tmp_path: Path, capsys: Capture) -> None:
    path = save_host(tmp_path, "6.12")
    assert main(["forecast", "--kernel", "7.3", "--snapshot", path, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    validate(document)
    rows = {row["attribute"]: row for row in document["rows"] if row["target"] == "sda"}
    assert (rows["queue/read_ahead_kb"]["now"], rows["queue/read_ahead_kb"]["then"]) == (128, 8192)
    assert rows["queue/async_depth"]["now"] is None
    assert rows["queue/async_depth"]["effect"]


@pytest.mark.parametrize(("now", "then"), list(permutations(SERIES, 2)))
def test_every_row_has_an_effect(tmp_path: Path, capsys: Capture, now: str, then: str) -> None:
    """The rows of the recorded machines, and the options of all drivers that the rules cover."""
    packages = json.loads(MODULES.read_text()).values()
    drivers = sorted({module for modules in packages for module in modules})
    effects: dict[str, set[str]] = {}
    for path in (save_host(tmp_path, now, *drivers), *map(str, FOLDER.glob(f"*-{now}.snap"))):
        assert main(["forecast", "--kernel", then, "--snapshot", path, "--json"]) == 1
        for row in json.loads(capsys.readouterr().out)["rows"]:
            effects.setdefault(row["attribute"], set()).add(row["effect"])
    assert {attribute for attribute in effects if "." in attribute}
    assert [attribute for attribute, texts in effects.items() if "" in texts] == []


def test_controller_timeouts_have_their_own_effects(capsys: Capture) -> None:
    path = str(FOLDER / "mixed-6.12.snap")
    assert main(["forecast", "--kernel", "7.3", "--snapshot", path, "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)["rows"]
    effects = {row["attribute"]: row["effect"] for row in rows}
    assert "namespaces" in effects["io_timeout"]
    assert "admin commands" in effects["admin_timeout"]


def test_same_kernel_exits_0(tmp_path: Path, capsys: Capture) -> None:
    path = save_host(tmp_path, "7.3")
    assert main(["forecast", "--kernel", "7.3", "--snapshot", path]) == 0
    assert "No changes" in capsys.readouterr().out


def test_uncovered_kernel_exits_2(tmp_path: Path, capsys: Capture) -> None:
    path = save_host(tmp_path, "6.12")
    assert main(["forecast", "--kernel", "6.18", "--snapshot", path]) == 2
    assert "6.1, 6.12, 7.3" in capsys.readouterr().err


def test_host_on_uncovered_kernel_gets_remedy(tmp_path: Path, capsys: Capture) -> None:
    path = save_host(tmp_path, "6.18")
    assert main(["forecast", "--kernel", "7.3", "--snapshot", path]) == 2
    assert "take a snapshot of a host that runs one of these" in capsys.readouterr().err
