"""The Debian package: what it holds and asks for. The lab installs it (tests/lab/guest)."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hbatune.processes import has_living_author
from tools import deb, deb_policy, manual, rpm, schemas
from tools.wheel import CHECKOUT, BuildError

pytestmark = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs Debian's dpkg")

BOOKWORM = {"python3": "3.11.2-1", "python3-rich": "13.3.1-1", "python3-jinja2": "3.1.2-1"}
"""Some of what Debian 12 has; nothing else is there, so that msgspec and others are carried."""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as a release would get it that has these packages alone."""
    folder = tmp_path_factory.mktemp("deb")
    (folder / "hbatune_0.0.1_amd64.deb").write_text("one of before")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(deb, "_version_of", BOOKWORM.get)
        return deb.build(folder)


@pytest.fixture(scope="module")
def tree(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the package would place below /."""
    folder = tmp_path_factory.mktemp("tree")
    subprocess.run(["dpkg-deb", "--extract", str(package), str(folder)], check=True)
    return folder


def field(package: Path, name: str) -> str:
    words = ["dpkg-deb", "--field", str(package), name]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def test_new_package_replaces_old(package: Path) -> None:
    assert [path.name for path in package.parent.glob("*.deb")] == [package.name]


def test_dependencies_match_release(package: Path) -> None:
    wanted = field(package, "Depends").split(", ")
    assert {"fio", "udev", "python3-rich (>= 13)"} <= {*wanted}
    assert not [each for each in wanted if "msgspec" in each]


def test_missing_dependency_is_bundled(package: Path, tree: Path) -> None:
    assert (tree / "usr/lib/hbatune/msgspec/__init__.py").is_file()
    assert not (tree / "usr/lib/hbatune/rich").exists()
    assert "Jim Crist-Harif" in (tree / "usr/share/doc/hbatune/copyright").read_text()
    minor = sys.version_info[1]
    assert f"python3 (<< 3.{minor + 1})" in field(package, "Depends"), "for this Python alone"
    assert field(package, "Architecture") != "all"


@pytest.mark.parametrize(("there", "carried"), [("0.18.6-1", False), ("0.17-1", True)])
def test_outdated_dependency_is_bundled(
    monkeypatch: pytest.MonkeyPatch, there: str, carried: bool
) -> None:
    known = {**BOOKWORM, "python3-msgspec": there}
    monkeypatch.setattr(deb, "_version_of", known.get)
    assert deb.in_this_release(deb.Requirement("msgspec", "0.18")) is not carried


def test_missing_apt_fails_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deb, "_version_of", lambda package: None)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises((BuildError, FileNotFoundError)):
        deb.in_this_release(deb.Requirement("msgspec", "0.18"))


def test_command_runs_isolated(tree: Path) -> None:
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


def test_package_contains_user_files(tree: Path) -> None:
    there = {path.name for path in (tree / "usr/share").rglob("*") if path.is_file()}
    assert {"README.md", "install.md", "copyright", "changelog.gz"} <= there
    assert {name for name in manual.files() if name.endswith((".fish", "_hbatune"))} <= there
    assert (tree / "usr/share/bash-completion/completions/hbatune").is_file()
    page = gzip.decompress((tree / "usr/share/man/man8/hbatune.8.gz").read_bytes())
    assert b"hbatune" in page
    library = tree / "usr/lib/hbatune/hbatune"
    assert {path.name for path in (library / "schemas").iterdir()} == set(schemas.files())
    assert (library / "_shipped/rules/oltp.toml").is_file()


def test_package_ignores_builder_umask(package: Path) -> None:
    words = ["dpkg-deb", "--contents", str(package)]
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        assert line.startswith(("drwxr-xr-x root/root", "-rw-r--r-- root/root", "-rwxr-xr-x root"))


@pytest.mark.parametrize("script", deb_policy.SCRIPTS)
def test_maintainer_scripts_parse(script: str) -> None:
    subprocess.run(["sh", "-n", str(CHECKOUT / "packaging" / script)], check=True)


def test_failed_uninstall_stops_removal(tmp_path: Path) -> None:
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


def test_upgrade_marks_daemon_restart(tmp_path: Path) -> None:
    run, booted = tmp_path / "run/hbatune", tmp_path / "run/systemd/system"
    for folder in (run, booted):
        folder.mkdir(parents=True)
    calls = tmp_path / "calls"
    for name in ("py3compile", "deb-systemd-invoke"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho {name} "$1" $(ls {run}) >>{calls}\n')
        program.chmod(0o755)
    script = postinst(tmp_path)

    def configured(before: str) -> list[str]:
        calls.write_text("")
        words = ["sh", "-c", script, "postinst", "configure", before]
        subprocess.run(words, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=True)
        assert not list(run.iterdir())
        return calls.read_text().splitlines()

    assert configured("") == ["py3compile -p"]
    assert configured("0.1.0") == ["py3compile -p", "deb-systemd-invoke try-restart replacing"]


def postinst(root: Path) -> str:
    """Return the script with its /run below ``root``."""
    return (CHECKOUT / "packaging/postinst").read_text().replace("/run/", f"{root}/run/")


@pytest.mark.parametrize("script", ["postinst", "rpm"])
@pytest.mark.parametrize("killed", [False, True])
def test_killed_upgrade_leaves_dead_marker(tmp_path: Path, script: str, killed: bool) -> None:
    run, booted = tmp_path / "run/hbatune", tmp_path / "run/systemd/system"
    for folder in (run, booted):
        folder.mkdir(parents=True)
    text = postinst(tmp_path)
    if script == "rpm":
        text = rpm._spec(Path("/tree"), []).partition("%post\n")[2].partition("\n%")[0]
        text = text.replace("/run/", f"{tmp_path}/run/")
    restart = f"""#!{sys.executable}
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {str(CHECKOUT)!r})
from hbatune.processes import has_living_author
Path({str(tmp_path / "during")!r}).write_text(
    str(has_living_author(Path({str(run / "replacing")!r})))
)
if {killed}:
    os.kill(os.getppid(), signal.SIGKILL)
