"""A shared array on Fibre Channel: real remote ports, two paths, ALUA, and its rules (D2)."""

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from msgspec.structs import replace

from hbatune.probe import workloads
from hbatune.probe.workloads import NamedWorkload, find_workload
from tests.lab.guest import multipath, service
from tests.lab.guest.command import configure, hbatune
from tests.lab.guest.fibre import NON_OPTIMIZED, OPTIMIZED, Fabric, fabric
from tests.lab.guest.values import cat, put

KERNELS = ("6.12",)

# The port takes 1,600 commands from four hosts: 400 from this one, 200 for each of its two LUNs.
# The LUN takes 32, and 14 for each of four data drives: 88, over all paths that serve it (D2-5).
SHARED = """
[[site.array]]
name = "clariion"
vendor = "DGC"
hosts = 4
port_limit = 1600
data_drives = 4
"""
WHOLE, EACH = "88", "44"
OWN = "32"
"""The depth that libfc begins with (drivers/scsi/libfc/fc_fcp.c: fc_slave_alloc)."""


@pytest.fixture(scope="module")
def array(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    """A CLARiiON with two LUNs, over two ports of its own and two of this host."""
    folder = tmp_path_factory.mktemp("luns")
    with fabric(folder, paths=2, luns=2, vendor="DGC", model="RAID 5") as test_fabric:
        yield test_fabric


@pytest.fixture(autouse=True)
def _as_before(array: Fabric) -> Iterator[None]:
    depths = {disk: cat(disk, "device/queue_depth") for disk in array.disks()}
    yield
    hbatune("uninstall")
    configure("")
    array.serve({0: OPTIMIZED, 1: OPTIMIZED})
    for disk in set(array.disks()) & set(depths):
        put(disk, "device/queue_depth", depths[disk])


def depths(disks: list[str]) -> list[str]:
    """Return the depths in force."""
    return [cat(disk, "device/queue_depth") for disk in disks]


def listed() -> dict[str, dict[str, Any]]:
    """Return what `list` says of the disks behind Fibre Channel, by name."""
    endpoints = hbatune("list", "--json").json["endpoints"]
    return {endpoint["target"]: endpoint for endpoint in endpoints if endpoint["protocol"] == "fc"}


def applied(*targets: str) -> None:
    """Apply the profile to these."""
    done = hbatune("apply", "--profile", "oltp", "--no-probe", *targets)
    assert done.code == 0, done.out + done.err


def test_array_is_listed_by_port(array: Fabric) -> None:
    endpoints = listed()
    assert sorted(endpoints) == array.disks()
    for path in (0, 1):
        for lun, disk in enumerate(array.disks_of(path)):
            assert endpoints[disk]["vendor"] == "DGC"
            assert endpoints[disk]["storage"] == "array"
            assert endpoints[disk]["id"].startswith("naa.")
            # Interface and port name: nothing of it is a number that a boot gives.
            assert endpoints[disk]["id"].endswith(
                f"@i{path}/fc-0x20000200000002{path:02x}-lun-{lun}"
            )


def test_path_reports_access_and_preference(array: Fabric) -> None:
    for first, second in ((0, 1), (1, 0)):
        array.serve({first: OPTIMIZED, second: NON_OPTIMIZED}, preferred=first)
        endpoints = listed()
        for path, expected in ((first, (OPTIMIZED, True)), (second, (NON_OPTIMIZED, False))):
            for disk in array.disks_of(path):
                assert (endpoints[disk]["access"], endpoints[disk]["preferred"]) == expected
        # Both LUNs by one adapter of two: the document has half of them on each (D4-4).
        findings = hbatune("check", "--json", *array.disks()).json["findings"]
        [uneven] = [finding for finding in findings if finding["id"] == "preferred-paths"]
        assert (uneven["target"], uneven["source"]) == (array.host(first), "D4-4")


def test_undescribed_array_depth_is_unchanged(array: Fabric) -> None:
    applied(*array.disks())
    assert depths(array.disks()) == [OWN] * 4
    explanation = hbatune("explain", array.disks()[0], "queue_depth").out
    assert "32 (D2-1). [[site.array]]" in " ".join(explanation.split())


def test_depth_respects_port_and_lun(array: Fabric) -> None:
    configure(SHARED)
    was = depths(array.disks())
    with multipath.joined_disks("DGC", "RAID 5") as maps:
        assert len(maps) == 2
        applied(*maps)
        assert depths(array.disks()) == [EACH] * 4
        again = hbatune("apply", "--profile", "oltp", "--no-probe", "--json", *maps)
        assert not again.rows(outcome="written")
        explanation = hbatune("explain", array.disks()[0], "queue_depth").out
        for part in ("32", "14", "88", "1600", "D2-4", "D2-5"):
            assert part in explanation, explanation
    assert depths(array.disks()) == was


SITES = {
    # Few hosts, and room enough: the most to which a depth is raised.
    "D2-2": ("hosts = 1\nport_limit = 4096\nlun_limit = 2048", 256),
    # A limit for each LUN by itself is not divided by the two LUNs behind the port.
    "D2-3": ('hosts = 4\nport_limit = 160\ncounting = "lun"', 40),
    "D2-4": ("hosts = 4\nport_limit = 160", 20),
    "D2-5": ("hosts = 4\nport_limit = 1600\ndata_drives = 8", (32 + 14 * 8) // 2),
}
"""What a site says of its array, and the depth for each of two LUNs over each of two paths."""


@pytest.mark.parametrize("advice", SITES)
def test_smallest_document_advice_decides(array: Fabric, advice: str) -> None:
    facts, depth = SITES[advice]
    configure(f'[[site.array]]\nname = "clariion"\nvendor = "DGC"\n{facts}\n')
    done = hbatune("apply", "--profile", "oltp", "--no-probe", "--json", *array.disks())
    assert done.code == 0, done.out + done.err
    assert depths(array.disks()) == [str(depth)] * 4
    cited = {row["source"] for row in done.rows(setting="queue_depth")}
    assert cited == {"D2-4" if advice == "D2-3" else advice}  # D2-3 is how D2-4's limit counts


def test_lun_limit_counts_serving_paths(array: Fabric) -> None:
    configure(SHARED)
    array.serve({0: OPTIMIZED, 1: NON_OPTIMIZED})
    applied(*array.disks())
    assert depths(array.disks()) == [WHOLE] * 4


def thin_workload(name: str, shipped: Any) -> NamedWorkload:
    """Return the shipped workload with every seventh run, at least one for each queue depth.

    The soak tests run all of them.
    """
    workload = find_workload(name, shipped)
    return replace(workload, runs=workload.runs[::7])


def test_depth_sweep_reads_remote_port(array: Fabric) -> None:
    def prepare() -> None:
        mock.patch.object(workloads, "find_workload", thin_workload).start()

    disk = array.disks_of(0)[0]
    words = ("probe", "queue-depth", "--runtime", "0.5", "--json", disk)
    done = hbatune(*words, prepare=prepare)
    assert done.code == 0, done.out + done.err
    assert done.json["sources"] == ["D2-1"]
    assert {run["workload"]["queue_depth"] for run in done.json["runs"]} == {8, 16, 32, 64, 128}
    for run in done.json["runs"]:
        settings = {entry["setting"]: entry["value"] for entry in run["outcome"]["settings"]}
        assert settings["queue_depth"] == run["workload"]["queue_depth"]
        assert run["outcome"]["figures"]["iops"] > 0
    assert cat(disk, "device/queue_depth") == OWN, "its own depth is back"


def test_access_change_preserves_unrelated_rules(array: Fabric) -> None:
    array.serve({0: OPTIMIZED, 1: NON_OPTIMIZED})
    joined = multipath.joined_disks("DGC", "RAID 5")
    with joined, service.running(service.QUICK + SHARED):
        assert depths(array.disks()) == [WHOLE] * 4
        with service.Journal() as journal:
            array.serve({0: NON_OPTIMIZED, 1: OPTIMIZED})
            service.let_be(12)  # two audits
            assert depths(array.disks()) == [WHOLE] * 4
            assert hbatune("diff", *array.disks()).code == 0
            # The LUN's limit is for both paths now, and that is a rule that rests on the state.
            array.serve({0: OPTIMIZED, 1: OPTIMIZED})
            journal.until_all_set(array.disks(), "queue_depth")
        written = [entry for entry in journal.entries if entry.get("HBATUNE_SETTING")]
        assert {entry["HBATUNE_SETTING"] for entry in written} == {"queue_depth"}
        assert len(written) == len(array.disks())
        assert depths(array.disks()) == [EACH] * 4


def test_restored_path_is_tuned(array: Fabric) -> None:
    config = service.QUIET + SHARED
    joined = multipath.joined_disks("DGC", "RAID 5")
    with joined, service.running(config), service.without_rules():
        assert depths(array.disks()) == [EACH] * 4
        # Those that are left may have the whole limit meanwhile: an event of the map tells it.
        array.lose(0)
        with service.Journal() as journal:
            back = array.give_back(0)
            journal.until_all_set(back, "queue_depth")
            # The same event has them make room, before multipathd has joined the path again.
            assert depths(array.disks()) == [EACH] * 4
