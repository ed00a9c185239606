"""Typical endpoints, and the settings that a profile gives them (docs/profiles.md)."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts.model import Kind, Medium, Protocol, Storage
from hbatune.policy.match import Matcher, Traits, find_objective
from hbatune.policy.profile import AtLeast, Exactly, Leave, Multipath, Objective, Profile, Rule

_RAID = Traits("megaraid_sas", Protocol.VOLUME, Medium.SSD)

TYPICAL_ENDPOINTS: Mapping[str, Traits] = {
    "NVMe drive, native": Traits("nvme", Protocol.NVME, Medium.NVME),
    "NVMe path of a native multipath": Traits(
        "nvme", Protocol.NVME, Medium.NVME, Kind.PATH, Multipath.NVME
    ),
    "NVMe behind a tri-mode HBA": Traits("mpi3mr", Protocol.NVME, Medium.NVME, tri_mode=True),
    "SAS SSD": Traits("mpt3sas", Protocol.SAS, Medium.SSD),
    "SAS HDD": Traits("mpt3sas", Protocol.SAS, Medium.HDD),
    "SATA": Traits("ahci", Protocol.SATA, Medium.SSD),
    "RAID volume": _RAID,
    "RAID volume (ipr, Gen1 link)": replace(_RAID, family="ipr", gen=1, width=8),
    "RAID volume (ipr, any other link)": replace(_RAID, family="ipr", gen=3, width=8),
    "FC": Traits("lpfc", Protocol.FC, Medium.SSD, storage=Storage.ARRAY),
    "iSCSI": Traits("iscsi_tcp", Protocol.ISCSI, Medium.SSD, storage=Storage.ARRAY),
    "array attached by SAS": Traits("mpt3sas", Protocol.SAS, Medium.SSD, storage=Storage.ARRAY),
    "NVMe over fabrics": Traits("nvme", Protocol.NVME, Medium.NVME, storage=Storage.FABRIC),
    "NVMe of a cloud": Traits("nvme", Protocol.NVME, Medium.NVME, storage=Storage.VIRTUAL),
    "dm-multipath map": Traits("dm", Protocol.SAS, Medium.SSD, Kind.MAP, Multipath.DM),
    "dm-multipath path, SAS SSD": Traits(
        "mpt3sas", Protocol.SAS, Medium.SSD, Kind.PATH, Multipath.DM
    ),
    "parallel SCSI": Traits("sym53c8xx", Protocol.SPI, Medium.HDD),
    "virtual disk": Traits("virtio_scsi", Protocol.VIRTIO, Medium.SSD, storage=Storage.VIRTUAL),
}
"""One endpoint of each type in the documents, by its usual name."""


class OverviewRow(Struct, frozen=True):
    """The deciding rules of a profile for one type of endpoint, by setting."""

    endpoint: str
    rules: dict[str, Rule]
    objective: Objective | None


def build_overview(profile: Profile) -> tuple[OverviewRow, ...]:
    """Return a row for each type of endpoint, with the settings that the profile has rules for.

    Rules that require a vendor or model match no row.
    """
    return tuple(
        OverviewRow(
            name,
            dict(Matcher(profile).won(properties)),
            find_objective(profile, properties),
        )
        for name, properties in TYPICAL_ENDPOINTS.items()
    )


def goal(row: OverviewRow) -> str:
    """Return the row's objective with its source, or an empty text."""
    return f"{row.objective.p99_ms:g} ms ({row.objective.source})" if row.objective else ""


def cell(row: OverviewRow, setting: str) -> str:
    """Return the row's value of a setting, with the source."""
    rule = row.rules.get(setting)
    if rule is None or isinstance(rule.effect, Leave):
        return "unchanged"
    if setting == "nr_requests" and _without_scheduler(row):
        return f"tag set ({rule.source})"
    return f"{_value(rule)} ({rule.source})"


def _without_scheduler(row: OverviewRow) -> bool:
    rule = row.rules.get("scheduler")
    return rule is not None and rule.effect == Exactly("none")


def _value(rule: Rule) -> str:
    if isinstance(rule.effect, AtLeast):
        return f"at least {rule.effect.value}"
    assert isinstance(rule.effect, Exactly)
    return f"`{rule.effect.value}`" if rule.setting == "scheduler" else str(rule.effect.value)
