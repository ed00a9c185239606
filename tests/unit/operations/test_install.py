"""install and uninstall: what is placed is checked, known, and goes again; nothing else does."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from hbatune.act.paths import Paths
from hbatune.boot.placement import join_root
from hbatune.cli import main
from hbatune.render import render_template
from tests.documented import validate
from tests.unit.installed_tree import RULES, UNIT, tree

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A root with hbatune's command in it."""
    command = tmp_path / "usr/local/bin/hbatune"
    command.parent.mkdir(parents=True)
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    return tmp_path


def test_image_install_uninstall_round_trip(
    image: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(image)
    assert main(["install", "--root", str(image), "--profile", "oltp"]) == 0
    unit = join_root(image, UNIT).read_text()
    assert "ExecStart=/usr/local/bin/hbatune daemon\n" in unit
    assert 'ENV{.HBATUNE_NR_REQUESTS}="2048"' in join_root(image, RULES).read_text()
    wanted = image / "etc/systemd/system/multi-user.target.wants/hbatune.service"
    assert wanted.readlink() == UNIT
    assert (image / "etc/hbatune/hbatune.toml").read_text() == 'profile = "oltp"\n'
    output = capsys.readouterr().out
    assert "89-hbatune.rules is placed" in output
    assert "hbatune-write.sh is placed" in output
    assert main(["install", "--root", str(image)]) == 0
    assert "in place already" in capsys.readouterr().out
    assert main(["uninstall", "--root", str(image)]) == 0
    assert tree(image) == before


def test_profile_change_rewrites_rules(image: Path) -> None:
    main(["install", "--root", str(image), "--profile", "oltp"])
    before = join_root(image, RULES).read_text()
    assert main(["install", "--root", str(image), "--profile", "balanced"]) == 0
    after = join_root(image, RULES).read_text()
    assert after != before
    assert "device/queue_depth" not in after.partition("Nothing to set")[2]


def test_image_rules_are_used(image: Path) -> None:
    folder = image / "etc/hbatune/rules.d"
    folder.mkdir(parents=True)
    (folder / "own.toml").write_text(
        '[[rule]]\nname = "own"\nsetting = "nomerges"\nvalue = 2\nbecause = "b"\nsource = "site"\n'
    )
    assert main(["install", "--root", str(image), "--profile", "oltp"]) == 0
    assert 'ENV{.HBATUNE_NOMERGES}="2"' in join_root(image, RULES).read_text()
    main(["uninstall", "--root", str(image)])
    assert (folder / "own.toml").exists()


def test_dry_run_places_nothing(image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree(image)
    assert main(["install", "--root", str(image), "--profile", "oltp", "--dry-run"]) == 0
    assert tree(image) == before
    output = capsys.readouterr().out
    assert f"+++ {join_root(image, UNIT)}\n" in output
    assert "+Type=notify\n" in output
    assert (
        f"{image}/etc/systemd/system/multi-user.target.wants/hbatune.service → {UNIT}\n" in output
    )
    main(["install", "--root", str(image), "--profile", "oltp"])
    installed_files = tree(image)
    capsys.readouterr()
    assert main(["uninstall", "--root", str(image), "--dry-run"]) == 0
    assert tree(image) == installed_files
    assert f"{join_root(image, RULES)} would be removed\n" in capsys.readouterr().out


def test_uninstall_dry_run_prints_json(image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["install", "--root", str(image), "--profile", "oltp"])
    join_root(image, UNIT).write_text("mine\n")
    capsys.readouterr()
    assert main(["uninstall", "--root", str(image), "--dry-run", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    validate(document)
    assert str(join_root(image, RULES)) in document["files"]
    assert document["edited"] == [str(join_root(image, UNIT))]
    assert str(join_root(image, UNIT)) not in document["files"]
    assert main(["uninstall", "--root", str(image), "--json"]) == 2
    assert "use it with --dry-run" in capsys.readouterr().err
    assert join_root(image, RULES).exists()


def test_uninstall_preserves_edited_unit(image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["install", "--root", str(image), "--profile", "oltp"])
    join_root(image, UNIT).write_text("mine\n")
    assert main(["uninstall", "--root", str(image)]) == 1
    assert f"{join_root(image, UNIT)} is not as hbatune wrote it" in capsys.readouterr().err
    assert join_root(image, UNIT).read_text() == "mine\n"
    assert not join_root(image, RULES).exists()
    join_root(image, UNIT).unlink()
    assert main(["uninstall", "--root", str(image)]) == 0
    assert not join_root(image, Paths.state).exists()


def test_uninstall_preserves_site_configuration(image: Path) -> None:
    file = image / "etc/hbatune/hbatune.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[site]\nexclude = ["sda"] # ours\n')
    main(["install", "--root", str(image), "--profile", "oltp"])
    assert 'KERNELS=="sda"' in join_root(image, RULES).read_text()
    main(["uninstall", "--root", str(image)])
    assert file.read_text().strip() == '[site]\nexclude = ["sda"] # ours'


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--root", "{image}"], "no profile is active"),
        (["--root", "{image}/nowhere", "--profile", "oltp"], "is not a directory"),
        (["--root", "{image}", "--profile", "nosuch"], "no profile"),
        (["--root", "{image}", "--profile", "oltp", "--module-options"], "this machine's adapters"),
    ],
)
def test_invalid_arguments_are_refused(
    arguments: list[str], message: str, image: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(image)
    assert main(["install", *(argument.format(image=image) for argument in arguments)]) == 2
    assert message in capsys.readouterr().err
    assert tree(image) == before


def test_image_without_hbatune_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["install", "--root", str(tmp_path), "--profile", "oltp"]) == 2
    assert "no hbatune" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def script(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def refused(
    image: Path, named: Path, capsys: pytest.CaptureFixture[str], *, mended: bool = True
) -> None:
    """Assert that install refuses a path and changes nothing.

    ``mended`` tells whether the message advises a correction.
    """
    before = tree(image)
    capsys.readouterr()
    assert main(["install", "--root", str(image), "--profile", "oltp"]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith(f"hbatune: {named} ")
    assert (f"{named}, after checking its contents" in errors) == mended
    assert "a path that only root can write" in errors
    assert tree(image) == before


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
@pytest.mark.parametrize("path", ["usr/local/bin/hbatune", "usr/local/bin", "usr", "."])
def test_writable_command_gets_no_unit(
    path: str, mode: int, image: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (image / path).chmod(mode)
    refused(image, image / path, capsys)


@needs_root
@pytest.mark.parametrize("path", ["usr/local/bin/hbatune", "usr/local"])
def test_foreign_command_gets_no_unit(
    path: str, image: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.chown(image / path, 1000, 0)
    refused(image, image / path, capsys)


def test_command_link_resolves_inside_image(
    image: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script(image / "opt/venv/bin/hbatune")
    (image / "usr/local/bin/hbatune").unlink()
    (image / "usr/local/bin/hbatune").symlink_to("/opt/venv/bin/hbatune")
    (image / "opt").chmod(0o777)
    refused(image, image / "opt", capsys)
    (image / "opt").chmod(0o1777)
    refused(image, image / "opt", capsys, mended=False)
    (image / "opt").chmod(0o755)
    assert main(["install", "--root", str(image), "--profile", "oltp"]) == 0


@pytest.mark.parametrize(
    "text",
    [
        "#!/opt/bin/python -sE\n",
        "#!/bin/sh\n'''exec' \"/opt/bin/python\" \"$0\" \"$@\"\n' '''\n",
        "#!/usr/bin/env -S python\n",
        "#!/usr/local/bin/wrapped\n",
    ],
    ids=["named", "long path", "env", "a script again"],
)
def test_writable_interpreter_gets_no_unit(
    text: str, image: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python = script(image / "opt/bin/python", "no script")
    (image / "usr/bin").mkdir()
    (image / "usr/bin/python").symlink_to("/opt/bin/python")
    script(image / "usr/local/bin/wrapped", "#!/opt/bin/python\n")
    script(image / "usr/local/bin/hbatune", text)
    python.chmod(0o757)
    refused(image, python, capsys)
    python.chmod(0o755)
    assert main(["install", "--root", str(image), "--profile", "oltp"]) == 0


@needs_root
def test_metrics_parent_must_be_trusted(image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (image / "etc/hbatune").mkdir(parents=True)
    (image / "etc/hbatune/hbatune.toml").write_text('[metrics]\ntextfile = "/srv/node/metrics"\n')
    folder = image / "srv/node/metrics"
    folder.mkdir(parents=True)
    os.chown(folder, 1000, 1000)
    os.chown(folder.parent, 1000, 1000)
    refused(image, folder.parent, capsys)
    os.chown(folder.parent, 0, 0)
    assert main(["install", "--root", str(image), "--profile", "oltp"]) == 0
    unit = (image / "etc/systemd/system/hbatune-audit.service").read_text()
    assert "audit --metrics /srv/node/metrics/hbatune-audit.prom\n" in unit
    assert (image / "etc/systemd/system/hbatune-audit.timer").exists()


def test_rejected_unit_is_not_placed(
    image: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hbatune.act.system import ToolResult

    before = tree(image)
    command = ("systemd-analyze", "verify")
    monkeypatch.setattr(
        "hbatune.act.system.check_unit", lambda path: ToolResult(command, 1, f"{path}: x")
    )
    monkeypatch.setattr("hbatune.operations.install.os.access", lambda path, mode: True)
    monkeypatch.setattr("sys.argv", ["/usr/bin/hbatune"])
    assert main(["install", "--root", str(image), "--profile", "oltp"]) == 1
    assert (
        "`systemd-analyze` rejects hbatune.service: hbatune.service: x" in capsys.readouterr().err
    )
    assert tree(image) == before


METRICS: dict[str, object] = {"textfile": "/var/lib/prometheus/node-exporter"}
UNITS: tuple[tuple[str, dict[str, object]], ...] = (
    ("hbatune.service", {}),
    ("hbatune.service", METRICS),
    ("hbatune.service", {"firmware": True}),
    ("hbatune-audit.service", METRICS),
)


@pytest.fixture(params=UNITS, ids=["daemon", "with metrics", "with firmware", "audit"])
def unit(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    name, more = request.param
    values = {"executable": "/usr/bin/true", "at_home": False, "textfile": None, "firmware": False}
    (tmp_path / name).write_text(render_template("systemd", f"{name}.j2", **{**values, **more}))
    return tmp_path / str(name)


def test_unit_entries_have_the_identifier(unit: Path) -> None:
    assert "\nSyslogIdentifier=hbatune\n" in unit.read_text()


def test_unit_opens_firmware_after_permission(unit: Path, request: pytest.FixtureRequest) -> None:
    text, is_opened = unit.read_text(), "with firmware" in request.node.name
    for line in ("DeviceAllow=char-bsg rw", "DeviceAllow=/dev/mpt3ctl rw", "CAP_SYS_RAWIO"):
        assert (line in text) is is_opened


needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze"
)


@needs_systemd
def test_systemd_verifies_units(unit: Path) -> None:
    words = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@needs_systemd
def test_units_pass_security_check(unit: Path) -> None:
    words = ["systemd-analyze", "security", "--offline=true", "--threshold=30", str(unit)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    if unit.name == "hbatune.service":
        assert "PrivateNetwork=yes" not in unit.read_text()
        assert "\nProtectKernelTunables" not in unit.read_text()
