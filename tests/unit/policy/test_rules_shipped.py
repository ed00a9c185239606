"""What ships: the table of the documents' advice, each rule with its source, no depth lowered."""

import re
from pathlib import Path

import msgspec
import pytest

from hbatune.facts.families import known_options
from hbatune.facts.model import Adapter, Endpoint, Kind, Medium, Protocol, Storage
from hbatune.policy.library import Library, list_profiles, load_profile
from hbatune.policy.match import Matcher, build_traits, find_objective
from hbatune.policy.profile import AtLeast, Effect, Exactly, Leave, Origin, Profile
from hbatune.policy.rules import check_part
from hbatune.policy.toml_files import read_toml
from hbatune.settings.table import SETTINGS
from hbatune.shipped import find_shipped
from tests.unit.machines import adapter, endpoint, link
from tests.unit.site_folder import SiteFolder
from tools.endpoint_types import TYPICAL_ENDPOINTS, build_overview

NAMES = ["balanced", "latency", "oltp", "throughput"]
NONE, DEADLINE, MOST, LEAVE = Exactly("none"), Exactly("mq-deadline"), Exactly(2048), Leave()
LOCAL = (DEADLINE, MOST)


def volume(family: str) -> Endpoint:
    return endpoint(family=family, protocol=Protocol.VOLUME)


NVME = {"protocol": Protocol.NVME, "medium": Medium.NVME}
HIDDEN = endpoint(family="nvme", kind=Kind.PATH, map="nvme0n1", controller="nvme0", **NVME)
HEAD = endpoint(target="nvme0n1", family="nvme", kind=Kind.MAP, adapter=None, **NVME)
NVME_HDD = endpoint(family="nvme", protocol=Protocol.NVME, medium=Medium.HDD)
GEN1 = adapter(family="ipr", link=link(speed=2.5))
GEN2 = adapter(family="ipr", link=link(speed=5.0))
GEN3 = adapter(family="ipr", link=link(speed=8.0))

