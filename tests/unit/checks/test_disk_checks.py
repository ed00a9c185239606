"""What each check finds, what it leaves alone, and that each has words and a source."""

import re
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from hbatune.checks.finding import CheckEvidence, Severity
from hbatune.checks.registry import is_clean, run_checks
from hbatune.facts.health import (
    Errors,
    Mount,
)
from hbatune.facts.model import (
    Attribute,
    Endpoint,
    Kind,
    Machine,
    Medium,
    Missing,
    Pci,
    Protocol,
    Reason,
    Storage,
)
from hbatune.plan.advice import find_advice
from hbatune.plan.rows import Plan
from hbatune.policy.config import Site
from hbatune.policy.library import installed_library, load_profile
from hbatune.policy.profile import Exactly, Objective, VendorRule
from hbatune.shipped import load_texts
from tests.unit.check_inputs import (
    ADAPTER,
    ADVICE,
    DENIED,
    INFO,
    WARNING,
    adapters,
    disk_health,
    disks,
    facts,
    format_finding,
    found,
    health,
    only,
    seen,
)
from tests.unit.machines import ABSENT, adapter, attributes, endpoint, link, machine
from tests.unit.profiles import profile
from tests.unit.site_folder import SiteFolder

SAMPLES: dict[Any, Any] = {str: "sda", int: 7, float: 2.5, bool: True, tuple: ("sdb", "sdc")}


def list_evidence(base: type[CheckEvidence] = CheckEvidence) -> Iterator[type[CheckEvidence]]:
    """Yield the types of evidence that have their own text."""
    for kind in base.__subclasses__():
        subclasses = list(list_evidence(kind))
        yield from subclasses or [kind]


def fill(kind: type[CheckEvidence], *, unknown: bool) -> CheckEvidence:
    """Return evidence with all its facts, or with the optional ones unknown."""
    values: dict[str, Any] = {}
    types = get_type_hints(kind)  # without the bounds of texts
    for field in msgspec.structs.fields(kind):
        type_ = types[field.name]
        options = get_args(type_) if get_origin(type_) in (Union, UnionType) else (type_,)
        if unknown and NoneType in options:
            values[field.name] = None
        elif unknown and UnsetType in options:
            values[field.name] = UNSET
        elif get_origin(options[0]) is tuple:
            values[field.name] = () if unknown else SAMPLES[tuple]
        else:
            values[field.name] = SAMPLES[options[0]]
    return kind(**values)


@pytest.mark.parametrize("kind", sorted(list_evidence(), key=str), ids=lambda kind: kind.__name__)
def test_all_evidence_renders(kind: type[CheckEvidence]) -> None:
    table = kind.__name__.removeprefix("_")
    assert table in load_texts("findings.toml"), f"templates/findings.toml has no [{table}]"
    full, unknown = fill(kind, unknown=False), fill(kind, unknown=True)
    for evidence in (full, unknown):
        assert evidence.describe()
        assert evidence.advise("sda")
    texts = full.describe() + full.advise("sda")
    assert "None" not in texts
    assert "UNSET" not in texts
    assert not re.search(r"[{}]|\bself\b", texts)


def test_texts_fit_evidence() -> None:
    texts = load_texts("findings.toml")
    assert set(texts) <= {kind.__name__.removeprefix("_") for kind in list_evidence()}


def test_drive_cache_is_information() -> None:
    finding = only(found(seen(machine()), "drive-cache"))
    assert (finding.severity, facts(finding)["cache"]) == (INFO, "write through")
    assert "never changed" in format_finding(finding).advice
    volume = machine(endpoint(protocol=Protocol.VOLUME))
    assert not found(seen(volume), "drive-cache")
    assert (
        "do not change the drives' own caches"
        in format_finding(only(found(seen(volume), "adapter-cache"))).advice
    )


def test_cacheless_adapter_skips_cache_advice() -> None:
    card = Pci("0000:01:00.0", 0x010400, 0x1014, 0x034A, 0x1014, 0x033B)  # a 57B4
    cacheless = adapter(family="ipr", pci=card, product="IBM 57B4 SAS RAID")
    volume = endpoint(family="ipr", protocol=Protocol.VOLUME, medium=Medium.HDD)
    check_input = seen(machine(volume, adapters=(cacheless,)))
    assert not found(check_input, "adapter-cache")
    finding = only(found(check_input, "adapter-cacheless"))
    assert (
        "IBM 57B4 SAS RAID has no write cache; counted as rotational: sda"
        in format_finding(finding).evidence
    )
    assert "without a cache RAID 6 costs" in format_finding(finding).advice
    caching = adapter(family="ipr", pci=replace(card, subsystem_device=0x035E))
    check_input = seen(machine(volume, adapters=(caching,)))
    assert found(check_input, "adapter-cache")
    assert not found(check_input, "adapter-cacheless")


