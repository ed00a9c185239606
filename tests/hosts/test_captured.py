"""What hbatune says of a captured host with a Broadcom HBA 9400-8i8e."""

from pathlib import Path

import pytest

from hbatune.facts.model import Machine, Medium, Missing, Protocol, Reason
from tests.hosts.captured import PROCFS, unpack
from tests.hosts.namespace import gather_in

pytestmark = pytest.mark.skipif(
    not PROCFS.is_file(), reason="no captured hosts beside the checkout"
)

ABSENT = Missing(Reason.ABSENT, 2)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    unpack(PROCFS, tmp_path)
    return gather_in(tmp_path, ("queue/nr_requests", "device/queue_depth"))


def test_the_adapters_are_as_captured(machine: Machine) -> None:
    found = {adapter.target: adapter for adapter in machine.adapters}
    hba, nvme = found["0000:03:00.0"], found["0000:01:00.0"]
    assert (hba.driver, hba.family) == ("mpt3sas", "mpt3sas")
    assert hba.product == "HBA 9400-8i8e"
    assert hba.pci is not None
    assert (hba.pci.class_code, hba.pci.vendor, hba.pci.device) == (0x010700, 0x1000, 0x00AB)
    assert (hba.hosts[0].can_queue, hba.hosts[0].hw_queues) == (7056, 44)
    assert (nvme.family, nvme.firmware, nvme.hw_queues) == ("nvme", "P9CR30A", 8)


def test_disks_are_told_apart_without_a_queue_folder(machine: Machine) -> None:
    found = {endpoint.target: endpoint for endpoint in machine.endpoints}
    assert {name: each.protocol for name, each in found.items()} == {
        "nvme0n1": Protocol.NVME,
        "sdv": Protocol.SATA,
        "sdw": Protocol.SAS,
        "sdx": Protocol.SATA,
    }
    assert found["sdw"].id == "naa.5000cca26128b1f4@0000:03:00.0/sas-0x5000cca26128b1f5-lun-0"
    for name in ("sdv", "sdw", "sdx"):
        assert found[name].attributes["queue/nr_requests"] == ABSENT
        assert found[name].medium is Medium.UNKNOWN
        assert (found[name].tags, found[name].rotational) == (ABSENT, ABSENT)