OLTP: dict[str, tuple[Endpoint, Adapter | None, Effect | None, Effect | None, Effect | None]] = {
    "NVMe": (endpoint(family="nvme", **NVME), adapter(), NONE, MOST, None),
    "NVMe HDD": (NVME_HDD, adapter(), *LOCAL, None),
    "NVMe HDD, tri-mode": (
        msgspec.structs.replace(NVME_HDD, family="mpi3mr", tri_mode=True), adapter(), *LOCAL, None,
    ),
    "NVMe hidden path": (HIDDEN, adapter(), NONE, MOST, None),
    "NVMe head": (HEAD, None, LEAVE, LEAVE, LEAVE),
    "NVMe, tri-mode": (
        endpoint(family="mpi3mr", tri_mode=True, **NVME), adapter(), NONE, MOST, AtLeast(128),
    ),
    "SAS SSD": (endpoint(), adapter(), *LOCAL, AtLeast(64)),
    "SAS SSD, tri-mode": (endpoint(tri_mode=True), adapter(), *LOCAL, AtLeast(64)),
    "SAS HDD": (endpoint(medium=Medium.HDD), adapter(), *LOCAL, None),
    "SATA SSD": (endpoint(protocol=Protocol.SATA), adapter(), *LOCAL, AtLeast(32)),
    "SATA HDD": (
        endpoint(protocol=Protocol.SATA, medium=Medium.HDD, family="ahci"), adapter(),
        *LOCAL, AtLeast(32),
    ),
    "megaraid_sas": (volume("megaraid_sas"), adapter(), *LOCAL, None),
    "smartpqi": (volume("smartpqi"), adapter(), *LOCAL, None),
    "hpsa": (volume("hpsa"), adapter(), *LOCAL, LEAVE),
    "aacraid": (volume("aacraid"), adapter(), *LOCAL, LEAVE),
    "aacraid's SAS disk": (endpoint(family="aacraid"), adapter(), *LOCAL, LEAVE),
    "aacraid's SATA disk": (
        endpoint(family="aacraid", protocol=Protocol.SATA), adapter(), *LOCAL, LEAVE,
    ),
    "ipr, Gen1": (volume("ipr"), GEN1, *LOCAL, AtLeast(64)),
    "ipr, Gen2": (volume("ipr"), GEN2, *LOCAL, AtLeast(16)),
    "ipr, Gen3": (volume("ipr"), GEN3, *LOCAL, AtLeast(16)),
    "ipr's SATA disk": (
        endpoint(family="ipr", protocol=Protocol.SATA), GEN3, *LOCAL, LEAVE,
    ),
    "FC": (endpoint(family="lpfc", protocol=Protocol.FC), adapter(), LEAVE, LEAVE, LEAVE),
    "iSCSI": (endpoint(family="iscsi_tcp", protocol=Protocol.ISCSI), None, LEAVE, LEAVE, LEAVE),
    "map": (endpoint(target="dm-0", kind=Kind.MAP), None, LEAVE, LEAVE, LEAVE),
    "path": (endpoint(kind=Kind.PATH, map="dm-0"), adapter(), LEAVE, LEAVE, AtLeast(64)),
    "NVMe path of a dm map": (
        endpoint(family="nvme", kind=Kind.PATH, map="dm-0", **NVME), adapter(), LEAVE, LEAVE, None,
    ),
    "FC path": (
        endpoint(kind=Kind.PATH, map="dm-0", protocol=Protocol.FC), adapter(), LEAVE, LEAVE, LEAVE,
    ),
    "parallel SCSI": (
        endpoint(family="sym53c8xx", protocol=Protocol.SPI, medium=Medium.HDD), adapter(),
        *LOCAL, AtLeast(4),
    ),
    "virtio_scsi": (
        endpoint(family="virtio_scsi", protocol=Protocol.VIRTIO, storage=Storage.VIRTUAL),
        adapter(), LEAVE, LEAVE, None,
    ),
    "vmw_pvscsi": (
        endpoint(family="vmw_pvscsi", protocol=Protocol.VIRTUAL, storage=Storage.VIRTUAL),
        adapter(), LEAVE, LEAVE, None,
    ),
    "scsi_debug": (
        endpoint(family="scsi_debug", protocol=Protocol.VIRTUAL, storage=Storage.VIRTUAL), None,
        LEAVE, LEAVE, None,
    ),
    "unknown": (
        endpoint(protocol=Protocol.UNKNOWN, medium=Medium.UNKNOWN), adapter(), None, None, None,
    ),
}  # fmt: skip
"""What is wanted of the settings in ``NAMED`` by endpoint, as the documents' advice has them."""

NAMED = ("scheduler", "nr_requests", "queue_depth")
"""Settings of which the documents say what to do; a rule for another one changes no test."""


def wants(profile: Profile, disk: Endpoint, behind: Adapter | None) -> dict[str, Effect]:
    won = Matcher(profile).won(build_traits(disk, behind))
    return {setting: rule.effect for setting, rule in won.items() if setting in NAMED}


def row(*effects: Effect | None) -> dict[str, Effect]:
    return {name: effect for name, effect in zip(NAMED, effects, strict=False) if effect}


@pytest.mark.parametrize("name", OLTP)
def test_oltp_matches_documents(site: SiteFolder, name: str) -> None:
    disk, behind, *effects = OLTP[name]
    assert wants(site.load("oltp"), disk, behind) == row(*effects)


@pytest.mark.parametrize("name", OLTP)
def test_latency_is_shallower_than_oltp(site: SiteFolder, name: str) -> None:
    disk, behind, scheduler, requests, depth = OLTP[name]
    if requests == MOST and disk.medium is not Medium.NVME:
        requests = LEAVE
    shallower = {AtLeast(128): AtLeast(64)}
    if disk.protocol is Protocol.SAS and disk.family != "ipr":
        shallower[AtLeast(64)] = AtLeast(32)
    depth = shallower.get(depth, depth) if isinstance(depth, AtLeast) else depth
    assert wants(site.load("latency"), disk, behind) == row(scheduler, requests, depth)


