"""`make release`: the states that it refuses, its files, and the tag as the last step."""

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import release
from tools.packaging import read_heading
from tools.release import PackageBuilder, StateError, check_state, make_release
from tools.wheel import CHECKOUT, BuildError

FILES = {
    "hbatune/__init__.py": '__version__ = "1.0.0"\n',
    "ansible/galaxy.yml": "version: 1.0.0\n",
    "ansible/CHANGELOG.md": "# Changelog\n\n## 1.0.0 - 2026-11-27\n",
    "CHANGELOG.md": "# Changelog\n\n## 1.0.0 - 2026-11-27\n\n- A line\n\n## 0.9.0 - 2026-01-01\n",
    ".gitignore": "/dist/\n",
    "tools/__init__.py": "",
    "tools/good.py": """
import os, sys
from pathlib import Path
time = os.environ["SOURCE_DATE_EPOCH"]
Path(sys.argv[1], "hbatune.deb").write_text(f"{time} {Path('.git').exists()}")
""",
    "tools/bad.py": "raise SystemExit('no compiler')\n",
}
PRESENT_TOOL = sys.executable
GOOD = PackageBuilder("tools.good", PRESENT_TOOL)
BAD = PackageBuilder("tools.bad", PRESENT_TOOL)
MISSING = PackageBuilder("tools.bad", "no-such-rpmbuild")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit of ``FILES``."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "Storage team")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "storage@example.org")
        monkeypatch.setenv(f"GIT_{name}_DATE", "2026-11-27T12:00:00+0000")
    folder = tmp_path / "checkout"
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    commit(folder)
    return folder


