"""One LUN over two hosts under a real dm-multipath map: what is set, and on which device."""

import os
import subprocess
from pathlib import Path
from typing import Any

from tests.lab.guest import appear, layers, multipath, virtual
from tests.lab.guest.boot import close_after_writing, database, idle_daemon
from tests.lab.guest.command import configure, hbatune
from tests.lab.guest.kit import loaded_scsi_debug, settle
from tests.lab.guest.known import few_pairs
from tests.lab.guest.test_stacks import COMMANDS
from tests.lab.guest.values import cat, everything, put, put_back, scheduler

KERNELS = ("6.12",)
DEEP = 150


def test_map_and_paths_are_distinguished(joined: tuple[str, list[str]]) -> None:
    name, paths = joined
    assert len(paths) == 2
    listed = {
        endpoint["target"]: endpoint for endpoint in hbatune("list", "--json").json["endpoints"]
    }
    assert listed[name]["kind"] == "map"
    assert sorted(listed[name]["paths"]) == sorted(paths)
    for path in paths:
        assert (listed[path]["kind"], listed[path]["map"]) == ("path", name)
        assert listed[path]["held"] is True


def test_lost_and_suspended_paths_are_reported(joined: tuple[str, list[str]]) -> None:
    name, paths = joined
    assert find_path_warnings(name) == []
    subprocess.run(["dmsetup", "suspend", "--noflush", name_map(name)], check=True)
    try:
        [suspended] = find_path_warnings(name)
    finally:
        subprocess.run(["dmsetup", "resume", name_map(name)], check=True)
    assert (suspended["severity"], "suspended" in suspended["evidence"]) == ("warning", True)
    states = []
    for path in paths:
        put(path, "device/state", "offline\n")  # the kernel wants the newline
        [finding] = find_path_warnings(name)
        states.append(finding["severity"])
    for path in paths:
        put(path, "device/state", "running\n")
    assert states == ["warning", "critical"], "an earlier check has seen two paths"


def test_idle_adapter_is_reported(joined: tuple[str, list[str]]) -> None:
    """Multipath's default for unknown arrays is one path at a time (failover)."""
    name, paths = joined
    failover, balanced = "service-time over 1 of 2 paths", "queue-length over 2 of 2 paths"
    # The kernel chooses a group at the first I/O.
    device = f"if=/dev/{name}"
    subprocess.run(["dd", device, "of=/dev/null", "bs=4096", "count=1", "iflag=direct"], check=True)
    assert sorted(read_groups(name)) == [("service-time", False, 1), ("service-time", True, 1)]
    for command in (("list", "--all"), ("explain", name, "read_ahead_kb", "--profile", "oltp")):
        assert failover in hbatune(*command).out
    [finding] = [
        finding
        for finding in hbatune("check", "--json").json["findings"]
        if finding["id"] == "map-balance"
    ]
    assert (finding["target"], finding["severity"]) == (name, "advice")
    assert len(finding["facts"]["idle"]) == 1
    numbers = [cat(path, "dev") for path in paths]
    group = f"queue-length 0 2 1 {numbers[0]} 1 {numbers[1]} 1"
    table = f"0 {cat(name, 'size')} multipath 0 0 1 1 {group}"
    subprocess.run(["dmsetup", "reload", name_map(name), "--table", table], check=True)
    subprocess.run(["dmsetup", "resume", name_map(name)], check=True)
    settle()
    assert read_groups(name) == [("queue-length", True, 2)]
    assert balanced in hbatune("list", "--all").out
    assert "map-balance" not in hbatune("check", "--json").out


def read_groups(name: str) -> list[tuple[str, bool, int]]:
    """Return selector, activity and number of paths of the groups of a map, as listed."""
    [listed] = [
        endpoint
        for endpoint in hbatune("list", "--json").json["endpoints"]
        if endpoint["target"] == name
    ]
    return [
        (group["selector"], group["active"], len(group["paths"])) for group in listed["path_groups"]
    ]


def find_path_warnings(name: str) -> list[dict[str, Any]]:
    findings = hbatune("check", "--json").json["findings"]
    key = ("map-paths", name)
    return [finding for finding in findings if (finding["id"], finding["target"]) == key]


def name_map(name: str) -> str:
    """Return the device-mapper name of a map."""
    return cat(name, "dm/name")


