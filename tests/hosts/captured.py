"""Unpacks a captured host's sysfs and adds the class links that captures leave out.

Captures come as a .ttar, which is text, or as a tar archive of a machine's ``/sys`` and ``/proc``.
They are other projects' test data: tests read them where they lie, and none is in this repository.
``HBATUNE_CAPTURES`` names a folder with archives; ``docs`` of each test say where they come from.
"""

import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

HOSTS = Path(__file__).resolve().parents[3] / "shared" / "hosts"
ARCHIVES = Path(os.environ.get("HBATUNE_CAPTURES", HOSTS))
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


def archives() -> dict[str, Path]:
    """Return the captures in tar archives, by name."""
    archive_files = sorted(ARCHIVES.glob("*.t*")) if ARCHIVES.is_dir() else []
    return {file.name.partition(".")[0]: file for file in archive_files if file.suffix != ".ttar"}


def unpack_tar(archive: Path, root: Path) -> None:
    """Write the archive's ``/sys`` below ``root``, with its class and bus links.

    Some have only the links of ``/sys/block`` besides ``/sys/devices``: a block device's class is
    known by its file ``queue`` or ``partition``. What a machine's processes had is left out.
    """
    sysfs = root / "sys"
    (root / "proc" / "irq").mkdir(parents=True)
    with tarfile.open(archive) as members:
        for member in members:
            _, separator, path = f"/{member.name}".partition("/sys/")
            if not separator or not path or ".." in path.split("/"):
                continue
            target = sysfs / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if member.isdir():
                target.mkdir(exist_ok=True)
            elif member.issym() and not os.path.lexists(target):
                target.symlink_to(member.linkname)
            elif member.isfile() and (content := members.extractfile(member)) is not None:
                target.write_bytes(content.read())
                target.chmod(stat.S_IMODE(member.mode) | 0o400)
    for folder in ("class/block", "bus/pci/devices", "dev/block"):
        (sysfs / folder).mkdir(parents=True, exist_ok=True)
    for directory, folders, files in os.walk(sysfs / "devices"):
        _classify(sysfs, Path(directory), folders, files)


def _classify(sysfs: Path, device: Path, folders: list[str], files: list[str]) -> None:
    """Put a device of storage into its class where the capture has left that out."""
    parent = device.parent.name
    name = None
    namespace = device.parent.parent.name == "nvme" and "queue" in folders
    partition = "partition" in files and device.parent.parent.name == "block"
    if parent == "block" or namespace or partition:
        name = "block"
    elif parent in ("scsi_host", "nvme", "sas_device", "fc_host"):
        name = parent
    if name is None or "subsystem" in folders:
        return
    if name == "block" and "uevent" not in files:
        (device / "uevent").write_text(f"DEVNAME={device.name}\n")
    members = sysfs / "class" / name
    members.mkdir(parents=True, exist_ok=True)
    for link, target in ((device / "subsystem", members), (members / device.name, device)):
        if not os.path.lexists(link):
            link.symlink_to(os.path.relpath(target, link.parent))


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