_CACHELESS = Pci("0000:01:00.0", 0x010400, 0x1014, 0x034A, 0x1014, 0x033B)  # a 57B4
_CACHING = replace(_CACHELESS, subsystem_device=0x035E)  # a 57CE


@pytest.mark.parametrize(
    ("level", "card", "is_slow"),
    [
        ("6", _CACHELESS, True),
        ("60", _CACHELESS, True),
        ("5", _CACHELESS, False),
        (None, _CACHELESS, False),
        ("6", _CACHING, False),
        ("6", replace(_CACHELESS, subsystem_device=0x1234), False),  # an unknown card
        ("6", None, False),
    ],
)
def test_cacheless_raid6_is_warning(level: str | None, card: Pci | None, is_slow: bool) -> None:
    raid = adapter(family="ipr", pci=card, product="IBM 57B4 SAS RAID")
    volume = endpoint(family="ipr", protocol=Protocol.VOLUME, raid_level=level)
    findings = found(seen(machine(volume, adapters=(raid,))), "adapter-cacheless")
    is_cacheless = card is _CACHELESS
    severity = WARNING if is_slow else INFO
    assert [finding.severity for finding in findings] == [severity] * is_cacheless
    if is_slow:
        [finding] = findings
        assert finding.source == "D4-12"
        assert "no write cache; RAID 6: sda" in format_finding(finding).evidence
        assert "rebuild sda as RAID 5 or 10" in format_finding(finding).advice


@pytest.mark.parametrize(("card", "count"), [(_CACHING, 1), (_CACHELESS, 0), (None, 0)])
def test_cache_advice_needs_proven_cache(card: Pci | None, count: int) -> None:
    """The cache type of a volume does not prove that an unknown adapter has a cache."""
    raid = adapter(family="ipr", pci=card)
    volume = endpoint(family="ipr", protocol=Protocol.VOLUME)
    server = machine(volume, adapters=(raid,))
    check_input = seen(server, health(server, **disks(server, cache="write back")))
    findings = found(check_input, "cache-random-writes")
    assert [(finding.severity, finding.source) for finding in findings] == [(INFO, "D4-15")] * count


def test_volume_cache_types_are_shown() -> None:
    names = ("sda", "sdb")
    server = machine(*(endpoint(target=name, protocol=Protocol.VOLUME) for name in names))
    caches = {"sda": disk_health(cache="write back"), "sdb": disk_health(cache=ABSENT)}
    finding = only(found(seen(server, health(server, disks=caches)), "adapter-cache"))
    assert facts(finding)["cache_types"] == ("sda write back",)
    assert "their cache types: sda write back" in format_finding(finding).evidence


@pytest.mark.parametrize(
    ("options", "severity"),
    [
        (("rw", "noatime"), None),
        (("ro",), None),
        (("rw", "relatime"), INFO),
        (("rw", "nodiratime"), ADVICE),
    ],
)
def test_atime_mounts_are_reported(options: tuple[str, ...], severity: Severity | None) -> None:
    used = machine(endpoint(mounts=("/srv",)), endpoint(target="sdb", mounts=("/srv", "[SWAP]")))
    fares = health(used, mounts=(Mount("/srv", options),))
    findings = found(seen(used, fares), "atime")
    assert [finding.severity for finding in findings] == ([severity] if severity else [])


def test_multipath_mount_belongs_to_map() -> None:
    path = endpoint(kind=Kind.PATH, mounts=("/srv",))
    joined = endpoint(target="dm-0", kind=Kind.MAP, adapter=None, mounts=("/srv",))
    used = machine(path, joined)
    fares = health(used, mounts=(Mount("/srv", ("rw",)),))
    assert only(found(seen(used, fares), "atime")).target == "dm-0"


def test_disabled_iostats_are_reported() -> None:
    blind = machine(endpoint(attributes=attributes(queue__iostats="0")))
    assert only(found(seen(blind), "iostats-off")).severity is INFO


@pytest.mark.parametrize(
    ("scheduler", "plugs", "count"),
    [
        ("[none] mq-deadline", False, 1),
        ("none [mq-deadline]", False, 0),
        ("[none] mq-deadline", True, 0),
        ("[none] mq-deadline", None, 0),  # no zoned disk, a map, or an older snapshot
    ],
)
def test_unordered_zones_are_warned(scheduler: str, plugs: bool | None, count: int) -> None:
    shown = attributes(queue__scheduler=scheduler)
    server = machine(endpoint(zoned=True, plugs_zones=plugs, attributes=shown))
    findings = found(seen(server), "zoned-scheduler")
    assert [finding.severity for finding in findings] == [WARNING] * count


