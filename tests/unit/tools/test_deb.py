"""The Debian package: content, dependencies and maintainer scripts. The lab installs it."""

import gzip
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hbatune.cli import GROUPS
from hbatune.processes import has_living_author
from tools import deb, manual, rpm, schemas
from tools.packaging import ReleaseHeading, documentation
from tools.wheel import CHECKOUT, BuildError

pytestmark = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs Debian's dpkg")

SCRIPTS = ("postinst", "postrm", "prerm")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package for this release, with its source package in the same directory.

    Tests that use it have the mark ``programs``: `make setup` installs debhelper.
    """
    if shutil.which("dh") is None:
        pytest.skip("needs debhelper: .ci/packages deb installs it")
    folder = tmp_path_factory.mktemp("deb")
    for name in ("hbatune_0.0.1_amd64.deb", "cockpit-hbatune_0.0.1_all.deb", "hbatune_0.0.1.dsc"):
        (folder / name).write_text("an earlier package")
    return deb.build(folder)


@pytest.fixture(scope="module")
def tree(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the package, and its scripts in DEBIAN."""
    folder = tmp_path_factory.mktemp("tree") / "root"
    subprocess.run(["dpkg-deb", "--raw-extract", str(package), str(folder)], check=True)
    return folder


def field(package: Path, name: str) -> str:
    words = ["dpkg-deb", "--field", str(package), name]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory ``debian`` of the source package for a release that has msgspec."""
    source = tmp_path_factory.mktemp("prepared") / "source"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("DEBFULLNAME", "Storage team")
        patched.setenv("DEBEMAIL", "storage@example.org")
        deb.prepare(source, bundle=False)
    return source / "debian"


@pytest.mark.programs
def test_new_package_replaces_old(package: Path) -> None:
    names = {path.name for path in package.parent.iterdir()}
    version = deb.version()
    source = {f"hbatune_{version}.dsc", f"hbatune_{version}.tar.xz"}
    page = f"cockpit-hbatune_{version}_all.deb"
    assert names == {package.name, page, f"{package.stem}.cdx.json", *source}


def test_version_grows_with_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(committed: int | None, date: str | None) -> str:
        monkeypatch.setattr(deb, "last_commit", lambda: committed)
        monkeypatch.setattr(deb, "read_heading", lambda _: ReleaseHeading("1.0.0", date))
        return deb.version()

    monkeypatch.setattr(deb, "__version__", "1.0.0")
    day, released = 86_400, "2026-11-27"
    versions = [
        "0.1.0+20261122192748",  # a package from before the first release
        version(1 * day, None),
        version(2 * day, None),
        version(None, released),  # the release's tarball, without git
        version(3 * day, released),
        version(4 * day, released),
    ]
    assert version(None, released) == "1.0.0"
    for older, newer in itertools.pairwise(versions):
        words = ["dpkg", "--compare-versions", older, "lt", newer]
        assert subprocess.run(words, check=False).returncode == 0, (older, newer)


@pytest.mark.programs
def test_dependencies_are_packages_of_the_release(package: Path) -> None:
    wanted = field(package, "Depends").split(", ")
    assert {"fio", "udev", "python3-rich (>= 13)", "python3-pyudev (>= 0.24)"} <= {*wanted}


@pytest.mark.programs
def test_missing_dependency_is_bundled(package: Path, tree: Path) -> None:
    if deb.has_msgspec():
        pytest.skip("this release has msgspec")
    assert (tree / "usr/lib/hbatune/msgspec/__init__.py").is_file()
    assert not (tree / "usr/lib/hbatune/rich").exists()
    assert "Jim Crist-Harif" in (tree / "usr/share/doc/hbatune/copyright").read_text()
    depends = field(package, "Depends")
    assert "msgspec" not in depends
    minor = sys.version_info[1]
    assert f"python3 (<< 3.{minor + 1})" in depends, "only for this version of Python"
    assert field(package, "Architecture") != "all"


@pytest.mark.programs
def test_packaged_msgspec_is_dependency(package: Path, tree: Path) -> None:
    if not deb.has_msgspec():
        pytest.skip("this release lacks msgspec")
    assert "python3-msgspec (>= 0.18)" in field(package, "Depends")
    assert not (tree / "usr/lib/hbatune/msgspec").exists()
    assert field(package, "Architecture") == "all"


@pytest.mark.programs
def test_release_msgspec_works(tree: Path, tmp_path: Path) -> None:
    # The other tests use the latest version.
    library = "usr/lib/python3/dist-packages" if deb.has_msgspec() else tree / "usr/lib/hbatune"
    (tmp_path / "msgspec").symlink_to(Path("/", library, "msgspec"))
    modules = (
        "tests/unit/test_loader.py",
        "tests/unit/act/test_journal.py",
        "tests/unit/probe/test_fio_output.py",
        "tests/unit/snapshot/test_file.py",
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *modules],
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_source_omits_packaged_msgspec(debian: Path) -> None:
    control = (debian / "control").read_text()
    assert "\nArchitecture: all\n" in control
    assert "python3-msgspec" in control
    assert not (debian.parent / "msgspec").exists()
    assert "msgspec" not in (debian / "copyright").read_text()


def test_build_needs_minimum_versions() -> None:
    # dh_python3 copies these versions to Depends.
    control = (CHECKOUT / "debian/control").read_text()
    versions = re.findall(r"(?m)^ (python3-\S+) \(>= (\S+)\),$", control)
    assert [f"{name} >= {number}" for name, number in versions] == rpm.python_packages()


def test_missing_tool_names_remedy(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"run `\.ci/packages deb`"):
        deb.run_tool(["dpkg-buildpackage-of-nowhere"], tmp_path)


def test_failed_tool_shows_output(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"sh failed:\n.*no such option"):
        deb.run_tool(["sh", "-c", "echo no such option; exit 2"], tmp_path)


@pytest.mark.programs
def test_command_runs_isolated(tree: Path) -> None:
    command = tree / "usr/bin/hbatune"
    assert command.stat().st_mode & 0o777 == 0o755
    text = command.read_text()
    assert text.startswith("#!/usr/bin/python3 -I\n"), "no PYTHONPATH, no folder of the caller's"
    compile(text, str(command), "exec")
    relocated = text.replace("/usr/lib/hbatune", f"{tree}/usr/lib/hbatune")
    done = subprocess.run(
        [sys.executable, "-c", relocated, "--version"], capture_output=True, text=True, cwd="/"
    )
    assert done.stdout.startswith("hbatune "), done.stderr


@pytest.mark.programs
def test_package_contains_user_files(tree: Path) -> None:
    names = {path.name for path in (tree / "usr/share").rglob("*") if path.is_file()}
    assert {"copyright", "changelog.gz", "CHANGELOG.md.gz"} <= names
    pages = {place for place in documentation().values() if place.name != "CHANGELOG.md"}
    assert all((tree / place).is_file() for place in pages)
    assert {name for name in manual.files() if name.endswith((".fish", "_hbatune"))} <= names
    assert (tree / "usr/share/bash-completion/completions/hbatune").is_file()
    for name in manual.man_pages():
        packed = tree / f"usr/share/man/man{name[-1]}/{name}.gz"
        assert gzip.decompress(packed.read_bytes()).startswith(b".TH HBATUNE"), name
    library = tree / "usr/lib/hbatune/hbatune"
    assert {path.name for path in (library / "schemas").iterdir()} == set(schemas.files())
    assert (library / "_shipped/rules/oltp.toml").is_file()


def find_page(package: Path) -> Path:
    """Return the package of the Cockpit page, next to this one."""
    [page] = package.parent.glob("cockpit-hbatune_*.deb")
    return page


@pytest.mark.programs
def test_page_package_contains_only_page(package: Path, tmp_path: Path) -> None:
    page = find_page(package)
    subprocess.run(["dpkg-deb", "--extract", str(page), str(tmp_path)], check=True)
    folder = tmp_path / "usr/share/cockpit/hbatune"
    checkout = CHECKOUT / "cockpit"
    assert {path.name for path in folder.iterdir()} == {path.name for path in checkout.iterdir()}
    for path in folder.iterdir():
        assert path.read_bytes() == (checkout / path.name).read_bytes(), path.name
    files = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.parts[2] for path in files} == {"cockpit", "doc"}
    assert {"changelog.gz", "copyright"} == {path.name for path in files if "doc" in path.parts}
    version = deb.version()
    wanted = field(page, "Depends").split(", ")
    assert {f"hbatune (>= {version})", f"hbatune (<< {version}.1~)"} <= {*wanted}
    assert any(word.startswith("cockpit-bridge ") for word in wanted)
    assert not [word for word in wanted if "python" in word]


@pytest.mark.programs
def test_package_ignores_builder_umask(package: Path) -> None:
    for path in (package, find_page(package)):
        words = ["dpkg-deb", "--contents", str(path)]
        listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        modes = ("drwxr-xr-x root/root", "-rw-r--r-- root/root", "-rwxr-xr-x root")
        assert all(line.startswith(modes) for line in listed.splitlines()), listed


@pytest.mark.parametrize("script", SCRIPTS)
def test_maintainer_scripts_parse(script: str) -> None:
    subprocess.run(["sh", "-n", str(CHECKOUT / "debian" / script)], check=True)


@pytest.mark.programs
def test_debhelper_adds_bytecode(tree: Path) -> None:
    postinst, prerm = ((tree / "DEBIAN" / name).read_text() for name in ("postinst", "prerm"))
    assert 0 < postinst.index("py3compile") < postinst.index("deb-systemd-invoke")
    assert 0 < prerm.index("hbatune uninstall") < prerm.index("py3clean")
    for name in SCRIPTS:
        script = tree / "DEBIAN" / name
        assert script.stat().st_mode & 0o777 == 0o755
        assert "#DEBHELPER#" not in script.read_text()
        subprocess.run(["sh", "-n", str(script)], check=True)


def test_failed_uninstall_stops_removal(tmp_path: Path) -> None:
    command = tmp_path / "hbatune"
    command.write_text(f'#!/bin/sh\necho hbatune "$@" >>{tmp_path}/calls; exit $CODE\n')
    command.chmod(0o755)

    def goes(how: str, code: int) -> tuple[int, str]:
        (tmp_path / "calls").write_text("")
        done = subprocess.run(
            ["sh", str(CHECKOUT / "debian/prerm"), how],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin", "CODE": str(code)},
            capture_output=True,
            text=True,
        )
        return done.returncode, (tmp_path / "calls").read_text()

    assert goes("remove", 0) == (0, "hbatune uninstall\n")
    assert goes("remove", 1) == (1, "hbatune uninstall\n")
    assert goes("upgrade", 0) == (0, "")


def test_upgrade_marks_daemon_restart(tmp_path: Path) -> None:
    run, booted = tmp_path / "run/hbatune", tmp_path / "run/systemd/system"
    for folder in (run, booted):
        folder.mkdir(parents=True)
    calls = tmp_path / "calls"
    program = tmp_path / "deb-systemd-invoke"
    program.write_text(f'#!/bin/sh\necho {program.name} "$1" $(ls {run}) >>{calls}\n')
    program.chmod(0o755)
    script = postinst(tmp_path)

    def configured(before: str) -> list[str]:
        calls.write_text("")
        words = ["sh", "-c", script, "postinst", "configure", before]
        subprocess.run(words, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=True)
        assert not list(run.iterdir())
        return calls.read_text().splitlines()

    assert configured("") == []
    assert configured("0.1.0") == ["deb-systemd-invoke try-restart replacing"]


@pytest.mark.parametrize("script", ["postinst", "rpm"])
def test_upgrade_removes_latency_unit(tmp_path: Path, script: str) -> None:
    """The unit would start `watch --collect`, which no longer exists, every 30 s."""
    units, run = tmp_path / "etc/systemd/system", tmp_path / "run/systemd/system"
    (units / "multi-user.target.wants").mkdir(parents=True)
    run.mkdir(parents=True)
    unit, link = units / NAME, units / "multi-user.target.wants" / NAME
    unit.write_text("[Service]\nExecStart=/usr/bin/hbatune watch --collect\n")
    link.symlink_to(unit)
    calls = tmp_path / "calls"
    for name in ("deb-systemd-invoke", "systemctl", "python3"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {name} $* >>{calls}\n")
        (tmp_path / name).chmod(0o755)
    text = postinst(tmp_path) if script == "postinst" else rpm_script(tmp_path)
    words = ["sh", "-c", text, "script", *(["2"] if script == "rpm" else ["configure", "0.1.0"])]
    for _ in range(2):
        subprocess.run(words, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=True)
    assert not unit.exists()
    stops = [call for call in calls.read_text().splitlines() if NAME in call]
    if script == "rpm":  # which removes the link
        assert stops == [f"systemctl disable --now {NAME}"]
    else:
        assert stops == [f"deb-systemd-invoke stop {NAME}"]
        assert not link.is_symlink()


NAME = "hbatune-latency.service"


@pytest.mark.parametrize(("before", "lines"), [("", 1), ("0.1.0", 0)])
def test_first_installation_prints_first_step(tmp_path: Path, before: str, lines: int) -> None:
    words = ["sh", "-c", postinst(tmp_path), "postinst", "configure", before]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert (len(done.stdout.splitlines()), done.stderr) == (lines, "")
    commands = re.findall(r"First step: hbatune (\S+)", done.stdout)
    assert len(commands) == lines
    assert {*commands} <= {*GROUPS["look"]}, "it changes nothing"


def postinst(root: Path) -> str:
    """Return the script with its /run below ``root``."""
    text = (CHECKOUT / "debian/postinst").read_text().replace("/run/", f"{root}/run/")
    return text.replace("/etc/systemd/", f"{root}/etc/systemd/")


def rpm_script(root: Path) -> str:
    """Return the script of the RPM package with its directories below ``root``."""
    text = rpm._spec(Path("/tree"), []).partition("%post\n")[2].partition("\n%")[0]
    text = text.replace("/run/", f"{root}/run/")
    return text.replace("/etc/systemd/", f"{root}/etc/systemd/")


@pytest.mark.parametrize("script", ["postinst", "rpm"])
@pytest.mark.parametrize("killed", [False, True])
def test_killed_upgrade_leaves_dead_marker(tmp_path: Path, script: str, killed: bool) -> None:
    run, booted = tmp_path / "run/hbatune", tmp_path / "run/systemd/system"
    for folder in (run, booted):
        folder.mkdir(parents=True)
    text = postinst(tmp_path) if script == "postinst" else rpm_script(tmp_path)
    restart = tmp_path / "restart.py"
    restart.write_text(f"""
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {str(CHECKOUT)!r})
from hbatune.processes import has_living_author
Path({str(tmp_path / "during")!r}).write_text(
    str(has_living_author(Path({str(run / "replacing")!r})))
)
if {killed}:
    os.kill(os.getppid(), signal.SIGKILL)
