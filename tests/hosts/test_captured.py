"""What hbatune says of captured hosts: one with a Broadcom HBA 9400-8i8e, and others' test data.

The archives are the test data of other projects, under the names that they have here:
util-linux tests/ts/lsblk/dumps (simple-lvm, simple-nvme, multi-devs-bcachefs), Performance
Co-Pilot qa/linux (scsi-map-root-001), eudev test/sys.tar.xz (eudev-sys) and jaypipes/ghw
testdata/snapshots (ghw-*, by the first letters of their names).
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hbatune.facts.model import Machine, Medium, Missing, Protocol, Reason
from tests.hosts.captured import PROCFS, archives, unpack, unpack_tar
from tests.hosts.namespace import OWN_CONFIGURATION, gather_in, run

captured = pytest.mark.skipif(not PROCFS.is_file(), reason="no captured hosts beside the checkout")

ABSENT = Missing(Reason.ABSENT, 2)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    unpack(PROCFS, tmp_path)
    return gather_in(tmp_path, ("queue/nr_requests", "device/queue_depth"))


@captured
def test_adapters_match_capture(machine: Machine) -> None:
    adapters = {adapter.target: adapter for adapter in machine.adapters}
    hba, nvme = adapters["0000:03:00.0"], adapters["0000:01:00.0"]
    assert (hba.driver, hba.family) == ("mpt3sas", "mpt3sas")
    assert hba.product == "HBA 9400-8i8e"
    assert hba.pci is not None
    assert (hba.pci.class_code, hba.pci.vendor, hba.pci.device) == (0x010700, 0x1000, 0x00AB)
    assert (hba.hosts[0].can_queue, hba.hosts[0].hw_queues) == (7056, 44)
    assert (nvme.family, nvme.firmware, nvme.hw_queues) == ("nvme", "P9CR30A", 8)


@captured
def test_disks_are_classified_without_queue(machine: Machine) -> None:
    endpoints = {endpoint.target: endpoint for endpoint in machine.endpoints}
    assert {name: endpoint.protocol for name, endpoint in endpoints.items()} == {
        "nvme0n1": Protocol.NVME,
        "sdv": Protocol.SATA,
        "sdw": Protocol.SAS,
        "sdx": Protocol.SATA,
    }
    assert endpoints["sdw"].id == "naa.5000cca26128b1f4@0000:03:00.0/sas-0x5000cca26128b1f5-lun-0"
    for name in ("sdv", "sdw", "sdx"):
        assert endpoints[name].attributes["queue/nr_requests"] == ABSENT
        assert endpoints[name].medium is Medium.UNKNOWN
        assert (endpoints[name].tags, endpoints[name].rotational) == (ABSENT, ABSENT)


SPOKEN = {
    "eudev-sys": {"sda": "sata", "sdb": "unknown"},
    "ghw-415ee": {"nvme0n1": "nvme"},
    "ghw-61797": {"sda": "sata", "sdb": "sata", "sdc": "sata"},
    "ghw-8581c": {"sda": "volume"},
    "ghw-accel": {"vda": "virtio"},
    "ghw-s390x": {f"sd{letter}": "fc" for letter in "abcdefghijklmnop"},
    "multi-devs-bcachefs": {"nvme0n1": "nvme", "sda": "sata", "sdb": "sata", "sdc": "unknown"},
    "scsi-map-root-001": {
        "nvme0n1": "nvme",
        **{f"sd{letter}": "virtual" for letter in "bcde"},
        "dm-3": "unknown",
    },
    "simple-lvm": {"nvme0n1": "nvme", "sda": "sata", "sdb": "sata"},
    "simple-nvme": {"nvme0n1": "nvme", "sda": "sata", "sdb": "sata"},
}
"""What each archive's disks are. Captures lack most drivers, links and files of hosts."""

_RUN = "import sys; from hbatune.cli import main; main(sys.argv[1:])"


@pytest.fixture
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The unpacked archive of this name; skipped where it is not there."""
    archive = archives().get(request.param)
    if archive is None:
        pytest.skip("no such capture beside the checkout")
    unpack_tar(archive, tmp_path)
    return tmp_path


def run_json(root: Path, *words: str) -> Any:
    command = [*OWN_CONFIGURATION, sys.executable, "-c", _RUN, *words, "--json"]
    return json.loads(run(root, command))


@pytest.mark.parametrize("root", SPOKEN, indirect=True)
def test_captured_host_answers_are_true(root: Path, request: pytest.FixtureRequest) -> None:
    spoken = SPOKEN[request.node.callspec.params["root"]]
    listed = {endpoint["target"]: endpoint for endpoint in run_json(root, "list")["endpoints"]}
    assert {disk: endpoint["protocol"] for disk, endpoint in listed.items()} == spoken
    plan = run_json(root, "diff", "--profile", "oltp")
    unknown = {disk for disk, protocol in spoken.items() if protocol == "unknown"}
    assert {entry["target"] for entry in plan["left_alone"]} == unknown
    assert all(entry["evidence"] for entry in plan["left_alone"])
    # Old kernels offer schedulers of other names; nothing that they do not have is planned.
    for row in plan["rows"]:
        if row["setting"] == "scheduler" and row["state"] == "drift":
            disk = root / listed[row["target"]]["sysfs"].removeprefix("/")
            offered = (disk / "queue" / "scheduler").read_text().split()
            assert row["value"] in {scheduler.strip("[]") for scheduler in offered}
    findings = run_json(root, "check", "--profile", "oltp")["findings"]
    # What was not captured cannot be read, and nothing worse than that may be said.
    grave = {finding["id"] for finding in findings if finding["severity"] != "info"}
    assert grave <= {"adapter-unread", "disk-unread"}