def test_disk_without_capacity_is_reported() -> None:
    sizes = {"sda": 0, "sdb": 512, "sdc": Missing(Reason.UNREADABLE)}
    disks = [endpoint(target=name, id=name, size=size) for name, size in sizes.items()]
    finding = only(found(seen(machine(*disks)), "no-capacity"))
    assert (finding.target, finding.severity) == ("sda", ADVICE)
    assert "--size=512" in finding.evidence.advise("sda")


def test_single_nvme_path_is_reported() -> None:
    wants = profile(("scheduler", Exactly("none")))
    goal = Objective(p99_ms=2.0, because="x", source="D3-8")
    wants = msgspec.structs.replace(wants, objectives=(goal,))
    alone = endpoint(protocol=Protocol.NVME, medium=Medium.NVME, family="nvme")
    assert only(found(seen(machine(alone), profile=wants), "single-path")).severity is INFO
    assert not found(seen(machine(alone)), "single-path")
    path = msgspec.structs.replace(alone, kind=Kind.PATH)
    assert not found(seen(machine(path), profile=wants), "single-path")
    behind = msgspec.structs.replace(alone, tri_mode=True, family="mpi3mr")
    assert only(found(seen(machine(behind), profile=wants), "single-path")).severity is INFO
    cloud = msgspec.structs.replace(alone, storage=Storage.VIRTUAL)
    assert not found(seen(machine(cloud), profile=wants), "single-path")
    spinning = msgspec.structs.replace(alone, medium=Medium.HDD)
    assert not found(seen(machine(spinning), profile=wants), "single-path")


def fabric(preferences: list[tuple[bool, bool]]) -> Machine:
    """Return maps over two adapters, and which of their two paths the array prefers."""
    first, second = adapter(target="0000:01:00.0"), adapter(target="0000:02:00.0")
    members = []
    for number, preferred in enumerate(preferences):
        names, dm = (f"sda{number}", f"sdb{number}"), f"dm-{number}"
        for name, over, liked in zip(names, (first, second), preferred, strict=True):
            path = {"target": name, "adapter": over.target, "kind": Kind.PATH, "map": dm}
            members.append(endpoint(**path, preferred=liked))
        members.append(endpoint(target=dm, adapter=None, kind=Kind.MAP, paths=names, host=None))
    return machine(*members, adapters=(first, second))


def test_uneven_preferred_paths_are_reported() -> None:
    finding = only(found(seen(fabric([(True, False)] * 3)), "preferred-paths"))
    assert (finding.target, finding.source, facts(finding)["least"]) == (ADAPTER, "D4-4", 0)
    for balanced in ([(True, False), (False, True)], [(True, False)], [(True, True)] * 4):
        assert not found(seen(fabric(balanced)), "preferred-paths")


def test_unread_facts_are_unclean() -> None:
    sick = machine(adapters=(adapter(link=link(speed=DENIED)),))
    fares = health(
        sick,
        **adapters(sick, errors=Errors(0, DENIED, 0), credits={"host0": DENIED}),
        **disks(sick, timeouts=DENIED),
        daemons={"tuned": DENIED, "irqbalance": DENIED},
    )
    findings = run_checks(seen(sick, fares))
    assert not is_clean(findings)
    evidence = {finding.id: format_finding(finding).evidence for finding in findings}
    assert evidence["adapter-unread"] == (
        "could not be read: link speed, nonfatal errors of the adapter, firmware's credits of host0"
        " (Permission denied)"
    )
    assert evidence["disk-unread"] == "could not be read: timeouts (Permission denied)"
    assert evidence["processes-hidden"] == "not known whether they run: tuned, irqbalance"


@pytest.mark.parametrize(
    ("missing", "reason", "advice"),
    [
        (DENIED, "Permission denied", "run `check` as root to have these read: timeouts"),
        (Missing(Reason.UNREADABLE, 5), "Input/output error", "these failed: timeouts"),
        (Missing(Reason.UNPARSABLE, text="many"), "makes no sense: many", "these failed: timeouts"),
        (Missing(Reason.UNREADABLE, text="device state is offline"), "device state is", "failed"),
    ],
)
def test_unreadable_fact_advises_root(missing: Missing, reason: str, advice: str) -> None:
    sick = machine()
    text = format_finding(
        only(found(seen(sick, health(sick, **disks(sick, timeouts=missing))), "disk-unread"))
    )
    assert reason in text.evidence
    assert advice in text.advice
    assert ("as root" in text.advice) is (missing is DENIED)