""")
    programs = {"python3": "#!/bin/sh\n"}
    for name in ("deb-systemd-invoke", "systemctl"):
        # The first line of a script cannot name a Python below a path with a blank.
        programs[name] = f"#!/bin/sh\nexec '{sys.executable}' '{restart}'\n"
    for name, content in programs.items():
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o755)
    words = ["sh", "-c", text, "script", *(["2"] if script == "rpm" else ["configure", "0.1.0"])]
    subprocess.run(words, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=not killed)
    assert (tmp_path / "during").read_text() == "True", "the daemon is stopped then"
    assert (run / "replacing").exists() is killed
    assert not has_living_author(run / "replacing")


def rebuilt(command: list[str], directory: Path) -> None:
    """Run a tool of dpkg in another environment than `make deb`."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "TZ": "Pacific/Auckland"}
    subprocess.run(
        command, cwd=directory, env=environment, umask=0o077, capture_output=True, check=True
    )


@pytest.mark.programs
def test_source_package_is_reproducible(package: Path, tmp_path: Path) -> None:
    [source] = package.parent.glob("*.dsc")
    rebuilt(["dpkg-source", "--extract", str(source)], tmp_path)
    rebuilt(["dpkg-buildpackage", "--build=binary"], tmp_path / f"hbatune-{deb.version()}")
    for path in (package, find_page(package)):
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


