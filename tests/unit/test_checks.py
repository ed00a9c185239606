"""What each check finds, what it leaves alone, and that each has words and a source."""

import re
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

import msgspec
import pytest
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from hbatune.act import paths
from hbatune.checks.finding import MACHINE_TARGET, CheckEvidence, CheckInput, Finding, Severity
from hbatune.checks.registry import CHECKS, is_clean, run_checks
from hbatune.facts.health import (
    ErrorKind,
    Errors,
    Mount,
    Root,
    TunedProfile,
    TunedWrite,
    UdevRule,
)
from hbatune.facts.model import (
    Attribute,
    Kind,
    Machine,
    Medium,
    Missing,
    Pci,
    Processors,
    Protocol,
    Reason,
    Role,
    Storage,
    Vector,
)
from hbatune.plan.advice import find_advice
from hbatune.plan.rows import Plan
from hbatune.policy.config import ApprovedVersions, Site
from hbatune.policy.library import load_sources
from hbatune.policy.profile import AtLeast, Exactly, Match, Objective, Rule, VendorRule
from hbatune.shipped import find_shipped
from tests.unit.checks import (
    NO_ERRORS,
    Text,
    adapter_health,
    disk_health,
    facts,
    format_finding,
    found,
    health,
    port,
    seen,
)
from tests.unit.factory import ABSENT, adapter, attributes, endpoint, host, link, machine, vector
from tests.unit.test_plan import profile

ADAPTER = "0000:01:00.0"
DENIED = Missing(Reason.UNREADABLE, 13)
INFO, ADVICE = Severity.INFO, Severity.ADVICE
WARNING, CRITICAL = Severity.WARNING, Severity.CRITICAL


def adapters(machine: Machine, **overrides: Any) -> dict[str, Any]:
    return {"adapters": {each.target: adapter_health(**overrides) for each in machine.adapters}}


def disks(machine: Machine, **overrides: Any) -> dict[str, Any]:
    return {"disks": {each.target: disk_health(**overrides) for each in machine.endpoints}}


def only(findings: list[Finding]) -> Finding:
    [finding] = findings
    return finding


def test_healthy_machine_is_clean() -> None:
    findings = run_checks(seen(machine()))
    assert is_clean(findings)
    assert [finding.id for finding in findings] == ["drive-cache"]


def test_checks_have_valid_sources() -> None:
    assert len({check.id for check in CHECKS}) == len(CHECKS)
    assert {check.source for check in CHECKS} <= set(load_sources(find_shipped("rules")))


def test_gravest_findings_come_first() -> None:
    sick = machine()
    fares = health(
        sick,
        **adapters(sick, errors=Errors(0, 0, 1)),
        **disks(sick, timeouts=1),
        tools={"fio": False},
    )
    order = [finding.severity for finding in run_checks(seen(sick, fares))]
    assert order == [CRITICAL, WARNING, INFO, INFO]


@pytest.mark.parametrize(
    ("card", "slot", "severity"),
    [
        (link(), port(), None),
        # The slot is the limit: nothing that reseating mends.
        (link(max_speed=16.0), port(max_speed=8.0), None),
        (link(width=4, max_width=8), port(max_width=4), None),
        (link(speed=2.5), port(), WARNING),
        (link(width=4), port(max_width=16), WARNING),
        (link(speed=8.0, max_speed=16.0), port(max_speed=32.0), WARNING),
        (link(speed=8.0, max_speed=16.0), None, ADVICE),
        (link(speed=8.0, max_speed=16.0), port(max_speed=ABSENT, max_width=ABSENT), ADVICE),
        (link(max_speed=ABSENT, max_width=ABSENT), None, None),
    ],
)
def test_pcie_link_is_judged(card: Any, slot: Any, severity: Severity | None) -> None:
    sick = machine(adapters=(adapter(link=card),))
    findings = found(seen(sick, health(sick, **adapters(sick, port=slot))), "pcie-link")
    assert [finding.severity for finding in findings] == ([severity] if severity else [])
    assert all(finding.target == ADAPTER for finding in findings)