@pytest.mark.parametrize("name", OLTP)
def test_balanced_sets_scheduler_and_requests(site: SiteFolder, name: str) -> None:
    disk, behind, *effects = OLTP[name]
    assert wants(site.load("balanced"), disk, behind) == row(*effects[:2])


@pytest.mark.parametrize("name", OLTP)
def test_throughput_is_deeper_than_oltp(site: SiteFolder, name: str) -> None:
    disk, behind, scheduler, requests, depth = OLTP[name]
    deeper = {AtLeast(128): AtLeast(256)}
    if disk.protocol is Protocol.SAS and disk.family != "ipr":
        deeper[AtLeast(64)] = AtLeast(96)
    depth = deeper.get(depth, depth) if isinstance(depth, AtLeast) else depth
    if disk.protocol is Protocol.SATA:
        requests = LEAVE
    assert wants(site.load("throughput"), disk, behind) == row(scheduler, requests, depth)


def test_ipr_overrides_sas_ssd_depth(site: SiteFolder) -> None:
    for profile in ("oltp", "throughput"):
        for behind, depth in ((GEN1, 64), (GEN3, 16)):
            effects = wants(site.load(profile), endpoint(family="ipr"), behind)
            assert effects["queue_depth"] == AtLeast(depth)


@pytest.mark.parametrize("name", NAMES)
def test_shipped_rules_cite_existing_sources(site: SiteFolder, name: str) -> None:
    profile = site.load(name)
    sources = site.library.sources()
    assert profile.rules
    assert {rule.source for rule in profile.rules} <= set(sources)
    assert {objective.source for objective in profile.objectives} <= set(sources)
    assert profile.probe.source in sources, "a load has a source too"


@pytest.mark.parametrize("name", NAMES)
def test_shipped_rules_never_lower_depth(site: SiteFolder, name: str) -> None:
    for rule in site.load(name).rules:
        assert not (rule.setting == "queue_depth" and isinstance(rule.effect, Exactly)), rule.name


@pytest.mark.parametrize("name", NAMES)
def test_rule_names_are_unique(site: SiteFolder, name: str) -> None:
    names = [rule.name for rule in site.load(name).rules]
    assert len(names) == len(set(names))


def test_shipped_files_belong_to_profiles(site: SiteFolder) -> None:
    used = {file for listed in list_profiles(site.library) for file in site.load(listed.name).files}
    shipped_files = {str(path) for path in find_shipped("rules").glob("*.toml")}
    common_files = {
        str(find_shipped("rules") / name)
        for name in ("sources.toml", "arrays.toml", "yardsticks.toml", "sizing.toml")
    }
    assert shipped_files - used == common_files


def test_sources_cover_all_recommendations(site: SiteFolder) -> None:
    counts = {"D0": 17, "D1": 5, "D2": 8, "D3": 11, "D4": 15}
    sources = site.library.sources()
    advice = {f"{document}-{n}" for document, most in counts.items() for n in range(1, most + 1)}
    assert {name for name in sources if name.startswith("D")} == advice
    for source in sources.values():
        assert source.id.startswith(f"{source.document}-")
        assert source.title
        assert source.says.endswith(".")
        if source.document == "K":
            assert re.match(r"(block|drivers|fs|include|kernel)/\S+\.[ch]: \w+$", source.section)


LOCAL_SSDS = {"NVMe": 0.56, "NVMe, tri-mode": 0.56, "SAS SSD": 1.25, "SATA SSD": 6.5}
"""The p99 that the documents measured, in ms, by what it is the objective of."""
CLOUD = endpoint(family="nvme", storage=Storage.VIRTUAL, **NVME)
FABRIC = endpoint(family="nvme", storage=Storage.FABRIC, **NVME)
ARRAY = endpoint(storage=Storage.ARRAY)
BEHIND_MORE = {
    "volume": volume("megaraid_sas"),
    "FC": endpoint(family="lpfc", protocol=Protocol.FC, storage=Storage.ARRAY),
    "iSCSI": endpoint(family="iscsi_tcp", protocol=Protocol.ISCSI, storage=Storage.ARRAY),
    "array attached by SAS": ARRAY, "NVMe of a cloud": CLOUD, "NVMe over fabrics": FABRIC,
}  # fmt: skip
"""What has more than an adapter before its medium."""
SPINNING = {
    "NVMe HDD": NVME_HDD,
    "SAS HDD": endpoint(medium=Medium.HDD),
    "volume of HDDs": endpoint(protocol=Protocol.VOLUME, medium=Medium.HDD),
}