def test_absent_facts_stay_clean() -> None:
    odd = link(speed=Missing(Reason.UNPARSABLE, text="Unknown"))
    plain = machine(adapters=(adapter(firmware=ABSENT, link=odd),))
    fares = health(plain, **disks(plain, timeouts=ABSENT, errors=ABSENT, cache=ABSENT))
    assert is_clean(run_checks(seen(plain, fares)))


@pytest.mark.parametrize(
    ("depth", "reason"),
    [
        (Attribute("many", True), "makes no sense: many"),
        (Missing(Reason.UNREADABLE, 5), "Input/output error"),
        (ABSENT, None),
        (Attribute("64", True), None),
    ],
)
def test_unknown_depth_is_reported(depth: Attribute | Missing, reason: str | None) -> None:
    disk = endpoint(attributes={**endpoint().attributes, "device/queue_depth": depth})
    findings = found(seen(machine(disk)), "disk-unread")
    assert [facts(finding)["reasons"] for finding in findings] == ([(reason,)] if reason else [])


def test_duplicate_names_are_reported() -> None:
    first = endpoint(id="naa.5@0000:01:00.0/scsi-0:1:0~0:0:1:0")
    second = endpoint(target="sdb", id="naa.5@0000:01:00.0/scsi-0:1:0~1:0:1:0")
    findings = found(seen(machine(first, second)), "same-name")
    assert [(finding.target, facts(finding)["others"]) for finding in findings] == [
        ("sda", ("sdb",)),
        ("sdb", ("sda",)),
    ]
    assert {finding.severity for finding in findings} == {WARNING}
    assert "vendor's tool" in format_finding(findings[0]).advice
    [text] = {format_finding(finding).evidence for finding in findings}
    assert text == "sda, sdb have the same WWN or serial number: naa.5", "one row for all paths"
    paths = (replace(disk, kind=Kind.PATH) for disk in (first, second))
    assert found(seen(machine(*paths)), "same-name") == []


def test_nameless_disks_are_information() -> None:
    bare = [endpoint(target=f"sd{n}", id=f"unnamed@0000:01:00.0/scsi-0:{n}:0") for n in "ab"]
    make = [
        endpoint(
            target=f"sd{n}",
            id=f"VMware-Virtual_disk@0000:01:00.0/scsi-0:{n}:0",
            vendor="VMware",
            model="Virtual disk",
        )
        for n in "cd"
    ]
    check_input = seen(machine(*bare, *make))
    findings = found(check_input, "no-name")
    assert [finding.target for finding in findings] == ["sda", "sdb", "sdc", "sdd"]
    assert {finding.severity for finding in findings} == {INFO}
    assert found(check_input, "same-name") == []


def test_unmatched_names_are_reported() -> None:
    site = Site(exclude=("sda", "sdz"), members={"naa.1": 4})
    findings = found(seen(machine(), site=site), "site-name")
    assert [(facts(finding)["key"], facts(finding)["name"]) for finding in findings] == [
        ("exclude", "sdz"),
        ("members", "naa.1"),
    ]
    assert {finding.severity for finding in findings} == {WARNING}


def spinning(**texts: str) -> Endpoint:
    """Return a rotational disk that reports no optimal size, with the defaults of Linux 7.3."""
    defaults = {
        "queue__read_ahead_kb": "8192",
        "queue__max_sectors_kb": "4096",
        "queue__max_hw_sectors_kb": "32767",
        "queue__optimal_io_size": "0",
        "queue__rotational": "1",
    }
    values = defaults | texts
    is_rotational = values["queue__rotational"] == "1"
    return endpoint(
        rotational=is_rotational,
        medium=Medium.HDD if is_rotational else Medium.SSD,
        attributes=attributes(**values),
    )


def test_large_read_ahead_is_info() -> None:
    [finding] = found(seen(machine(spinning())), "read-ahead-large")
    assert (finding.severity, facts(finding)["read_ahead_kb"]) == (Severity.INFO, 8192)


def test_volume_is_not_called_rotational() -> None:
    """The kernel's default is rotational, and no drive behind a RAID adapter reports to it."""
    for protocol, count in ((Protocol.VOLUME, 1), (Protocol.SAS, 0)):
        disk = replace(spinning(), protocol=protocol)
        [finding] = found(seen(machine(disk)), "read-ahead-large")
        text = format_finding(finding).evidence
        assert text.count("the drives of the volume sda are unknown") == count
        assert "it counts as rotational" in text