def test_slow_link_names_possible_speed() -> None:
    sick = machine(adapters=(adapter(link=link(speed=2.5, max_speed=16.0, max_width=16)),))
    finding = only(found(seen(sick), "pcie-link"))
    assert format_finding(finding).evidence == (
        "the link runs at 2.5 GT/s x8, where 8 GT/s x8 is possible; port above: 0000:00:01.0"
    )
    assert finding.source == "D0-10"


@pytest.mark.parametrize(
    ("own", "above", "root", "severity"),
    [
        (NO_ERRORS, NO_ERRORS, NO_ERRORS, None),
        (Errors(3, 0, 0), NO_ERRORS, NO_ERRORS, ADVICE),
        (NO_ERRORS, Errors(3, 0, 0), NO_ERRORS, ADVICE),
        (Errors(3, 1, 0), NO_ERRORS, NO_ERRORS, WARNING),
        (Errors(0, 0, 1), NO_ERRORS, NO_ERRORS, CRITICAL),
        # Something else below the root port may have sent it.
        (NO_ERRORS, NO_ERRORS, Errors(0, 0, 1), ADVICE),
        (Errors(ABSENT, ABSENT, ABSENT), NO_ERRORS, NO_ERRORS, None),
    ],
)
def test_bus_errors_set_severity(
    own: Errors, above: Errors, root: Errors, severity: Severity | None
) -> None:
    sick = machine()
    fares = adapters(sick, errors=own, port=port(errors=above), root=Root("0000:00:01.0", root))
    findings = found(seen(sick, health(sick, **fares)), "pcie-errors")
    assert [finding.severity for finding in findings] == ([severity] if severity else [])


def test_uncounted_errors_are_reported() -> None:
    sick = machine()
    absent = Errors(ABSENT, ABSENT, ABSENT)
    findings = run_checks(seen(sick, health(sick, **adapters(sick, errors=absent))))
    assert "pcie-errors-not-counted" in {finding.id for finding in findings}
    conventional = machine(adapters=(adapter(link=None),))
    assert not found(seen(conventional), "pcie-errors-not-counted")


LINE = vector(role=Role.LINE, names=("mpt3sas0",))


def on_a_line(*lines: Vector, family: str = "mpt3sas", **overrides: Any) -> CheckInput:
    """A machine whose adapter has no vectors, but these interrupt lines."""
    sick = machine(adapters=(adapter(family=family),), vectors=lines)
    fares = adapters(sick, **{"vectors": ABSENT, "offers_msi": True, **overrides})
    return seen(sick, health(sick, **fares))


def test_disabled_msix_is_reported() -> None:
    finding = only(found(on_a_line(LINE, options={"msix_disable": "1"}), "msix-off"))
    assert (finding.severity, finding.source) == (WARNING, "D0-3")
    assert format_finding(finding).evidence.endswith("the module's options: msix_disable=1")
    assert "msix_disable=1" in format_finding(finding).advice


def test_msix_advice_omits_option() -> None:
    told = format_finding(only(found(on_a_line(LINE), "msix-off")))
    assert "option" not in told.evidence + told.advice
    assert "journalctl -k -g msi" in told.advice


def test_hidden_vectors_are_inconclusive() -> None:
    assert not found(on_a_line(), "msix-off")
    assert not found(on_a_line(vector(role=Role.LINE, names=())), "msix-off")
    assert not found(on_a_line(LINE, offers_msi=False), "msix-off")
    assert not found(on_a_line(LINE, offers_msi=ABSENT), "msix-off")
    assert not found(on_a_line(LINE, family="sym53c8xx"), "msix-off")
    # A user cannot look, and is told so.
    unsure = on_a_line(LINE, offers_msi=DENIED)
    assert not found(unsure, "msix-off")
    assert facts(only(found(unsure, "adapter-unread")))["roots"] == ("capabilities",)
    assert not found(on_a_line(offers_msi=DENIED), "adapter-unread")


SAMPLES: dict[Any, Any] = {str: "sda", int: 7, float: 2.5, bool: True, tuple: ("sdb", "sdc")}


