"""Run in a namespace: draws trees in the place of /sys, and compares what is found in each.

Hypothesis takes two thirds of the start, so the comparison of one tree (enumerated.py) has none.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hosts.enumerated import SYS, compare

# What the kernel's own names have, and what an administrator may call an md device. libudev does
# not see one whose name begins with a dot.
_NAME = st.text(st.sampled_from("abz019_-:!. é\x07\\$"), min_size=1, max_size=6).filter(
    lambda name: not name.startswith(".")
)
_PARENT = st.sampled_from(
    [
        "pci0000:00/0000:00:1f.2/host0/target0:0:0/0:0:0:0",
        "pci0000:00/0000:01:00.0/host3/port-3:0/end_device-3:0/target3:0:0/3:0:0:1",
        "pci0000:00/0000:02:00.0/nvme/nvme0",
        "virtual/nvme-subsystem/nvme-subsys0",
        "virtual",
        "platform/controller",
    ]
)
_KIND = st.sampled_from(("device", "no uevent", "dangling", "file", "folder", "absolute"))


@st.composite
def _trees(draw: st.DrawFn) -> list[tuple[str, str, str, str]]:
    """Draw devices: their class, name, parent, and what there is of them."""
    drawn = {}
    for name in draw(st.lists(_NAME, max_size=8)):
        parent, kind = draw(_PARENT), draw(_KIND)
        drawn["block", name] = ("block", name, f"{parent}/block", kind)
        if kind == "device" and draw(st.booleans()):
            part = f"{name}p1"
            drawn.setdefault(("block", part), ("block", part, f"{parent}/block/{name}", kind))
    for number in draw(st.sets(st.integers(0, 12), max_size=3)):
        host = f"host{number}"
        place = f"pci0000:00/0000:00:1f.2/{host}/scsi_host"
        drawn["scsi_host", host] = ("scsi_host", host, place, draw(_KIND))
    if draw(st.booleans()):
        drawn["nvme", "nvme0"] = ("nvme", "nvme0", "pci0000:00/0000:02:00.0/nvme", draw(_KIND))
    return list(drawn.values())


def _build(tree: list[tuple[str, str, str, str]]) -> None:
    for entry in SYS.iterdir():
        shutil.rmtree(entry)
    for folder in ("class/block", "bus", "devices", "fs"):
        (SYS / folder).mkdir(parents=True)
    for name, leaf, parent, kind in tree:
        listed, place = SYS / "class" / name / leaf, SYS / "devices" / parent / leaf
        listed.parent.mkdir(exist_ok=True)
        if kind == "file":
            listed.write_text("an attribute of the class\n")
        elif kind == "folder":
            listed.mkdir()
        else:
            target = f"../../devices/{parent}/{leaf}" if kind != "absolute" else str(place)
            listed.symlink_to(target)
            if kind != "dangling":
                place.mkdir(parents=True, exist_ok=True)
                (place / "subsystem").symlink_to(f"/sys/class/{name}")
            if kind in ("device", "absolute"):
                (place / "uevent").write_text(f"DEVNAME={leaf}\n")
    _stack([leaf for name, leaf, _, kind in tree if (name, kind) == ("block", "device")])


def _stack(names: list[str]) -> None:
    """Let each virtual disk stand on all disks that come before it."""
    for place, name in _virtual(names):
        (place / "slaves").mkdir()
        for lower in names[: names.index(name)]:
            (place / "slaves" / lower).symlink_to(f"/sys/class/block/{lower}")


def _virtual(names: list[str]) -> Iterator[tuple[Path, str]]:
    for name in names:
        place = SYS / "devices/virtual/block" / name
        if os.path.isfile(place / "uevent"):
            yield place, name


@settings(max_examples=int(os.environ.get("HBATUNE_DRAWN", "150")), deadline=None, database=None)
@given(_trees())
def _drawn(tree: list[tuple[str, str, str, str]]) -> None:
    _build(tree)
    compare()


if __name__ == "__main__":
    _drawn()