@pytest.mark.programs
def test_same_commit_makes_same_source(package: Path, tmp_path: Path) -> None:
    umask = os.umask(0o077)
    try:
        source = tmp_path / f"hbatune-{deb.version()}"
        deb.prepare(source, bundle=not deb.has_msgspec())
    finally:
        os.umask(umask)
    rebuilt(["dpkg-source", "--build", source.name], tmp_path)
    for path in (*package.parent.glob("*.dsc"), *package.parent.glob("*.tar.xz")):
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


@pytest.mark.programs
def test_package_follows_debian_policy(package: Path, tree: Path) -> None:
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


def test_builder_is_maintainer(debian: Path) -> None:
    maintainer = "Storage team <storage@example.org>"
    assert f"\nMaintainer: {maintainer}\n" in (debian / "control").read_text()
    assert f"\n -- {maintainer}  " in (debian / "changelog").read_text()


def test_only_purge_removes_site_files(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("etc/hbatune", "var/lib/hbatune", "run/hbatune")]
    unrelated = tmp_path / "etc/other"

    def goes(how: str) -> list[bool]:
        for folder in (*folders, unrelated):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "file").write_text("")
        words = ["sh", str(CHECKOUT / "debian/postrm"), how]
        subprocess.run(words, env={"PATH": "/usr/bin:/bin", "DPKG_ROOT": str(tmp_path)}, check=True)
        assert (unrelated / "file").exists()
        return [folder.exists() for folder in folders]

    assert goes("remove") == goes("upgrade") == [True] * 3
    assert goes("purge") == [False] * 3


@pytest.mark.programs
def test_sbom_accompanies_package(package: Path) -> None:
    [file] = package.parent.glob("*.cdx.json")
    bill = json.loads(file.read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    assert bill["metadata"]["component"]["version"] == field(package, "Version")
    parts = {part["name"]: part for part in bill["components"]}
    if deb.has_msgspec():
        assert parts["python3-msgspec"]["purl"] == "pkg:deb/debian/python3-msgspec"
    else:
        version = deb.bundled()["msgspec"]
        assert parts["msgspec"]["purl"] == f"pkg:pypi/msgspec@{version}"
        assert parts["msgspec"]["licenses"] == [{"expression": "BSD-3-Clause"}]
    assert parts["fio"]["purl"] == "pkg:deb/debian/fio"
    assert {part["bom-ref"] for part in bill["components"]} == {
        *bill["dependencies"][0]["dependsOn"]
    }


@pytest.mark.programs
@pytest.mark.skipif(
    shutil.which("lintian") is None, reason="needs lintian: .ci/packages deb installs it"
)
def test_lintian_is_silent(package: Path) -> None:
    deb.check(package.parent)