def list_evidence(base: type[CheckEvidence] = CheckEvidence) -> Iterator[type[CheckEvidence]]:
    """Yield the types of evidence that have their own text."""
    for kind in base.__subclasses__():
        subclasses = list(list_evidence(kind))
        yield from subclasses or [kind]


def fill(kind: type[CheckEvidence], *, unknown: bool) -> CheckEvidence:
    """Return evidence with all its facts, or with the optional ones unknown."""
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        options = get_args(field.type) if get_origin(field.type) is UnionType else (field.type,)
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
    full, unknown = fill(kind, unknown=False), fill(kind, unknown=True)
    for evidence in (full, unknown):
        assert evidence.describe()
        assert evidence.advise("sda")
    texts = full.describe() + full.advise("sda")
    assert "None" not in texts
    assert "UNSET" not in texts
    assert not re.search(r"[{}]|\bself\b", texts)


@pytest.mark.parametrize(
    ("vectors", "queues", "options", "severity"),
    [
        (9, 8, {"max_msix_vectors": "-1"}, None),
        (4, 8, {"max_msix_vectors": "4"}, ADVICE),
        # Without an option there is nothing to be done about it.
        (4, 8, {}, INFO),
        (4, 4, {"max_msix_vectors": "4"}, INFO),
        (1, 1, {"max_msix_vectors": "1"}, None),
    ],
)
def test_vector_shortage_sets_severity(
    vectors: int, queues: int, options: dict[str, str], severity: Severity | None
) -> None:
    sick = machine(adapters=(adapter(hw_queues=queues),))
    fares = health(sick, **adapters(sick, vectors=vectors, options=options))
    findings = found(seen(sick, fares), "msix-few")
    assert [finding.severity for finding in findings] == ([severity] if severity else [])


def test_unapproved_versions_are_reported() -> None:
    def ids(*approved: ApprovedVersions) -> list[tuple[str, Severity]]:
        what = seen(machine(), site=Site(approved=approved))
        return [
            (each.id, each.severity) for each in run_checks(what) if each.id.endswith("-approved")
        ]

    assert ids() == []
    assert ids(ApprovedVersions("mpt3sas", firmware=("16.00.12.*",), driver=("43.*",))) == []
    assert ids(ApprovedVersions("mpt3sas", firmware=("17.*",))) == [
        ("firmware-not-approved", WARNING)
    ]
    assert ids(ApprovedVersions("mpt3sas", driver=("48.*",))) == [("driver-not-approved", WARNING)]
    assert ids(ApprovedVersions("mpi3mr", firmware=("17.*",))) == []
    assert ids(ApprovedVersions("mpt3sas", product="HBA 9400*", firmware=("17.*",))) == []


def test_unknown_firmware_version_is_advice() -> None:
    sick = machine(adapters=(adapter(firmware=ABSENT),))
    site = Site(approved=(ApprovedVersions("mpt3sas", firmware=("16.*",)),))
    finding = only(found(seen(sick, site=site), "firmware-not-approved"))
    assert finding.severity is ADVICE
    said = format_finding(finding)
    assert said.evidence == (
        "the version of its firmware is not known (absent), and only these are approved: 16.*"
    )
    assert "vendor's own tool" in said.advice


def test_missing_driver_version_means_kernel() -> None:
    def told(version: Missing) -> str:
        sick = machine(adapters=(adapter(driver_version=version),))
        site = Site(approved=(ApprovedVersions("mpt3sas", driver=("48.*",)),))
        return format_finding(only(found(seen(sick, site=site), "driver-not-approved"))).evidence

    assert told(ABSENT).startswith(f"driver {machine().kernel} is not among")
    assert told(DENIED).startswith("the version of its driver is not known (unreadable)")


def crowd(count: int, can_queue: int, depth: str = "32") -> Machine:
    small = host(can_queue=can_queue)
    luns = (
        endpoint(target=f"sd{number}", host=small, attributes=attributes(device__queue_depth=depth))
        for number in range(count)
    )
    return machine(*luns, adapters=(adapter(hosts=(small,)),))


