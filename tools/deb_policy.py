"""Generate the files that Debian's policy requires: licences, changes, sums, overrides.

Sources are Debian's policy manual 12.5 (copyright, in the machine-readable form of copyright-format
1.0) and 4.4 (changelog), and lintian's manual.
"""

import gzip
import hashlib
import importlib.metadata
import os
from collections.abc import Iterator, Sequence
from email.utils import formatdate
from pathlib import Path

from tools.wheel import CHECKOUT

DOCUMENTATION = Path("usr/share/doc/hbatune")
OVERRIDES = Path("usr/share/lintian/overrides/hbatune")
SCRIPTS = ("postinst", "postrm", "prerm")
"""The files in ``packaging`` that dpkg runs."""

_COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: hbatune

Files: *
Copyright: The authors of hbatune
License: Apache-2.0
 On Debian systems the text of the Apache License, Version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
"""
_CARRIED = """
Files: usr/lib/hbatune/{name}/*
Copyright: {holder}
License: {licence}
{text}
"""
_CHANGES = """\
hbatune ({version}) unstable; urgency=medium

  * Built from a checkout. What has changed is in CHANGELOG.md.gz.

 -- {maintainer}  {date}
"""


def maintainer() -> str:
    """Return the maintainer: DEBFULLNAME and DEBEMAIL, as for all of Debian's tools.

    Without them the address is invalid.
    """
    name = os.environ.get("DEBFULLNAME", "Whoever built it")
    return f"{name} <{os.environ.get('DEBEMAIL', 'nobody@example.com')}>"


def files(version: str, epoch: int, carried: Sequence[str]) -> dict[Path, bytes]:
    """Return, by path, the files that Debian's policy requires in the package.

    ``epoch`` is the time of the build in seconds. ``carried`` are the included Python packages.
    """
    date = formatdate(epoch)
    changes = _CHANGES.format(version=version, maintainer=maintainer(), date=date)
    history = (CHECKOUT / "CHANGELOG.md").read_bytes()
    overrides = (CHECKOUT / "packaging/lintian-overrides").read_text()
    # lintian reports an unused override.
    retained = [
        part for part in overrides.splitlines(keepends=True) if carried or "msgspec" not in part
    ]
    return {
        DOCUMENTATION / "copyright": "".join((_COPYRIGHT, *map(_licence, carried))).encode(),
        DOCUMENTATION / "changelog.gz": gzip.compress(changes.encode(), mtime=0),
        DOCUMENTATION / "CHANGELOG.md.gz": gzip.compress(history, mtime=0),
        OVERRIDES: "".join(retained).encode(),
    }


def _licence(name: str) -> str:
    distribution = importlib.metadata.distribution(name)
    texts = [
        Path(str(file.locate())).read_text(encoding="utf-8")
        for file in distribution.files or ()
        if file.name.upper().startswith(("LICENSE", "LICENCE", "COPYING"))
    ]
    lines = [line.rstrip() for text in texts for line in text.strip().splitlines()]
    holders = [line for line in lines if line.lower().startswith("copyright")]
    holder = holders[0].partition(" ")[2] if holders else f"The authors of {name}"
    values = (distribution.metadata.get_all(key) for key in ("License-Expression", "License"))
    licence = next((value[0] for value in values if value), name)
    text = "\n".join(f" {line}" if line else " ." for line in lines)
    return _CARRIED.format(name=name, holder=holder, licence=licence.split("\n")[0], text=text)


def sums(tree: Path) -> str:
    """Return the text of ``md5sums``, which only dpkg uses, to compare files."""
    return "".join(_sums(tree))


def _sums(tree: Path) -> Iterator[str]:
    for path in sorted(tree.rglob("*")):
        name = path.relative_to(tree)
        if path.is_file() and name.parts[0] != "DEBIAN":
            digest = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
            yield f"{digest}  {name}\n"
