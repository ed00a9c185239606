"""Real md, LVM and LUKS on scsi_debug: their names, settings that decide, and limits."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.lab.guest import layers, virtual
from tests.lab.guest.command import configure, hbatune
from tests.lab.guest.kit import loaded_scsi_debug, scsi_disks, settle
from tests.lab.guest.test_legal import site_rules
from tests.lab.guest.values import cat, everything, put

KERNELS = ("6.12",)
PROFILE = ("--profile", "throughput")
COMMANDS = {
    "list": ("--all",),
    "diff": PROFILE,
    "explain": PROFILE,
    "check": (),
    "apply": ("--dry-run", *PROFILE),
    "probe": ("qd1", "--runtime", "0.5"),
    "watch": ("--count", "1", "--interval", "0.1"),
}


@pytest.fixture(scope="module")
def stack() -> Iterator[list[str]]:
    """Three disks: a mirror of two with LVM, mounted, and LUKS on a partition of the third."""
    options = {"add_host": 3, "max_luns": 1, "per_host_store": 1, "dev_size_mb": 64}
    with ExitStack() as stack:
        disks = stack.enter_context(loaded_scsi_debug(**options, vpd_use_hostno=1, max_queue=192))
        stack.enter_context(layers.mirrored(disks[:2]))
        stack.enter_context(layers.encrypted(disks[2]))
        settle()
        yield disks


def list_names(disks: list[str]) -> dict[str, tuple[set[str], str]]:
    """Return every name of the stacks, with the disks below it and the message."""
    first, second, third = disks
    mirror = {first, second}
    below = f"on md127, on {first} and {second}"
    mapper = os.path.realpath("/dev/vg-0/pg").removeprefix("/dev/")
    address = Path(f"/sys/block/{third}/device").resolve().name
    names = {
        "md127": (mirror, f"md127 is on {first} and {second}"),
        "/dev/md127": (mirror, f"/dev/md127 is on {first} and {second}"),
        "vg-0/pg": (mirror, f"vg-0/pg is {below}"),
        "/dev/vg-0/pg": (mirror, f"/dev/vg-0/pg is {below}"),
        "/dev/mapper/vg--0-pg": (mirror, f"/dev/mapper/vg--0-pg is on vg-0/pg, {below}"),
        mapper: (mirror, f"{mapper} is on vg-0/pg, {below}"),
        str(layers.MOUNT): (mirror, f"{layers.MOUNT} is on vg-0/pg, {below}"),
        f"{layers.MOUNT}/lost+found": (mirror, f"{layers.MOUNT}/lost+found is on vg-0/pg, {below}"),
        "secret": ({third}, f"secret is on {third}"),
        "/dev/mapper/secret": ({third}, f"/dev/mapper/secret is on {third}"),
        f"{third}1": ({third}, f"{third}1 is on {third}"),
        address: ({third}, ""),
    }
    # The links that udev's own rules make. scsi_debug has no path, unlike a disk of an adapter.
    behind = next(scsi_disks(name)[0] for name in ("megaraid_sas", "mptsas") if scsi_disks(name))
    for link in Path("/dev/disk").glob("by-*/*"):
        node = os.path.realpath(link).removeprefix("/dev/")
        if node in (third, behind):
            names[str(link)] = ({node}, "")
        elif node in ("md127", mapper):
            names[str(link)] = (mirror, f"{link} is on ")
    return names


@pytest.mark.parametrize("command", COMMANDS)
def test_every_name_is_a_target(stack: list[str], command: str) -> None:
    names = list_names(stack)
    assert {Path(name).parent.name for name in names} >= {"by-id", "by-path", "by-uuid"}
    groups = [tuple(names)]
    if command == "explain":  # it takes one, and the other commands follow the links
        groups = [(name,) for name in names if not name.startswith("/dev/")]
    for group in groups:
        done = hbatune(command, *COMMANDS[command], *group)
        assert done.code in (0, 1), done.err
        messages = " ".join(done.err.split())
        for name in group:
            disks, message = names[name]
            assert message in messages
            if command in ("list", "explain", "probe"):
                assert all(disk in done.out for disk in disks), done.out


def test_no_name_of_a_stack_is_destroyed(stack: list[str]) -> None:
    before = Path("/dev/md127").read_bytes()[: 1 << 20]
    for name in ("md127", "vg-0/pg", "/srv", "secret", f"{stack[2]}1"):
        done = hbatune("probe", "--destructive", "qd1-writes", name)
        assert (done.code, "name the empty disk" in " ".join(done.err.split())) == (2, True)
    assert Path("/dev/md127").read_bytes()[: 1 << 20] == before


def test_list_shows_the_stack_as_the_use(stack: list[str]) -> None:
    lines = {line.split()[0]: line for line in hbatune("list", "--all").out.splitlines() if line}
    for disk in stack[:2]:
        assert "/srv md127 vg-0/pg " in lines[disk]
    assert " secret " in lines[stack[2]]


def test_plan_shows_settings_that_decide(stack: list[str]) -> None:
    mapper = os.path.realpath("/dev/vg-0/pg").removeprefix("/dev/")
    rule = {"family": "scsi_debug", "name": "far", "setting": "read_ahead_kb", "value": 2048}
    with site_rules(rule):
        shown = hbatune("diff", *PROFILE, "vg-0/pg")
        document = hbatune("diff", *PROFILE, "--json", "vg-0/pg").json
        explained = hbatune("explain", *PROFILE, stack[0], "read_ahead_kb")
    devices = {device["target"]: device for device in document["stacks"]}
    assert devices.keys() == {"md127", mapper}
    for name, device in devices.items():
        assert device["disks"] == stack[:2]
        assert device["settings"]["read_ahead_kb"] == int(cat(name, "queue/read_ahead_kb"))
        assert "scheduler" not in device["settings"], "it passes I/O on"
    assert (devices[mapper]["label"], devices["md127"]["holders"]) == ("vg-0/pg", [mapper])
    for done in (shown, explained):
        assert "Devices on these disks" in done.out
        assert "vg-0/pg" in done.out


def test_request_size_is_never_lowered_below_stack(stack: list[str]) -> None:
    before = everything()
    size = int(cat("md127", "queue/max_sectors_kb"))
    rule = {"family": "scsi_debug", "name": "small", "setting": "max_sectors_kb", "value": 4}
    with site_rules(rule):
        done = hbatune("apply", *PROFILE, "--no-probe", "--once", "--json", *stack)
    for disk in stack:
        row = done.row(disk, "max_sectors_kb")
        assert (row["state"], row["outcome"]) == ("fixed", None)
        assert "not lowered below a live stack" in row["limit"]
    assert f"md127 sends up to {size} KiB" in done.row(stack[0], "max_sectors_kb")["limit"]
    assert hbatune("rollback").code == 0
    assert everything() == before


def test_members_are_treated_alike(stack: list[str]) -> None:
    """An administrator's decision on a member counts for the other one, and for no other disk."""
    first, second, third = stack
    before = everything()
    put(first, "device/queue_depth", "3")
    rule = {"family": "scsi_debug", "name": "deep", "setting": "queue_depth", "value": 150}
    try:
        configure(f'[site]\nexclude = ["{first}"]\n')
        with site_rules(rule):
            done = hbatune("apply", *PROFILE, "--no-probe", "--once", "--json", *stack)
        assert done.row(first, "queue_depth")["state"] == "excluded"
        assert f"{first} must not be changed" in done.row(second, "queue_depth")["limit"]
        assert "paths or members" in done.row(second, "queue_depth")["limit"]
        assert cat(second, "device/queue_depth") == before[f"{second}/device/queue_depth"]
        assert cat(third, "device/queue_depth") == "150"
    finally:
        configure("")
        assert hbatune("rollback").code == 0
        put(first, "device/queue_depth", before[f"{first}/device/queue_depth"])
    assert everything() == before


def test_rule_names_a_use(stack: list[str]) -> None:
    """The mount point is a use of both members, and of no other disk."""
    rule = (
        '[[rule]]\nname = "of-srv"\nwhen = { use = "/srv" }\nsetting = "nomerges"\n'
        'value = 1\nbecause = "a test"\nsource = "site"\n'
    )
    before = everything()
    with virtual.rules("use", rule):
        done = hbatune("apply", *PROFILE, "--no-probe", "--once", "--json")
        assert {row["target"] for row in done.rows(setting="nomerges")} == set(stack[:2])
    assert [cat(disk, "queue/nomerges") for disk in stack] == ["1", "1", "0"]
    assert hbatune("rollback").code == 0
    assert everything() == before