def test_starving_limit_is_reported() -> None:
    wants = profile(("queue_depth", AtLeast(64)))
    finding = only(found(seen(crowd(8, 500), profile=wants), "host-depth-share"))
    assert (finding.severity, finding.source) == (WARNING, "D1-2")
    assert facts(finding)["share"] == 62
    assert "raise max_queue_depth" in format_finding(finding).advice
    assert not found(seen(crowd(8, 512), profile=wants), "host-depth-share")


def test_fixed_limit_advises_more_hosts() -> None:
    starved = crowd(8, 500)
    fixed = replace(starved, adapters=(replace(starved.adapters[0], family="ahci"),))
    finding = only(
        found(seen(fixed, profile=profile(("queue_depth", AtLeast(64)))), "host-depth-share")
    )
    assert format_finding(finding).advice == "spread the LUNs over more hosts"


def test_starvation_without_profile_is_info() -> None:
    assert only(found(seen(crowd(8, 200)), "host-depth-share")).severity is INFO
    assert not found(seen(crowd(8, 256)), "host-depth-share")


def test_low_credits_are_reported() -> None:
    sick = machine()

    def findings(value: str, offered: int | Missing) -> list[Finding]:
        loaded = adapters(sick, options={"max_queue_depth": value}, credits={"host0": offered})
        return found(seen(sick, health(sick, **loaded)), "host-credits")

    assert only(findings("1000", 9680)).source == "D4-3"
    assert not findings("-1", 9680)
    assert not findings("9680", 9680)
    assert not findings("1000", ABSENT)
    assert not findings("many", 9680)


def sunk(depth: str, **overrides: Any) -> Machine:
    lowered = endpoint(target="sdb", attributes=attributes(device__queue_depth=depth), **overrides)
    return machine(endpoint(family=overrides.get("family", "mpt3sas")), lowered)


def test_sunk_depth_is_reported() -> None:
    finding = only(found(seen(sunk("17")), "depth-sunk"))
    assert (finding.target, facts(finding)["began"], finding.severity) == ("sdb", 254, INFO)
    assert not found(seen(sunk("254")), "depth-sunk")
    assert not found(seen(sunk("17", model="ANOTHER")), "depth-sunk")
    # Drivers that never lower a depth by themselves.
    assert not found(seen(sunk("17", family="megaraid_sas")), "depth-sunk")
    fibre = machine(
        endpoint(family="lpfc", attributes=attributes(device__queue_depth="31")),
        adapters=(adapter(family="lpfc"),),
    )
    loaded = adapters(fibre, options={"lpfc_lun_queue_depth": "64"})
    finding = only(found(seen(fibre, health(fibre, **loaded)), "depth-sunk"))
    assert (facts(finding)["option"], finding.severity) == ("lpfc_lun_queue_depth", ADVICE)


def test_requested_depth_never_sinks() -> None:
    wants = profile(("queue_depth", Exactly(17)))
    assert "sdb" not in {
        each.target for each in found(seen(sunk("17"), profile=wants), "depth-sunk")
    }


def test_command_timeouts_are_reported() -> None:
    sick = machine()
    finding = only(found(seen(sick, health(sick, **disks(sick, timeouts=1))), "command-timeouts"))
    assert (finding.severity, finding.target) == (WARNING, "sda")
    assert format_finding(finding).evidence == "1 of 1000000 commands timed out"
    native = health(sick, **disks(sick, timeouts=ABSENT, logged={ErrorKind.TIMEOUT: 2}))
    told = format_finding(only(found(seen(sick, native), "command-timeouts")))
    assert told.evidence == "2 commands timed out"


def test_unreadable_log_advises_root() -> None:
    sick = machine()
    for log, roots in ((True, False), (DENIED, True), (ABSENT, False)):
        fares = health(sick, **disks(sick, timeouts=1), log=log)
        told = format_finding(only(found(seen(sick, fares), "command-timeouts")))
        assert "journalctl -k -g sda" in told.advice
        assert ("as root" in told.advice) is roots


