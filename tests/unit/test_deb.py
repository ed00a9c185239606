"""The Debian package: what it holds and asks for. The lab installs it (tests/lab/guest)."""

import gzip
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import deb, manual, schemas
from tools.wheel import CHECKOUT, BuildError

pytestmark = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs Debian's dpkg")

BOOKWORM = {"python3": "3.11.2-1", "python3-rich": "13.3.1-1", "python3-jinja2": "3.1.2-1"}
"""Some of what Debian 12 has; nothing else is there, so that msgspec and others are carried."""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The package as a release would get it that has these packages alone."""
    folder = tmp_path_factory.mktemp("deb")
    (folder / "hbatune_0.0.1_amd64.deb").write_text("one of before")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(deb, "_version_of", BOOKWORM.get)
        yield deb.build(folder)


@pytest.fixture(scope="module")
def tree(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the package would place below /."""
    folder = tmp_path_factory.mktemp("tree")
    subprocess.run(["dpkg-deb", "--extract", str(package), str(folder)], check=True)
    return folder


def field(package: Path, name: str) -> str:
    words = ["dpkg-deb", "--field", str(package), name]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def test_the_new_package_takes_the_place_of_the_old_one(package: Path) -> None:
    assert [path.name for path in package.parent.glob("*.deb")] == [package.name]


def test_it_depends_on_what_the_release_has(package: Path) -> None:
    wanted = field(package, "Depends").split(", ")
    assert {"fio", "udev", "python3-systemd", "python3-rich (>= 13)"} <= {*wanted}
    assert not [each for each in wanted if "msgspec" in each]


def test_it_carries_what_the_release_lacks(package: Path, tree: Path) -> None:
    assert (tree / "usr/lib/hbatune/msgspec/__init__.py").is_file()
    assert not (tree / "usr/lib/hbatune/rich").exists()
    assert "Jim Crist-Harif" in (tree / "usr/share/doc/hbatune/copyright").read_text()
    minor = sys.version_info[1]
    assert f"python3 (<< 3.{minor + 1})" in field(package, "Depends"), "for this Python alone"
    assert field(package, "Architecture") != "all"


@pytest.mark.parametrize(("there", "carried"), [("0.18.6-1", False), ("0.17-1", True)])
def test_a_package_that_is_too_old_is_carried(
    monkeypatch: pytest.MonkeyPatch, there: str, carried: bool
) -> None:
    known = {**BOOKWORM, "python3-msgspec": there}
    monkeypatch.setattr(deb, "_version_of", known.get)
    assert deb.in_this_release(deb.Requirement("msgspec", "0.18")) is not carried


def test_without_aptes_lists_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deb, "_version_of", lambda package: None)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises((BuildError, FileNotFoundError)):
        deb.in_this_release(deb.Requirement("msgspec", "0.18"))


def test_its_command_runs_what_the_wheel_names_and_nothing_of_the_callers(tree: Path) -> None:
    command = tree / "usr/bin/hbatune"
    assert command.stat().st_mode & 0o777 == 0o755
    text = command.read_text()
    assert text.startswith("#!/usr/bin/python3 -I\n"), "no PYTHONPATH, no folder of the caller's"
    compile(text, str(command), "exec")
    here = text.replace("/usr/lib/hbatune", f"{tree}/usr/lib/hbatune")
    done = subprocess.run(
        [sys.executable, "-c", here, "--version"], capture_output=True, text=True, cwd="/"
    )
    assert done.stdout.startswith("hbatune "), done.stderr


def test_it_has_everything_that_users_look_for(tree: Path) -> None:
    there = {path.name for path in (tree / "usr/share").rglob("*") if path.is_file()}
    assert {"README.md", "install.md", "copyright", "changelog.gz"} <= there
    assert {name for name in manual.files() if name.endswith((".fish", "_hbatune"))} <= there
    assert (tree / "usr/share/bash-completion/completions/hbatune").is_file()
    page = gzip.decompress((tree / "usr/share/man/man8/hbatune.8.gz").read_bytes())
    assert b"hbatune" in page
    library = tree / "usr/lib/hbatune/hbatune"
    assert {path.name for path in (library / "schemas").iterdir()} == set(schemas.files())
    assert (library / "_shipped/rules/oltp.toml").is_file()


def test_everybody_can_read_it_whatever_the_builders_umask(package: Path) -> None:
    words = ["dpkg-deb", "--contents", str(package)]
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        assert line.startswith(("drwxr-xr-x root/root", "-rw-r--r-- root/root", "-rwxr-xr-x root"))


@pytest.mark.parametrize("script", sorted((CHECKOUT / "packaging").iterdir()), ids=lambda p: p.name)
def test_what_dpkg_runs_is_a_script(script: Path) -> None:
    subprocess.run(["sh", "-n", str(script)], check=True)


def test_a_package_that_goes_puts_everything_back_first_or_stays(tmp_path: Path) -> None:
    for name in ("hbatune", "py3clean"):
        (tmp_path / name).write_text(
            f'#!/bin/sh\necho {name} "$@" >>{tmp_path}/calls; exit $CODE\n'
        )
        (tmp_path / name).chmod(0o755)

    def goes(how: str, code: int) -> tuple[int, str]:
        (tmp_path / "calls").write_text("")
        done = subprocess.run(
            ["sh", str(CHECKOUT / "packaging/prerm"), how],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin", "CODE": str(code)},
            capture_output=True,
            text=True,
        )
        return done.returncode, (tmp_path / "calls").read_text()

    assert goes("remove", 0) == (0, "hbatune uninstall\npy3clean -p hbatune\n")
    assert goes("remove", 1) == (1, "hbatune uninstall\n")
    assert goes("upgrade", 0) == (0, "py3clean -p hbatune\n")
