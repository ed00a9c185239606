"""Facts that the builders of the Debian and the RPM package share."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tools.wheel import CHECKOUT, BuildError

_UNKNOWN_TIME = 946_684_800
"""2000-01-01, for a checkout without commits."""
DOCUMENTATION = Path("usr/share/doc/hbatune")
"""The directory of the installed documentation."""


@dataclass(frozen=True)
class ReleaseHeading:
    """The version in the first heading of a changelog. ``date`` is None before the release."""

    version: str
    date: str | None


def read_heading(changelog: Path) -> ReleaseHeading:
    """Return the first heading of a changelog. Raise ``BuildError`` if it is not a release's."""
    heading = re.search(r"(?m)^## .*$", changelog.read_text(encoding="utf-8"))
    line = heading[0] if heading else ""
    match = re.fullmatch(r"## (\d\S*) (?:- (\d{4}-\d\d-\d\d)|\(unreleased\))", line)
    if match is None:
        expected = "`## VERSION (unreleased)` or `## VERSION - YEAR-MONTH-DAY`"
        raise BuildError(f"{changelog}: the first heading is `{line}`, expected {expected}")
    return ReleaseHeading(match[1], match[2])


def last_commit() -> int | None:
    """Return the time of the last commit in seconds since the epoch, or None if it is unknown.

    A directory without git, or of another user, is an unpacked release.
    """
    command = ["git", "-C", str(CHECKOUT), "log", "-1", "--format=%ct"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return int(done.stdout) if done.returncode == 0 else None


def epoch() -> int:
    """Return the time of every packed file in seconds since the epoch (reproducible-builds.org).

    The same commit produces the same package, byte by byte, on the same release.
    """
    return int(os.environ.get("SOURCE_DATE_EPOCH") or last_commit() or _UNKNOWN_TIME)


def maintainer() -> str:
    """Return the maintainer: DEBFULLNAME and DEBEMAIL, as for all of Debian's tools.

    Without them the address is invalid.
    """
    name = os.environ.get("DEBFULLNAME", "Whoever built it")
    return f"{name} <{os.environ.get('DEBEMAIL', 'nobody@example.com')}>"


def description() -> tuple[str, str]:
    """Return the synopsis and the description in ``debian/control``."""
    control = (CHECKOUT / "debian/control").read_text()
    match = re.search(r"^Description: (.*)\n((?: .*\n)+)", control, re.MULTILINE)
    assert match is not None
    lines = [line[1:].removeprefix(".") for line in match[2].splitlines()]
    return match[1], "\n".join(lines)


def documentation() -> dict[Path, Path]:
    """Return the installed path of each page by its path in the checkout.

    ``debian/hbatune.docs`` and ``debian/hbatune.install`` list them for both packages.
    """
    places = {}
    for name in (CHECKOUT / "debian/hbatune.docs").read_text().split():
        places[CHECKOUT / name] = DOCUMENTATION / name
    for line in (CHECKOUT / "debian/hbatune.install").read_text().splitlines():
        pattern, directory = line.split()
        if Path(directory).is_relative_to(DOCUMENTATION):
            for path in sorted(CHECKOUT.glob(pattern)):
                places[path] = Path(directory) / path.name
    return places