@pytest.mark.parametrize("errors", [0, 3, 41, 9078])
def test_polling_errors_are_ignored(errors: int) -> None:
    polled = machine()
    fares = health(polled, **disks(polled, errors=errors, done=errors))
    assert {each.id for each in run_checks(seen(polled, fares))} == {"drive-cache"}


@pytest.mark.parametrize(("log", "advice"), [(DENIED, "as root"), (ABSENT, "nothing")])
def test_unreadable_log_shows_count(log: Missing, advice: str) -> None:
    polled = machine()

    def findings(errors: int) -> list[Finding]:
        fares = health(polled, **disks(polled, errors=errors), log=log)
        return found(seen(polled, fares), "command-errors")

    assert only(findings(300)).severity is INFO
    assert advice in format_finding(only(findings(300))).advice
    assert not findings(3)


@pytest.mark.parametrize(
    ("fault", "id", "severity"),
    [
        (ErrorKind.MEDIUM, "medium-errors", CRITICAL),
        (ErrorKind.HARDWARE, "medium-errors", CRITICAL),
        (ErrorKind.PROTECTION, "medium-errors", CRITICAL),
        (ErrorKind.SPACE, "space-errors", CRITICAL),
        (ErrorKind.TRANSPORT, "transport-errors", WARNING),
        (ErrorKind.OTHER, "io-errors", WARNING),
        (ErrorKind.TIMEOUT, "command-timeouts", WARNING),
        (ErrorKind.RESET, None, INFO),
    ],
)
def test_failed_io_is_classified(fault: ErrorKind, id: str | None, severity: Severity) -> None:
    sick = machine()
    findings = run_checks(seen(sick, health(sick, **disks(sick, logged={fault: 5}))))
    assert [each.id for each in findings] == [*([id] if id else []), "drive-cache"]
    assert findings[0].severity is severity
    assert ("5" in format_finding(findings[0]).evidence) is (id is not None)


def test_failed_io_advice_fits_protocol() -> None:
    def advice(fault: ErrorKind, **overrides: Any) -> str:
        sick = machine(endpoint(**overrides))
        fares = health(sick, **disks(sick, logged={fault: 1}))
        return format_finding(run_checks(seen(sick, fares))[0]).advice

    assert "replace the drive" in advice(ErrorKind.MEDIUM)
    assert "which drive of volume sda" in advice(ErrorKind.MEDIUM, protocol=Protocol.VOLUME)
    assert "connectors of sda" in advice(ErrorKind.TRANSPORT, protocol=Protocol.SAS)
    assert "switch port" in advice(ErrorKind.TRANSPORT, protocol=Protocol.FC)
    assert "below this host" in advice(ErrorKind.TRANSPORT, protocol=Protocol.VIRTIO)


def test_offline_device_is_reported() -> None:
    lost = machine(endpoint(state="transport-offline"))
    finding = only(found(seen(lost), "device-state"))
    assert finding.severity is WARNING
    assert "> /sys/block/sda/device/state" in format_finding(finding).advice
    dead = machine(endpoint(state="dead", address=None, controller="nvme0"))
    assert "nvme0" in format_finding(only(found(seen(dead), "device-state"))).advice
    assert not found(seen(machine(endpoint(state="live"))), "device-state")


def test_drive_cache_is_information() -> None:
    finding = only(found(seen(machine()), "drive-cache"))
    assert (finding.severity, facts(finding)["cache"]) == (INFO, "write through")
    assert "never changed" in format_finding(finding).advice
    volume = machine(endpoint(protocol=Protocol.VOLUME))
    assert not found(seen(volume), "drive-cache")
    assert (
        "drives' own caches as they are"
        in format_finding(only(found(seen(volume), "adapter-cache"))).advice
    )