@pytest.mark.parametrize("rotational", ["0", "1"])
def test_large_read_ahead_by_optimal_size_is_info(rotational: str) -> None:
    disk = spinning(
        queue__rotational=rotational, queue__optimal_io_size="524288", queue__read_ahead_kb="1024"
    )
    [finding] = found(seen(machine(disk)), "read-ahead-large")
    assert finding.severity is Severity.INFO
    assert "twice its optimal I/O size of 512 KiB" in format_finding(finding).evidence


LARGE_DEFAULTS = ("read-ahead-large", "requests-large")
DATABASES = ("mysql", "ravendb-random-access", "ravendb-virtual-ssd")


@pytest.mark.parametrize("check", LARGE_DEFAULTS)
def test_large_defaults_warn_databases(check: str) -> None:
    host = machine(spinning())
    by_use = [seen(host, site=Site(uses={use: ("sda",)})) for use in DATABASES]
    by_profile = seen(host, profile=load_profile("oltp", installed_library()))
    for inputs in (*by_use, by_profile):
        [finding] = found(inputs, check)
        assert finding.severity is Severity.WARNING
    [finding] = found(seen(host, site=Site(uses={"backup": ("sda",)})), check)
    assert finding.severity is Severity.INFO


def test_large_requests_are_info() -> None:
    for rotational in ("0", "1"):
        disk = spinning(queue__rotational=rotational)
        [finding] = found(seen(machine(disk)), "requests-large")
        assert (finding.severity, facts(finding)["max_sectors_kb"]) == (Severity.INFO, 4096)


@pytest.mark.parametrize(
    "texts",
    [
        {"queue__max_sectors_kb": "1280"},
        {"queue__max_sectors_kb": "8192"},  # chosen
        {"queue__max_sectors_kb": "1536", "queue__max_hw_sectors_kb": "1536"},
    ],
)
def test_other_request_size_is_fine(texts: dict[str, str]) -> None:
    assert found(seen(machine(spinning(**texts))), "requests-large") == []


def test_large_defaults_by_rules_are_fine() -> None:
    """A profile for large files sets the read-ahead, and a filter driver needs the requests."""
    host = machine(spinning())
    by_profile = seen(host, profile=load_profile("throughput", installed_library()))
    assert found(by_profile, "read-ahead-large") == []
    for advised, count in ((4096, 0), (1024, 1)):
        [of_acme] = profile(("max_sectors_kb", Exactly(advised))).rules
        advice = find_advice(host, [VendorRule(of_acme, "ACME")], Plan("", ()))
        assert len(found(replace(seen(host), advice=advice), "requests-large")) == count


@pytest.mark.parametrize(
    "texts",
    [
        {"queue__read_ahead_kb": "128"},
        {"queue__read_ahead_kb": "4096"},  # chosen: not twice the largest request
        {"queue__read_ahead_kb": "256", "queue__max_sectors_kb": "128"},
        {"queue__optimal_io_size": "524288"},  # chosen: not twice this size
        {"queue__rotational": "0"},
        {"queue__optimal_io_size": "131072", "queue__read_ahead_kb": "256"},
    ],
)
def test_other_read_ahead_is_fine(texts: dict[str, str]) -> None:
    assert found(seen(machine(spinning(**texts))), "read-ahead-large") == []


@pytest.mark.parametrize(
    ("check", "setting", "value"),
    [("read-ahead-large", "read_ahead_kb", 128), ("requests-large", "max_sectors_kb", 1280)],
)
@pytest.mark.parametrize("rotational", ["0", "1"])
def test_remedy_of_large_default_is_a_valid_rule(
    site: SiteFolder, check: str, setting: str, value: int, rotational: str
) -> None:
    disk = spinning(
        queue__rotational=rotational, queue__optimal_io_size="524288", queue__read_ahead_kb="1024"
    )
    [finding] = found(seen(machine(disk)), check)
    assignments = finding.evidence.advise("sda").partition("with ")[2]
    lines = re.split(r", (?=[a-z.]+ = )", assignments)
    site.put("rules.d/site.toml", "\n".join(["[[rule]]", *lines]))
    profile = load_profile("oltp", site.library)
    assert found(seen(machine(disk), profile=profile), check) == []
    [rule] = [rule for rule in profile.rules if rule.setting == setting]
    assert (rule.effect, rule.when.medium) == (Exactly(value), (disk.medium,))
