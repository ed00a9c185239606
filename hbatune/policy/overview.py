"""What a profile sets, by kind of endpoint: the data of a table for people."""

from collections.abc import Mapping

from msgspec import Struct

from hbatune.facts.model import Kind, Medium, Protocol
from hbatune.policy.match import Traits, matching, objective, winners
from hbatune.policy.model import Multipath, Objective, Profile, Rule

_RAID = Traits("megaraid_sas", Protocol.VOLUME, Medium.SSD)

ENDPOINTS: Mapping[str, Traits] = {
    "NVMe drive, native": Traits("nvme", Protocol.NVME, Medium.NVME),
    "NVMe path of a native multipath": Traits(
        "nvme", Protocol.NVME, Medium.NVME, Kind.PATH, Multipath.NVME
    ),
    "NVMe behind a tri-mode HBA": Traits("mpi3mr", Protocol.NVME, Medium.NVME, tri_mode=True),
    "SAS SSD": Traits("mpt3sas", Protocol.SAS, Medium.SSD),
    "SAS HDD": Traits("mpt3sas", Protocol.SAS, Medium.HDD),
    "SATA": Traits("ahci", Protocol.SATA, Medium.SSD),
    "RAID volume": _RAID,
    "RAID volume (ipr, Gen1 link)": _RAID._replace(family="ipr", gen=1, width=8),
    "RAID volume (ipr, any other link)": _RAID._replace(family="ipr", gen=3, width=8),
    "FC": Traits("lpfc", Protocol.FC, Medium.SSD),
    "iSCSI": Traits("iscsi_tcp", Protocol.ISCSI, Medium.SSD),
    "dm-multipath map": Traits("dm", Protocol.SAS, Medium.SSD, Kind.MAP, Multipath.DM),
    "dm-multipath path, SAS SSD": Traits(
        "mpt3sas", Protocol.SAS, Medium.SSD, Kind.PATH, Multipath.DM
    ),
    "parallel SCSI": Traits("sym53c8xx", Protocol.SPI, Medium.HDD),
    "virtual disk": Traits("virtio_scsi", Protocol.VIRTIO, Medium.SSD),
}
"""One endpoint to stand for each kind that the documents tell apart, by what a person calls it."""


class Row(Struct, frozen=True):
    """What a profile wants of one kind of endpoint: the deciding rule of each setting named."""

    endpoint: str
    rules: dict[str, Rule]
    objective: Objective | None


def overview(profile: Profile) -> tuple[Row, ...]:
    """Return what the profile sets, a row for each kind of endpoint; an absent setting is not set.

    Rules that ask for a vendor or model match none of these.
    """
    return tuple(
        Row(name, winners(matching(profile.rules, it)), objective(profile, it))
        for name, it in ENDPOINTS.items()
    )
