"""Build the Debian packages: ``python -m tools.deb DIRECTORY`` (`make deb`), as any user.

debhelper and pybuild build it, as ``debian/`` describes. This module only completes the source
package: it adds the files that are generated, downloaded or different on this Debian release
(``debian/README.source``).
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import formatdate
from pathlib import Path

from hbatune import __version__
from tools import manual, sbom
from tools.packaging import epoch, last_commit, maintainer, read_heading
from tools.wheel import CHECKOUT, BuildError, copy_checkout, pip

_DOWNLOADS = CHECKOUT / "build/sources"
_STALE = (
    *("hbatune_*.deb", "cockpit-hbatune_*.deb", "hbatune_*.cdx.json"),
    *("hbatune_*.dsc", "hbatune_*.tar.xz"),
)
_LOG_TAIL = 50
"""The number of lines of a failed tool's output in the error message."""
_CHANGES = """\
hbatune ({version}) unstable; urgency=medium

  * Built from a checkout. CHANGELOG.md.gz lists the changes.

 -- {maintainer}  {date}
"""


def version() -> str:
    """Return the package's version. It is higher for later commits, so apt upgrades.

    A package from before the release has ``~`` and is older than the release, one from after it
    has ``+`` and is newer (deb-version(7)). The release itself is built without git.
    """
    committed = last_commit()
    if committed is None:
        return __version__
    is_released = read_heading(CHECKOUT / "CHANGELOG.md").date is not None
    separator = "+" if is_released else "~"
    return f"{__version__}{separator}{datetime.fromtimestamp(committed, UTC):%Y%m%d%H%M%S}"


def has_msgspec() -> bool:
    """Return whether Debian's msgspec is installed, as on all releases that have it."""
    command = ["dpkg-query", "--show", "--showformat", "${db:Status-Status}", "python3-msgspec"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout == "installed"


def build(directory: Path) -> Path:
    """Build binary and source packages into ``directory`` and return the path of ``hbatune``.

    Replace earlier packages there. Raise ``BuildError`` if the build fails.
    """
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / f"hbatune-{version()}"
        prepare(source, bundle=not has_msgspec())
        run_tool(["dpkg-buildpackage", "--no-sign"], source)
        directory.mkdir(parents=True, exist_ok=True)
        for pattern in _STALE:
            for path in directory.glob(pattern):
                path.unlink()
            for path in Path(scratch).glob(pattern):
                shutil.copy(path, directory)
    (package,) = directory.glob("hbatune_*.deb")
    _add_bill(package)
    return package


def prepare(source: Path, *, bundle: bool) -> None:
    """Copy the checkout to ``source`` and complete it. ``bundle`` adds the source of msgspec."""
    copy_checkout(source)
    debian, seconds = source / "debian", epoch()
    changes = _CHANGES.format(version=version(), maintainer=maintainer(), date=formatdate(seconds))
    (debian / "changelog").write_text(changes)
    _edit(debian / "control", "(?<=Maintainer: ).*", maintainer())
    (debian / "manual").mkdir()
    for name, text in manual.files().items():
        (debian / "manual" / name).write_text(text)
    if bundle:
        _bundle(source)
    for path in (source, *source.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        os.utime(path, (seconds, seconds), follow_symlinks=False)


def _bundle(source: Path) -> None:
    """Add the source of msgspec, compile it instead of the build dependency, add its licences."""
    ((name, number),) = bundled().items()
    archive = _DOWNLOADS / f"{name}-{number}.tar.gz"
    if not archive.exists():
        words = ["--no-deps", "--no-build-isolation", "--no-binary=:all:", "--require-hashes"]
        requirements = CHECKOUT / "debian/bundled/requirements.txt"
        pip("download", *words, f"--dest={_DOWNLOADS}", f"--requirement={requirements}")
    shutil.unpack_archive(archive, source)
    (source / archive.name.removesuffix(".tar.gz")).rename(source / name)
    _edit(source / "debian/control", rf" python3-{name} \(.*\),", " python3-dev,")
    program = "(?<=Package: hbatune\nArchitecture: )all"
    _edit(source / "debian/control", program, "any")
    with (source / "debian/copyright").open("a") as copyright_file:
        copyright_file.write((source / "debian/bundled/copyright").read_text())


def bundled() -> Mapping[str, str]:
    """Return the versions of the packages that ``debian/bundled`` names, by name."""
    text = (CHECKOUT / "debian/bundled/requirements.txt").read_text()
    return dict(re.findall(r"(?m)^([a-z]+)==(\S+)", text))


def _edit(path: Path, pattern: str, replacement: str) -> None:
    text, count = re.subn(pattern, lambda _: replacement, path.read_text())
    assert count == 1, f"{path}: {pattern}"
    path.write_text(text)


def run_tool(command: list[str], directory: Path, *, packages: str = "deb") -> None:
    """Run a tool of Debian without the caller's environment, which could affect the package.

    ``packages`` is the set of `.ci/packages` that contains it.
    """
    retained = {name: os.environ[name] for name in ("DEB_BUILD_OPTIONS",) if name in os.environ}
    environment = {
        **retained,
        "LC_ALL": "C.UTF-8",
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "SOURCE_DATE_EPOCH": str(epoch()),
    }
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env=environment,
            umask=0o022,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise BuildError(f"{command[0]} is missing: run `.ci/packages {packages}`") from None
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-_LOG_TAIL:])
        raise BuildError(f"{command[0]} failed:\n{tail}")


def _add_bill(package: Path) -> None:
    """Write the bill of materials next to the package."""
    words = ["dpkg-deb", "--field", str(package), "Depends"]
    output = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    needed = list(dict.fromkeys(re.findall(r"(?:^|, )([a-z0-9.+-]+)", output)))
    licences = (CHECKOUT / "debian/bundled/copyright").read_text()
    [licence, *_] = re.findall("(?m)^License: (.*)$", licences)
    versions = {} if package.stem.endswith("_all") else bundled()
    included = {name: (number, licence) for name, number in versions.items()}
    bill = sbom.text(version(), epoch(), included, needed)
    package.with_suffix(".cdx.json").write_text(bill)


def check(directory: Path) -> None:
    """Run lintian on the packages in ``directory``. Raise ``BuildError`` if it reports anything."""
    packages = [path.name for pattern in ("*.dsc", "*.deb") for path in directory.glob(pattern)]
    words = ["lintian", "--allow-root", "--pedantic", "--fail-on=error,warning,pedantic,override"]
    run_tool([*words, *packages], directory)


def main() -> int:
    """Build the packages into the named directory, check them, and print how to install them."""
    directory = Path(sys.argv[1])
    try:
        package = build(directory)
        check(directory)
    except BuildError as error:
        print(f"deb: {error}", file=sys.stderr)
        return 1
    shown_path = os.path.relpath(package)
    print(f"deb: {shown_path} is built. To install it, as root: apt install ./{shown_path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