def test_cacheless_adapter_skips_cache_advice() -> None:
    card = Pci("0000:01:00.0", 0x010400, 0x1014, 0x034A, 0x1014, 0x033B)  # a 57B4
    cacheless = adapter(family="ipr", pci=card, product="IBM 57B4 SAS RAID")
    volume = endpoint(family="ipr", protocol=Protocol.VOLUME, medium=Medium.HDD)
    it = seen(machine(volume, adapters=(cacheless,)))
    assert not found(it, "adapter-cache")
    finding = only(found(it, "adapter-cacheless"))
    assert (
        "IBM 57B4 SAS RAID has no write cache; disks that turn: sda"
        in format_finding(finding).evidence
    )
    assert "without a cache RAID 6 costs" in format_finding(finding).advice
    caching = adapter(family="ipr", pci=replace(card, subsystem_device=0x035E))
    it = seen(machine(volume, adapters=(caching,)))
    assert found(it, "adapter-cache")
    assert not found(it, "adapter-cacheless")


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


def test_mpi3mr_vector_shortage_is_advice() -> None:
    card = adapter(family="mpi3mr", hw_queues=8)
    few = machine(adapters=(card,))
    fares = health(few, **adapters(few, vectors=3, options={"poll_queues": "4"}))
    finding = only(found(seen(few, fares), "msix-few"))
    assert (finding.severity, finding.source) == (ADVICE, "D4-2")
    assert "poll_queues=4" in format_finding(finding).advice


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


def test_competing_setters_are_reported() -> None:
    wants = profile(("scheduler", Exactly("none")))
    rules = (
        UdevRule("/etc/udev/rules.d/60-a.rules", 3, "queue/scheduler", "bfq"),
        UdevRule("/etc/udev/rules.d/60-a.rules", 4, "bdi/read_ahead_kb", "4096"),
        UdevRule("/etc/udev/rules.d/60-a.rules", 5, "power/control", "auto"),
    )
    busy = machine()
    fares = health(busy, udev_rules=rules, daemons={"irqbalance": True, "tuned": True})
    assert only(found(seen(busy, fares), "irqbalance-running")).severity is INFO
    findings = found(seen(busy, fares, profile=wants), "udev-rule")
    assert [(facts(each)["setting"], each.severity) for each in findings] == [
        ("scheduler", ADVICE),
        ("read_ahead_kb", INFO),
    ]


@pytest.mark.parametrize(
    ("of", "told"),
    [
        ((), True),
        (("SEAGATE",), True),
        (("PURE|SEA*",), True),
        (("XS400ME70084", "of another line"), True),
        (("NetApp ONTAP Controller",), False),
        (("*6c9ce9*",), True),
        (("mpath-3624a937*",), True),
    ],
)
def test_foreign_vendor_rule_is_ignored(of: tuple[str, ...], told: bool) -> None:
    busy = machine()
    rule = UdevRule("/lib/udev/rules.d/71-a.rules", 3, "device/timeout", "60", of)
    findings = found(seen(busy, health(busy, udev_rules=(rule,))), "udev-rule")
    assert bool(findings) is told
    if of and told:
        assert f"sets timeout to 60 of {', '.join(of)}" in format_finding(findings[0]).evidence


def test_tuned_versus_plan_is_advice() -> None:
    def found_with(tuned: TunedProfile | Missing) -> tuple[Severity, Text]:
        busy = machine()
        fares = health(busy, daemons={"irqbalance": False, "tuned": True}, tuned=tuned)
        wants = profile(("scheduler", Exactly("none")))
        finding = only(found(seen(busy, fares, profile=wants), "tuned-running"))
        return finding.severity, format_finding(finding)

    file = "/etc/tuned/ours/tuned.conf"
    ahead = TunedWrite(file, "queue/read_ahead_kb", "4096")
    severity, text = found_with(TunedProfile("ours", (ahead,)))
    said = "tuned is running with the profile ours (it sets read_ahead_kb 4096)"
    assert (severity, text.evidence) == (INFO, said)
    assert text.advice.startswith("nothing")
    both = TunedProfile("ours", (ahead, TunedWrite(file, "queue/scheduler", "bfq")))
    severity, text = found_with(both)
    assert severity is ADVICE
    assert text.evidence.endswith(f"which sets what hbatune sets: scheduler ({file})")
    assert "leaves scheduler alone" in text.advice
    severity, text = found_with(Missing(Reason.UNREADABLE, text="no profile 'x' is found"))
    assert severity is INFO
    assert "could not be read (no profile 'x' is found)" in text.evidence


