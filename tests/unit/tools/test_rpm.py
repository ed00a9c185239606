"""The rpm package: what its spec asks for and runs. Building it needs rpmbuild."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tools import manual, rpm
from tools.packaging import maintainer
from tools.wheel import CHECKOUT, BuildError


def spec() -> str:
    return rpm._spec(Path("/tree"), [Path("usr/share/zsh/site-functions/_hbatune")])


def test_spec_requires_all_imports() -> None:
    needed = re.findall(r"^Requires: (.*)$", spec(), re.MULTILINE)
    assert {*rpm.python_packages(), "fio", "systemd-udev"} <= {*needed}
    assert "python3-msgspec >= 0.18" in needed


def test_spec_lists_every_man_page() -> None:
    patterns = re.findall(r"^/(usr/share/man/.*)$", spec(), re.MULTILINE)
    for name in manual.man_pages():
        packed = rpm._place(name).with_name(f"{name}.gz")
        assert any(packed.match(pattern) for pattern in patterns), name


@pytest.mark.parametrize("part", ["post", "preun"])
def test_rpm_scriptlets_parse(part: str) -> None:
    script = spec().partition(f"%{part}\n")[2].partition("\n%")[0]
    subprocess.run(["sh", "-n", "-c", script], check=True)


def test_removal_uninstalls_first_or_fails(tmp_path: Path) -> None:
    script = spec().partition("%preun\n")[2].partition("\n%")[0]
    command = tmp_path / "hbatune"
    command.write_text('#!/bin/sh\necho "$@" >>"$(dirname "$0")/calls"; exit $CODE\n')
    command.chmod(0o755)
    script = script.replace("/usr/lib/hbatune", str(tmp_path / "lib"))
    (tmp_path / "lib/__pycache__").mkdir(parents=True)

    def goes(remaining: int, code: int) -> tuple[int, str]:
        (tmp_path / "calls").write_text("")
        done = subprocess.run(
            ["sh", "-c", script, "preun", str(remaining)],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin", "CODE": str(code)},
            capture_output=True,
        )
        return done.returncode, (tmp_path / "calls").read_text()

    assert goes(1, 0) == (0, ""), "an upgrade"
    assert goes(0, 1) == (1, "uninstall\n")
    assert (tmp_path / "lib/__pycache__").is_dir()
    assert goes(0, 0) == (0, "uninstall\n")
    assert not (tmp_path / "lib/__pycache__").exists()


def test_missing_rpmbuild_names_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(BuildError, match="install the package rpm-build"):
        rpm.build(tmp_path)


def test_packager_matches_debian_maintainer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEBFULLNAME", "Storage team")
    monkeypatch.setenv("DEBEMAIL", "storage@example.org")
    assert f"\nPackager: {maintainer()}\n" in spec()
    changes = spec().partition("%changelog\n")[2]
    assert changes.splitlines()[0].endswith(f"{maintainer()} - {rpm.version()}")


@pytest.mark.programs
@pytest.mark.skipif(
    not (shutil.which("rpmbuild") and shutil.which("rpmlint")),
    reason="needs rpmbuild and rpmlint: .ci/packages soak installs them",
)
def test_rpmlint_reports_no_errors(tmp_path: Path) -> None:
    package = rpm.build(tmp_path)
    words = ["rpmlint", "--rpmlintrc", str(CHECKOUT / "packaging/rpmlintrc"), str(package)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert " 0 errors" in done.stdout, done.stdout + done.stderr