def test_depths_apply_only_to_paths(joined: tuple[str, list[str]]) -> None:
    name, paths = joined
    before = everything()
    queue_values = {
        disk: (scheduler(disk), cat(disk, "queue/nr_requests")) for disk in (name, *paths)
    }
    for path in paths:
        put_back({f"{path}/device/queue_depth": "20"})
    with virtual.deep(DEEP):
        done = hbatune("apply", "--profile", "oltp", "--no-probe", "--json", name)
    assert done.code == 0, done.err
    assert {row["target"] for row in done.rows(outcome="written")} == set(paths)
    assert [cat(path, "device/queue_depth") for path in paths] == [str(DEEP)] * 2
    current_values = {
        disk: (scheduler(disk), cat(disk, "queue/nr_requests")) for disk in (name, *paths)
    }
    assert current_values == queue_values
    assert hbatune("rollback").code == 0
    assert [cat(path, "device/queue_depth") for path in paths] == ["20", "20"]
    put_back(before)


def test_probe_targets_map(joined: tuple[str, list[str]]) -> None:
    name, paths = joined
    for path in paths:
        put_back({f"{path}/device/queue_depth": "20"})
    configure("[probe]\nverify_seconds = 0.5\n")
    try:
        with virtual.deep(DEEP):
            done = hbatune("apply", "--profile", "oltp", "--json", name, prepare=few_pairs)
    finally:
        configure("")
    assert done.code == 0, done.err
    assert {proof["target"] for proof in done.json["verdicts"]} == {name}


def test_udev_sets_map_at_load() -> None:
    """No daemon is about; and what the map had comes back."""
    luns = {"max_luns": 1, "num_tgts": 1, "max_queue": 192, "vpd_use_hostno": 0}
    with loaded_scsi_debug(**luns), appear.two_hosts():
        with multipath.joined() as name:
            was = cat(name, "queue/read_ahead_kb")
        with idle_daemon():
            try:
                assert hbatune("install", "--profile", "oltp").code == 0
                with multipath.joined() as name:
                    assert cat(name, "queue/read_ahead_kb") == "512"
                    assert database(name)["HBATUNE_WAS_READ_AHEAD_KB"] == was
                    reloaded = appear.Reloaded(name)
                    appear.again(reloaded)
                    settle()
                    assert reloaded.right(name)
                    put(name, "queue/read_ahead_kb", "64")
                    close_after_writing(name)
                    assert cat(name, "queue/read_ahead_kb") == "64", "an administrator's"
                    assert database(name)["HBATUNE_WAS_READ_AHEAD_KB"] == was
                    assert hbatune("rollback").code == 0
                    assert cat(name, "queue/read_ahead_kb") == was
            finally:
                hbatune("uninstall")


def test_scheduler_of_map_is_shown_with_paths(joined: tuple[str, list[str]]) -> None:
    name, paths = joined
    with layers.volume("vg1", "data", f"/dev/{name}"):
        document = hbatune("diff", "--profile", "throughput", "--json", "vg1/data").json
        devices = {device["label"]: device for device in document["stacks"]}
    assert devices["vg1/data"]["disks"] == [name]
    label = cat(name, "dm/name")
    assert devices[label]["disks"] == sorted(paths)
    assert devices[label]["settings"]["scheduler"] == "mq-deadline"


def test_every_name_of_a_map_is_a_target(joined: tuple[str, list[str]]) -> None:
    name, paths = joined
    with layers.volume("vg1", "data", f"/dev/{name}"), layers.mounted("/dev/vg1/data"):
        nodes = {name, os.path.realpath("/dev/vg1/data").removeprefix("/dev/")}
        links = [
            str(link) for link in Path("/dev/disk").glob("by-*/*") if link.readlink().name in nodes
        ]
        assert any("dm-uuid-mpath-" in link for link in links)
        names = [name, "mpatha", "/dev/mapper/mpatha", *links, "vg1/data", "/dev/vg1/data"]
        names += [str(layers.MOUNT), f"{layers.MOUNT}/lost+found"]
        for target in ("mpatha", "vg1/data"):
            listed = hbatune("list", "--json", target).json["endpoints"]
            assert name in {endpoint["target"] for endpoint in listed}, target
        for command, options in COMMANDS.items():
            # `explain` takes one target, and the other commands follow the links.
            single = [("mpatha",), ("vg1/data",), (str(layers.MOUNT),)]
            for group in single if command == "explain" else [tuple(names)]:
                done = hbatune(command, *options, *group)
                assert done.code in (0, 1), (group, done.err)
                assert name in done.out or paths[0] in done.out, (group, done.out)
        refused = hbatune("probe", "--destructive", "qd1-writes", "vg1/data")
        assert (refused.code, "name the empty disk" in " ".join(refused.err.split())) == (2, True)
        refused = hbatune("probe", "--destructive", "qd1-writes", "mpatha")
        assert refused.code != 0, "it holds a volume"