def test_tuned_versus_vendor_is_advice() -> None:
    busy = machine(endpoint(attributes=attributes(queue__read_ahead_kb="128")))
    ahead = TunedWrite("/usr/lib/tuned/mssql/tuned.conf", "queue/read_ahead_kb", ">4096")
    fares = health(
        busy,
        daemons={"irqbalance": False, "tuned": True},
        tuned=TunedProfile("mssql", (ahead,)),
    )
    looked = seen(busy, fares)
    assert only(found(looked, "tuned-running")).severity is INFO
    of_acme = Rule("ahead", Match(), "read_ahead_kb", Exactly(128), "so", "V-nimble-rules", "")
    advice = find_advice(busy, [VendorRule(of_acme, "ACME")], Plan("", ()))
    finding = only(found(replace(looked, advice=advice), "tuned-running"))
    assert finding.severity is ADVICE
    assert "sets what hbatune sets: read_ahead_kb" in format_finding(finding).evidence


def test_iotune_gets_settings_notice() -> None:
    busy = machine()
    fares = health(busy, tools={"iotune": True, "fio": True, "bpftrace": True})
    assert not found(seen(busy, fares), "iotune-installed")
    wants = profile(("nr_requests", Exactly(200)))
    finding = only(found(seen(busy, fares, profile=wants), "iotune-installed"))
    assert finding.severity is INFO
    assert "the profile sets nr_requests" in format_finding(finding).evidence


def test_missing_tools_are_information() -> None:
    bare = machine()
    fares = health(bare, tools={"fio": False, "bpftrace": False})
    assert [each.id for each in run_checks(seen(bare, fares)) if each.target == MACHINE_TARGET] == [
        "fio-missing",
        "bpftrace-missing",
    ]


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
    told = {each.id: format_finding(each).evidence for each in findings}
    assert told["adapter-unread"] == (
        "could not be read: link speed, nonfatal errors of the adapter, firmware's credits of host0"
        " (Permission denied)"
    )
    assert told["disk-unread"] == "could not be read: timeouts (Permission denied)"
    assert told["processes-hidden"] == "not known whether they run: tuned, irqbalance"


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
    told = format_finding(
        only(found(seen(sick, health(sick, **disks(sick, timeouts=missing))), "disk-unread"))
    )
    assert reason in told.evidence
    assert advice in told.advice
    assert ("as root" in told.advice) is (missing is DENIED)


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


def served(*cpus: str, role: Role = Role.DATA, managed: bool = False) -> tuple[Vector, ...]:
    """Vectors of the adapter, each served by one of these CPUs."""
    return tuple(
        vector(irq=30 + number, role=role, managed=managed, effective=cpu)
        for number, cpu in enumerate(cpus)
    )


def placed(*vectors: Vector, near: tuple[int, ...] = (0, 1, 2, 3), queues: int = 4) -> Machine:
    return replace(
        machine(adapters=(adapter(hw_queues=queues),)),
        vectors=vectors,
        local_cpus={ADAPTER: near},
        processors=Processors(online=tuple(range(8))),
    )


def test_admin_vectors_never_count() -> None:
    sick = placed(*served("0", "1"), *served("2", "3", role=Role.ADMIN))
    fares = health(sick, **adapters(sick, vectors=4, options={"max_msix_vectors": "4"}))
    finding = only(found(seen(sick, fares), "msix-few"))
    assert (facts(finding)["vectors"], finding.severity) == (2, ADVICE)


