"""Make a release: ``python -m tools.release DIRECTORY`` (`make release`), from a clean checkout.

The packages are built from the unpacked source tarball, so the tarball is complete, and their
version has no time of a commit (``tools.deb``). All files reach the directory together, and the tag
is the last step. A failure before that leaves neither files nor a tag.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tools.packaging import read_heading
from tools.wheel import CHECKOUT, BuildError

_VERSION_FILE = "hbatune/__init__.py"
_VERSIONS = {
    _VERSION_FILE: r'(?m)^__version__ = "(.+)"$',
    "ansible/galaxy.yml": r"(?m)^version: (.+)$",
}
"""The files that contain the version, each with a pattern for it."""
_CHANGELOGS = ("CHANGELOG.md", "ansible/CHANGELOG.md")


class StateError(Exception):
    """The checkout is not ready for a release. The text contains the remedy."""


@dataclass(frozen=True)
class PackageBuilder:
    """A module that builds packages into a directory, and the tool that it needs."""

    module: str
    tool: str


BUILDERS = (
    PackageBuilder("tools.deb", "dpkg-buildpackage"),
    PackageBuilder("tools.rpm", "rpmbuild"),
)


@dataclass(frozen=True)
class ReleasedCommit:
    """The commit of a release, its version and its time in seconds since the epoch."""

    commit: str
    version: str
    time: int

    @property
    def tag(self) -> str:
        """The name of the release's tag."""
        return f"v{self.version}"

    @property
    def name(self) -> str:
        """The name of the release's directory and the stem of its tarball."""
        return f"hbatune-{self.version}"


def check_state(checkout: Path) -> ReleasedCommit:
    """Return the commit to release. Raise ``StateError`` if the checkout is not ready."""
    changes = _run_git(checkout, "status", "--porcelain").splitlines()
    if changes:
        path = changes[0][3:]
        raise StateError(f"the checkout has changes, for example in {path}: commit them")
    version = _check_versions(checkout)
    commit = _run_git(checkout, "rev-parse", "HEAD")
    release = ReleasedCommit(commit, version, int(_run_git(checkout, "log", "-1", "--format=%ct")))
    if _run_git(checkout, "tag", "--list", release.tag):
        raise StateError(f"the tag {release.tag} exists: set the next version in {_VERSION_FILE}")
    _run_git(checkout, "var", "GIT_COMMITTER_IDENT")  # the tag needs a name and an address
    return release


def _check_versions(checkout: Path) -> str:
    """Return the version. Raise ``StateError`` if files differ or a changelog has no date."""
    versions = {}
    for name, pattern in _VERSIONS.items():
        match = re.search(pattern, (checkout / name).read_text(encoding="utf-8"))
        versions[name] = match[1] if match else "missing"
    version = versions[_VERSION_FILE]
    undated = []
    for name in _CHANGELOGS:
        try:
            heading = read_heading(checkout / name)
        except BuildError as error:
            raise StateError(str(error)) from error
        versions[name] = heading.version
        if heading.date is None:
            undated.append(name)
    for name, other in versions.items():
        if other != version:
            raise StateError(f"the version is {version} in {_VERSION_FILE}, but {other} in {name}")
    if undated:
        heading_line = f"## {version} - {datetime.now(UTC).date()}"
        raise StateError(f"{undated[0]} has no date for {version}: write `{heading_line}`")
    return version


def make_release(checkout: Path, directory: Path, builders: Sequence[PackageBuilder]) -> Path:
    """Build a release into a new directory, tag its commit, and return the new directory.

    A builder whose tool is missing is skipped. Raise ``StateError`` if the checkout is not ready,
    and ``BuildError`` if a build fails.
    """
    release = check_state(checkout)
    directory = directory.resolve()  # builders run elsewhere
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory, prefix=".release-") as scratch:
        files = Path(scratch) / "files"
        files.mkdir()
        tarball = files / f"{release.name}.tar.gz"
        words = ["--format=tar.gz", f"--prefix={release.name}/", f"--output={tarball}"]
        _run_git(checkout, "archive", *words, release.commit)
        for builder in builders:
            if shutil.which(builder.tool) is None:
                print(f"release: {builder.tool} is missing: no packages of {builder.module}")
                continue
            print(f"release: {builder.module} is building its packages")
            _build_packages(builder, tarball, release, files)
        _write_checksums(files)
        target = directory / release.name
        if target.exists():  # of a run that could not set the tag
            shutil.rmtree(target)
        files.rename(target)
    try:
        message = f"hbatune {release.version}"
        _run_git(checkout, "tag", "--annotate", f"--message={message}", release.tag, release.commit)
    except StateError:
        shutil.rmtree(target)
        raise
    return target


def _build_packages(
    builder: PackageBuilder, tarball: Path, release: ReleasedCommit, files: Path
) -> None:
    """Build packages from the tarball. The source is outside of the checkout, so without git."""
    with tempfile.TemporaryDirectory() as scratch:
        shutil.unpack_archive(tarball, scratch)
        done = subprocess.run(
            [sys.executable, "-m", builder.module, str(files)],
            cwd=Path(scratch) / release.name,
            env={**os.environ, "SOURCE_DATE_EPOCH": str(release.time)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise BuildError(f"{builder.module} failed:\n{done.stdout}")


def _write_checksums(files: Path) -> None:
    """Write SHA256SUMS for `sha256sum --check`."""
    lines = []
    for path in sorted(files.iterdir()):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        lines.append(f"{digest}  {path.name}\n")
    (files / "SHA256SUMS").write_text("".join(lines))


def _run_git(checkout: Path, *words: str) -> str:
    """Return the output of git without spaces at its end. Raise ``StateError`` if it fails."""
    command = ["git", "-C", str(checkout), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StateError(f"git {words[0]} failed: {done.stderr.strip()}")
    return done.stdout.rstrip()


def main() -> int:
    """Make the release, and print how to publish it. Exit with 2 if the checkout is not ready."""
    try:
        target = make_release(CHECKOUT, Path(sys.argv[1]), BUILDERS)
    except StateError as error:
        print(f"release: {error}", file=sys.stderr)
        return 2
    except BuildError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    tag = f"v{target.name.removeprefix('hbatune-')}"
    print(f"release: {os.path.relpath(target)} is complete, and its commit has the tag {tag}.")
    print(f"release: to publish the tag: git push origin {tag}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