"""
    programs = {"py3compile": "#!/bin/sh\n", "python3": "#!/bin/sh\n"}
    for name in ("deb-systemd-invoke", "systemctl"):
        programs[name] = restart
    for name, content in programs.items():
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o755)
    words = ["sh", "-c", text, "script", *(["2"] if script == "rpm" else ["configure", "0.1.0"])]
    subprocess.run(words, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=not killed)
    assert (tmp_path / "during").read_text() == "True", "the daemon is stopped then"
    assert (run / "replacing").exists() is killed
    assert not has_living_author(run / "replacing")


def test_package_build_is_reproducible(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deb, "_version_of", BOOKWORM.get)
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    before = os.umask(0o077)
    try:
        again = deb.build(tmp_path)
    finally:
        os.umask(before)
    assert again.name == package.name
    assert again.read_bytes() == package.read_bytes()


def test_package_follows_debian_policy(
    package: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = tree / "usr/share/doc/hbatune"
    assert "/usr/share/common-licenses/Apache-2.0" in (pages / "copyright").read_text()
    assert "APPENDIX: How to apply the Apache License" not in (pages / "copyright").read_text(), (
        "Debian has the text"
    )
    newest = gzip.decompress((pages / "changelog.gz").read_bytes()).decode()
    assert newest.startswith(f"hbatune ({field(package, 'Version')}) ")
    assert b"# Changelog" in gzip.decompress((pages / "CHANGELOG.md.gz").read_bytes())
    synopsis, *lines = field(package, "Description").splitlines()
    assert len(synopsis) <= 80
    assert all(len(line) <= 80 for line in lines)
    for line in deb_policy.sums(tree).splitlines():
        assert (tree / line.partition("  ")[2]).is_file()
    monkeypatch.setenv("DEBFULLNAME", "Storage team")
    monkeypatch.setenv("DEBEMAIL", "storage@example.org")
    assert deb_policy.maintainer() == "Storage team <storage@example.org>"


def test_overrides_match_contents() -> None:
    [text] = [
        text for path, text in deb_policy.files("1", 0, ()).items() if path == deb_policy.OVERRIDES
    ]
    assert b"irqbalance-policy" in text
    assert b"msgspec" not in text


def test_only_purge_removes_site_files(tmp_path: Path) -> None:
    folders = [tmp_path / each for each in ("etc/hbatune", "var/lib/hbatune", "run/hbatune")]
    kept = tmp_path / "etc/other"

    def goes(how: str) -> list[bool]:
        for folder in (*folders, kept):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "file").write_text("")
        words = ["sh", str(CHECKOUT / "packaging/postrm"), how]
        subprocess.run(words, env={"PATH": "/usr/bin:/bin", "DPKG_ROOT": str(tmp_path)}, check=True)
        assert (kept / "file").exists()
        return [folder.exists() for folder in folders]

    assert goes("remove") == goes("upgrade") == [True] * 3
    assert goes("purge") == [False] * 3


def test_sbom_accompanies_package(package: Path) -> None:
    [file] = package.parent.glob("*.cdx.json")
    bill = json.loads(file.read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    assert bill["metadata"]["component"]["version"] == field(package, "Version")
    parts = {part["name"]: part for part in bill["components"]}
    assert parts["msgspec"]["purl"] == f"pkg:pypi/msgspec@{parts['msgspec']['version']}"
    assert parts["fio"]["purl"] == "pkg:deb/debian/fio"
    assert {part["bom-ref"] for part in bill["components"]} == {
        *bill["dependencies"][0]["dependsOn"]
    }


@pytest.mark.programs
@pytest.mark.skipif(
    shutil.which("lintian") is None, reason="needs lintian: .ci/packages soak installs it"
)
def test_lintian_is_silent(tmp_path: Path) -> None:
    words = ["lintian", "--pedantic", "--allow-root", str(deb.build(tmp_path))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
