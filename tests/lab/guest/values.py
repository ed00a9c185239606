"""What sysfs says, read plainly: nothing of hbatune is asked here."""

import re
from pathlib import Path

BLOCK = Path("/sys/block")
_OURS = re.compile(r"sd[a-z]+|nvme\d+(c\d+)?n\d+")


def disks() -> list[str]:
    """Return the lab's disks; the root disk and the job disk (virtio) are not among them."""
    return sorted(path.name for path in BLOCK.iterdir() if _OURS.fullmatch(path.name))


def cat(disk: str, attribute: str) -> str:
    """Return the text of one attribute below a disk's directory."""
    return (BLOCK / disk / attribute).read_text().strip()


def put(disk: str, attribute: str, text: str) -> None:
    """Set one attribute, as an administrator would."""
    (BLOCK / disk / attribute).write_text(text)


def scheduler(disk: str) -> str:
    """Return the scheduler in use."""
    text = cat(disk, "queue/scheduler")
    marked = re.search(r"\[(.+?)\]", text)
    return marked[1] if marked else text


def everything() -> dict[str, str]:
    """Return every value of every disk that root may set, and the scheduler's own tunables."""
    values: dict[str, str] = {}
    for disk in disks():
        more_attributes = ("device/queue_depth", "device/timeout", "../iopolicy")
        files = [
            *(BLOCK / disk / "queue").rglob("*"),
            *(BLOCK / disk / attribute for attribute in more_attributes),
        ]
        for path in files:
            if not path.is_file() or not path.stat().st_mode & 0o222:
                continue
            try:
                text = path.read_text().strip()
            except OSError:
                continue  # a tunable that this device cannot tell
            name = f"{disk}/{path.relative_to(BLOCK / disk)}"
            values[name] = scheduler(disk) if path.name == "scheduler" else text
    return values


def put_back(values: dict[str, str]) -> None:
    """Bring every disk back to these values, the schedulers first: they reset others.

    nr_requests rescales async_depth, so that comes last; with `none` the kernel sets it.

    A depth is lowered again where the kernel raised it meanwhile (``test_lowered``).
    """
    for name in sorted(values, key=_rank):
        disk, _, attribute = name.partition("/")
        for _ in range(3):
            current = scheduler(disk) if name.endswith("/scheduler") else cat(disk, attribute)
            if current == values[name]:
                break
            put(disk, attribute, values[name])


def _rank(name: str) -> int:
    return {"scheduler": 0, "async_depth": 2}.get(name.rpartition("/")[2], 1)


def nvme_queues() -> list[str]:
    """Return the disks with NVMe queues of their own: hidden paths, not the head above them."""
    return [disk for disk in disks() if disk.startswith("nvme") and (BLOCK / disk / "mq").exists()]