def git(checkout: Path, *words: str) -> str:
    command = ["git", "-C", str(checkout), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(checkout: Path) -> None:
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--message=a change")


def edit(checkout: Path, name: str, old: str, new: str) -> None:
    path = checkout / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def has_no_release(checkout: Path) -> bool:
    dist = checkout / "dist"
    return git(checkout, "tag") == "" and (not dist.exists() or not list(dist.iterdir()))


def test_release_contains_tarball_and_packages(checkout: Path) -> None:
    target = make_release(checkout, checkout / "dist", [GOOD])
    assert target == checkout / "dist/hbatune-1.0.0"
    names = {path.name for path in target.iterdir()}
    assert names == {"hbatune-1.0.0.tar.gz", "hbatune.deb", "SHA256SUMS"}
    words = ["tar", "--list", "--file", str(target / "hbatune-1.0.0.tar.gz")]
    listed = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
    files = {name for name in listed if not name.endswith("/")}
    assert files == {f"hbatune-1.0.0/{name}" for name in FILES}


def test_packages_are_built_without_git(checkout: Path) -> None:
    target = make_release(checkout, checkout / "dist", [GOOD])
    committed = git(checkout, "log", "-1", "--format=%ct")
    assert (target / "hbatune.deb").read_text() == f"{committed} False"


def test_checksums_cover_all_files(checkout: Path) -> None:
    target = make_release(checkout, checkout / "dist", [GOOD])
    lines = (target / "SHA256SUMS").read_text().splitlines()
    names = []
    for line in lines:
        digest, name = line.split("  ")
        assert hashlib.sha256((target / name).read_bytes()).hexdigest() == digest
        names.append(name)
    assert names == ["hbatune-1.0.0.tar.gz", "hbatune.deb"]


def test_tag_is_annotated(checkout: Path) -> None:
    make_release(checkout, checkout / "dist", [GOOD])
    assert git(checkout, "cat-file", "-t", "v1.0.0") == "tag"
    assert git(checkout, "rev-parse", "v1.0.0^{}") == git(checkout, "rev-parse", "HEAD")
    assert git(checkout, "tag", "--list", "--format=%(contents)") == "hbatune 1.0.0"


def test_same_commit_makes_same_tarball(checkout: Path, tmp_path: Path) -> None:
    first = make_release(checkout, tmp_path / "first", [])
    git(checkout, "tag", "--delete", "v1.0.0")
    second = make_release(checkout, tmp_path / "second", [])
    assert (first / "SHA256SUMS").read_text() == (second / "SHA256SUMS").read_text()


def test_missing_tool_skips_its_packages(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = make_release(checkout, checkout / "dist", [MISSING])
    assert {path.name for path in target.iterdir()} == {"hbatune-1.0.0.tar.gz", "SHA256SUMS"}
    assert "release: no-such-rpmbuild is missing" in capsys.readouterr().out


def test_changed_file_stops_release(checkout: Path) -> None:
    edit(checkout, "CHANGELOG.md", "A line", "Another line")
    with pytest.raises(StateError, match=r"has changes, for example in CHANGELOG\.md"):
        make_release(checkout, checkout / "dist", [GOOD])
    assert has_no_release(checkout)


def test_untracked_file_stops_release(checkout: Path) -> None:
    (checkout / "notes").write_text("")
    with pytest.raises(StateError, match="has changes, for example in notes"):
        check_state(checkout)


@pytest.mark.parametrize("name", ["CHANGELOG.md", "ansible/CHANGELOG.md", "ansible/galaxy.yml"])
def test_differing_version_stops_release(checkout: Path, name: str) -> None:
    edit(checkout, name, "1.0.0", "1.0.1")
    commit(checkout)
    problem = rf"the version is 1\.0\.0 in hbatune/__init__\.py, but 1\.0\.1 in {name}"
    with pytest.raises(StateError, match=problem):
        check_state(checkout)


@pytest.mark.parametrize("name", ["CHANGELOG.md", "ansible/CHANGELOG.md"])
def test_undated_changelog_stops_release(checkout: Path, name: str) -> None:
    edit(checkout, name, "1.0.0 - 2026-11-27", "1.0.0 (unreleased)")
    commit(checkout)
    with pytest.raises(StateError, match=rf"{name} has no date for 1\.0\.0: write `## 1\.0\.0 - "):
        check_state(checkout)


def test_unknown_heading_stops_release(checkout: Path) -> None:
    edit(checkout, "CHANGELOG.md", "1.0.0 - 2026-11-27", "Next")
    commit(checkout)
    with pytest.raises(StateError, match="the first heading is `## Next`, expected"):
        check_state(checkout)


def test_existing_tag_stops_release(checkout: Path) -> None:
    git(checkout, "tag", "v1.0.0")
    with pytest.raises(StateError, match=r"the tag v1\.0\.0 exists: set the next version"):
        check_state(checkout)


def test_missing_identity_stops_release(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_COMMITTER_NAME", "")
    with pytest.raises(StateError, match="empty ident name"):
        make_release(checkout, checkout / "dist", [GOOD])
    assert has_no_release(checkout)


def test_failed_build_leaves_nothing(checkout: Path) -> None:
    with pytest.raises(BuildError, match=r"tools\.bad failed:\nno compiler"):
        make_release(checkout, checkout / "dist", [GOOD, BAD])
    assert has_no_release(checkout)


def test_refused_tag_leaves_nothing(checkout: Path) -> None:
    hook = checkout / ".git/hooks/reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(StateError, match="git tag failed"):
        make_release(checkout, checkout / "dist", [GOOD])
    assert has_no_release(checkout)


@pytest.mark.parametrize(("name", "code"), [("tools.good", 0), ("tools.bad", 1)])
def test_exit_code_shows_build_result(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    monkeypatch.setattr(release, "CHECKOUT", checkout)
    monkeypatch.setattr(release, "BUILDERS", [PackageBuilder(name, PRESENT_TOOL)])
    monkeypatch.setattr(sys, "argv", ["release", "dist"])
    monkeypatch.chdir(checkout)
    assert release.main() == code
    assert has_no_release(checkout) is (code == 1)


def test_wrong_state_exits_with_2(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    git(checkout, "tag", "v1.0.0")
    monkeypatch.setattr(release, "CHECKOUT", checkout)
    monkeypatch.setattr(sys, "argv", ["release", str(checkout / "dist")])
    assert release.main() == 2
    assert capsys.readouterr().err.startswith("release: the tag v1.0.0 exists")
    assert not (checkout / "dist").exists()


def test_checkout_versions_agree() -> None:
    versions = {read_heading(CHECKOUT / name).version for name in release._CHANGELOGS}
    for name, pattern in release._VERSIONS.items():
        versions.update(re.findall(pattern, (CHECKOUT / name).read_text()))
    assert len(versions) == 1