@pytest.mark.parametrize(
    ("cpus", "near", "severity"),
    [
        (("0", "0", "0"), (0, 1), ADVICE),
        (("0", "1", "0"), (0, 1), None),
        (("0",), (0, 1), None),
        (("0", "0"), (0,), None),
    ],
)
def test_crowded_vectors_are_reported(
    cpus: tuple[str, ...], near: tuple[int, ...], severity: Severity | None
) -> None:
    findings = found(seen(placed(*served(*cpus), near=near)), "vectors-crowded")
    assert [finding.severity for finding in findings] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("managed", "severity", "advice"),
    [(False, ADVICE, "moves the 2 that may be"), (True, INFO, "nobody can move them")],
)
def test_managed_crowded_vectors_stay(managed: bool, severity: Severity, advice: str) -> None:
    crowded = placed(*served("0", "0", managed=managed))
    finding = only(found(seen(crowded), "vectors-crowded"))
    assert finding.severity is severity
    assert advice in format_finding(finding).advice


@pytest.mark.parametrize(("managed", "severity"), [(False, ADVICE), (True, INFO)])
def test_remote_vectors_are_reported(managed: bool, severity: Severity) -> None:
    sick = placed(*served("0", "6", managed=managed))
    finding = only(found(seen(sick), "vectors-far"))
    assert (finding.severity, facts(finding)["vectors"]) == (severity, ("irq31",))
    assert "another NUMA node than the adapter's (0-3)" in format_finding(finding).evidence
    assert ("moves the 1 that may be" in format_finding(finding).advice) is not managed
    assert not found(seen(placed(*served("0", "3"))), "vectors-far")


def test_unaware_irqbalance_is_advice() -> None:
    sick = placed(*served("0", "1"))
    place = profile(("irq_affinity", Exactly("local")))

    def severity(**overrides: Any) -> Severity:
        fares = health(sick, daemons={"irqbalance": True}, **overrides)
        return only(found(seen(sick, fares, profile=place), "irqbalance-running")).severity

    assert severity() is ADVICE
    assert severity(irq_policies=("/usr/local/bin/theirs",)) is ADVICE
    assert severity(irq_policies=(str(paths.IRQ_POLICY),)) is INFO
    unplaced = health(sick, daemons={"irqbalance": True})
    assert only(found(seen(sick, unplaced), "irqbalance-running")).severity is INFO


def test_unproven_daemon_is_unknown() -> None:
    sick = placed(*served("0", "1"))
    unproven = Missing(Reason.UNPARSABLE, text="process 400 is not part of irqbalance.service")
    findings = run_checks(
        seen(sick, health(sick, daemons={"irqbalance": unproven, "tuned": DENIED}))
    )
    assert not [each for each in findings if each.id == "irqbalance-running"]
    hidden, unknown = [each for each in findings if each.id == "processes-hidden"]
    assert format_finding(hidden).evidence == "not known whether they run: tuned"
    assert "as root" in format_finding(hidden).advice
    assert format_finding(unknown).evidence == (
        "not known whether they run: irqbalance: process 400 is not part of irqbalance.service"
    )
    assert format_finding(unknown).advice.startswith("run it as irqbalance.service, or stop it")


def test_duplicate_names_are_reported() -> None:
    one = endpoint(id="naa.5@0000:01:00.0/scsi-0:1:0~0:0:1:0")
    two = endpoint(target="sdb", id="naa.5@0000:01:00.0/scsi-0:1:0~1:0:1:0")
    findings = found(seen(machine(one, two)), "same-name")
    assert [(each.target, facts(each)["others"]) for each in findings] == [
        ("sda", ("sdb",)),
        ("sdb", ("sda",)),
    ]
    assert {each.severity for each in findings} == {WARNING}
    assert "maker's tool" in format_finding(findings[0]).advice
    paths = (replace(each, kind=Kind.PATH) for each in (one, two))
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
    it = seen(machine(*bare, *make))
    findings = found(it, "no-name")
    assert [each.target for each in findings] == ["sda", "sdb", "sdc", "sdd"]
    assert {each.severity for each in findings} == {INFO}
    assert found(it, "same-name") == []


def test_unmatched_names_are_reported() -> None:
    site = Site(exclude=("sda", "sdz"), members={"naa.1": 4})
    findings = found(seen(machine(), site=site), "site-name")
    assert [(facts(each)["key"], facts(each)["name"]) for each in findings] == [
        ("exclude", "sdz"),
        ("members", "naa.1"),
    ]
    assert {each.severity for each in findings} == {WARNING}