def goals(profile: Profile, of: dict[str, Endpoint]) -> dict[str, float | None]:
    objectives = {
        name: find_objective(profile, build_traits(disk, adapter())) for name, disk in of.items()
    }
    return {
        name: None if objective is None else objective.p99_ms
        for name, objective in objectives.items()
    }


def test_ssd_objectives_match_documents(site: SiteFolder) -> None:
    drives = {name: OLTP[name][0] for name in LOCAL_SSDS}
    assert goals(site.load("latency"), drives) == LOCAL_SSDS
    assert goals(site.load("oltp"), drives) == dict.fromkeys(drives, 2.0) | {"SATA SSD": 7.8}


def test_remote_endpoints_have_database_objective(site: SiteFolder) -> None:
    assert goals(site.load("oltp"), BEHIND_MORE) == dict.fromkeys(BEHIND_MORE, 10.0)
    assert goals(site.load("latency"), BEHIND_MORE) == dict.fromkeys(BEHIND_MORE)


@pytest.mark.parametrize("name", NAMES)
def test_spinning_disks_have_no_objective(site: SiteFolder, name: str) -> None:
    assert goals(site.load(name), SPINNING) == dict.fromkeys(SPINNING)


def test_probe_shapes_match_profiles(site: SiteFolder) -> None:
    probes = {name: site.load(name).probe for name in NAMES}
    shapes = {name: (p.pattern, p.block_size, p.depth) for name, p in probes.items()}
    assert shapes == {
        "oltp": ("randread", "4k", 24),
        "latency": ("randread", "4k", 32),
        "balanced": ("randread", "4k", 24),
        "throughput": ("read", "1m", 96),
    }


def test_overview_covers_endpoint_kinds(site: SiteFolder) -> None:
    rows = {row.endpoint: row for row in build_overview(site.load("oltp"))}
    assert list(rows) == list(TYPICAL_ENDPOINTS)
    ssd = rows["SAS SSD"]
    assert {name: ssd.rules[name].source for name in NAMED} == {
        "scheduler": "D0-1",
        "nr_requests": "D0-2",
        "queue_depth": "D4-1",
    }
    assert ssd.objective is not None
    assert ssd.objective.p99_ms == 2.0
    assert rows["RAID volume (ipr, Gen1 link)"].rules["queue_depth"].effect == AtLeast(64)
    assert "queue_depth" not in rows["SAS HDD"].rules


PROFILES = ("oltp", "latency", "throughput", "balanced")


@pytest.mark.parametrize("name", PROFILES)
def test_shipped_profiles_never_disrupt(name: str, tmp_path: Path) -> None:
    rules = load_profile(name, Library(find_shipped("rules"), tmp_path)).rules
    named = {rule.setting for rule in rules if not isinstance(rule.effect, Leave)}
    assert not [name for name in named if SETTINGS[name].disrupts]


def test_shipped_rules_cite_only_what_is_covered(site: SiteFolder) -> None:
    sources = site.library.sources()
    for path in sorted(find_shipped("rules").glob("*.toml")):
        if path.stem not in ("sources", "arrays", "yardsticks", "sizing"):
            check_part(read_toml(path), Origin.SHIPPED, sources)
    options = {f"{module}.{name}" for module in known_options() for name in known_options()[module]}
    for source in sources.values():
        assert set(source.settings) <= {*SETTINGS, *options}, source.id
    assert sources["D0-3"].settings
    assert "irq_affinity" not in sources["D0-3"].settings
