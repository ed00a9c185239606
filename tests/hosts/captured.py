"""Unpacks a captured host's sysfs (a .ttar) and adds the class links that captures leave out."""

import os
from collections.abc import Iterator
from pathlib import Path

HOSTS = Path(__file__).resolve().parents[3] / "shared" / "hosts"
PROCFS = HOSTS / "procfs-fixtures.ttar"

_DEVICES = "fixtures/sys/devices/"


def unpack(archive: Path, root: Path) -> None:
    """Write the archive's ``/sys/devices`` below ``root``, with its class and bus links.

    Captures have no interrupts.
    """
    sysfs = root / "sys"
    (root / "proc" / "irq").mkdir(parents=True)
    for path, content in _entries(archive):
        if path.startswith(_DEVICES):
            target = sysfs / path.removeprefix("fixtures/sys/")
            target.parent.mkdir(parents=True, exist_ok=True)
            match content:
                case None:
                    target.mkdir(exist_ok=True)
                case Path():
                    target.symlink_to(content)
                    _enlist(sysfs, target, content)
                case bytes():
                    target.write_bytes(content)


def _entries(archive: Path) -> Iterator[tuple[str, bytes | Path | None]]:
    """Yield each path with its bytes, the target of a link, or None for a folder."""
    lines = iter(archive.read_text(encoding="utf-8").splitlines())
    path = ""
    for line in lines:
        key, _, value = line.partition(": ")
        match key:
            case "Path":
                path = value
            case "Directory":
                yield value, None
            case "SymlinkTo":
                yield path, Path(value)
            case "Lines":
                text = "".join(f"{next(lines)}\n" for _ in range(int(value)))
                text = text.removesuffix("EOF\n").replace("NULLBYTE", "\0")
                yield path, text.encode()


def _enlist(sysfs: Path, link: Path, target: Path) -> None:
    """Put the device into its class, as its ``subsystem`` link says."""
    if link.name == "subsystem" and "class" in target.parts:
        members = sysfs / "class" / target.name
        members.mkdir(parents=True, exist_ok=True)
        entry = members / link.parent.name
        if not os.path.lexists(entry):
            entry.symlink_to(os.path.relpath(link.parent, members))
