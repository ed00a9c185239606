"""Findings on a driver's own levers, on ports that run slowly, and on arrays' ports."""

from typing import Any

import pytest
from msgspec.structs import replace

from hbatune.checks.finding import CheckInput, Severity
from hbatune.checks.registry import run_checks
from hbatune.facts.health import Errors, LinkRate, ModuleOptionLine, Root
from hbatune.facts.model import Attribute, CpuRestriction, Endpoint, Protocol, Role, Storage, Vector
from hbatune.policy.library import Library
from hbatune.policy.profile import AtLeast
from hbatune.shipped import find_shipped
from tests.unit.check_inputs import (
    ADAPTER,
    ADVICE,
    CRITICAL,
    DENIED,
    INFO,
    NO_ERRORS,
    WARNING,
    adapter_health,
    adapters,
    facts,
    format_finding,
    found,
    health,
    only,
    placed,
    port,
    seen,
    served,
)
from tests.unit.machines import ABSENT, adapter, attributes, endpoint, host, link, machine, vector
from tests.unit.profiles import profile


def lun(number: int = 0, depth: int = 64, **overrides: Any) -> Endpoint:
    target = f"sd{chr(97 + number)}"
    defaults = {
        "family": "lpfc",
        "protocol": Protocol.FC,
        "storage": Storage.ARRAY,
        "address": f"0:0:0:{number}",
        "attributes": attributes(device__queue_depth=str(depth)),
    }
    return endpoint(target=target, **{**defaults, **overrides})


def build_input(*luns: Endpoint, family: str = "lpfc", **facts: Any) -> CheckInput:
    hba_machine = machine(*luns, adapters=(adapter(family=family),))
    fares = health(hba_machine, adapters={ADAPTER: adapter_health(**facts)})
    return replace(seen(hba_machine, fares), arrays=Library(find_shipped("rules")).arrays())


@pytest.mark.parametrize(
    ("inspected", "severity", "words"),
    [
        ({"lpfc_cr_delay": "20", "lpfc_cr_count": "8"}, ADVICE, "up to 20000 µs (lpfc_cr_delay)"),
        ({"lpfc_cr_delay": "20", "lpfc_cr_count": "1"}, None, ""),
        ({"lpfc_cr_delay": "0", "lpfc_cr_count": "8"}, None, ""),
        ({"zio": "Mode 6", "zio_timer": "20000 us"}, ADVICE, "up to 20000 µs (zio)"),
        ({"zio": "Mode 6", "zio_timer": "200 us"}, INFO, "up to 200 µs (zio)"),
        ({"zio": "Disabled", "zio_timer": "20000 us"}, None, ""),
    ],
)
def test_interrupt_coalescing_sets_severity(
    inspected: dict[str, str], severity: Severity | None, words: str
) -> None:
    facts = {f"host0 {name}": text for name, text in inspected.items()}
    findings = found(build_input(lun(), inspected=facts), "coalescing-on")
    assert [finding.severity for finding in findings] == ([severity] if severity else [])
    assert all(
        f"host0: completions are coalesced for {words}" in format_finding(finding).evidence
        for finding in findings
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [("zio", "--allow-reset, which resets the link"), ("lpfc_cr_delay", "apply it")],
)
def test_coalescing_advice_is_its_own(name: str, words: str) -> None:
    inspected = {f"host0 {name}": "3", "host0 zio_timer": "900"}
    inspected |= {"host0 zio": "Mode 6"} if name == "zio" else {}
    finding = only(found(build_input(lun(), inspected=inspected), "coalescing-on"))
    advice = format_finding(finding).advice
    assert f'setting = "{name}", value = 0' in advice
    assert advice.endswith(words)
    assert "perf_mode" not in advice


def test_perf_mode_coalesces_all_queues() -> None:
    check_input = build_input(lun(), family="mpt3sas", options={"perf_mode": "1"})
    assert format_finding(only(found(check_input, "coalescing-on"))).evidence == (
        "completions are coalesced (perf_mode=1)"
    )
    assert not found(build_input(lun(), options={"perf_mode": "0"}), "coalescing-on")


def test_low_target_depth_is_advice() -> None:
    luns = [lun(number) for number in range(4)]
    check_input = build_input(*luns, inspected={"host0 lpfc_tgt_queue_depth": "100"})
    finding = only(found(check_input, "target-commands"))
    assert (finding.severity, facts(finding)["depths"], facts(finding)["luns"]) == (
        ADVICE,
        256,
        4,
    )
    enough = build_input(*luns, inspected={"host0 lpfc_tgt_queue_depth": "256"})
    assert not found(enough, "target-commands")
    elsewhere = [lun(number, address=f"0:0:{number}:0") for number in range(4)]
    assert not found(
        build_input(*elsewhere, inspected={"host0 lpfc_tgt_queue_depth": "100"}), "target-commands"
    )


def test_timed_depth_lowering_is_reported() -> None:
    check_input = build_input(lun(), inspected={"host0 lpfc_max_scsicmpl_time": "30"})
    assert "longer than 30 ms" in format_finding(only(found(check_input, "target-time"))).evidence
    assert not found(
        build_input(lun(), inspected={"host0 lpfc_max_scsicmpl_time": "0"}), "target-time"
    )


@pytest.mark.parametrize(
    ("state", "severity"), [("1", None), ("2", CRITICAL), ("3", WARNING), ("4", CRITICAL)]
)
def test_inactive_adapter_is_reported(state: str, severity: Severity | None) -> None:
    findings = found(
        build_input(family="mpi3mr", inspected={"host0 adp_state": state}), "adapter-state"
    )
    assert [finding.severity for finding in findings] == ([severity] if severity else [])


@pytest.mark.parametrize(("offered", "is_reported"), [(9664, False), (20000, True)])
def test_low_can_queue_is_reported(offered: int, is_reported: bool) -> None:
    check_input = build_input(family="mpi3mr", credits={"host0": offered})
    findings = found(check_input, "host-commands")
    assert bool(findings) is is_reported
    if is_reported:
        assert format_finding(findings[0]).evidence == (
            "host0 takes 9664 commands, and the firmware offers 20000"
        )
        assert "no option for it" in format_finding(findings[0]).advice


def test_slow_ports_are_reported() -> None:
    rates = {"host0": LinkRate(8, 16), "phy-1:0": LinkRate(6, 12), "phy-1:1": LinkRate(6, 12)}
    ports, phys = sorted(
        found(build_input(lun(), rates=rates), "port-rate"), key=lambda finding: finding.severity
    )
    assert (ports.severity, facts(ports)["ports"]) == (ADVICE, ("host0",))
    assert "switch port of host0" in format_finding(ports).advice
    assert (phys.severity, facts(phys)["ports"]) == (INFO, ("phy-1:0", "phy-1:1"))
    assert "at 6 Gbit/s, where 12 are possible" in format_finding(phys).evidence
    assert not found(build_input(lun(), rates={"host0": LinkRate(16, 16)}), "port-rate")


@pytest.mark.parametrize(
    ("vendor", "model", "luns", "depth", "limit"),
    [
        ("DGC", "VRAID", 26, 64, 1600),  # 1664
        ("DGC", "VRAID", 25, 64, None),  # 1600
        ("HITACHI", "DF600F", 9, 64, 512),
        ("HITACHI", "OPEN-V", 26, 80, 2048),
        ("IBM", "2107900", 26, 255, None),  # no paper that says it
        ("ACME", "BOX", 26, 255, None),
    ],
)
def test_array_port_overload_is_advice(
    vendor: str, model: str, luns: int, depth: int, limit: int | None
) -> None:
    """Nobody has described it in [[site.array]]."""
    port = "0x500601613b240f3a"
    disks = [lun(number, depth, vendor=vendor, model=model, port=port) for number in range(luns)]
    findings = found(build_input(*disks), "array-port")
    assert [facts(finding)["limit"] for finding in findings] == ([limit] if limit else [])
    for finding in findings:
        assert (finding.severity, facts(finding)["depths"]) == (ADVICE, luns * depth)
        assert "[[site.array]]" in format_finding(finding).advice


def test_share_counts_current_depth() -> None:
    """15 drives of a depth of 32 on an adapter that takes 253, and a profile that wants 4."""
    serving = host(can_queue=253)
    drives = [
        endpoint(
            target=f"sd{chr(97 + number)}",
            host=serving,
            protocol=Protocol.SPI,
            attributes=attributes(device__queue_depth="32"),
        )
        for number in range(15)
    ]
    hba_machine = machine(*drives, adapters=(adapter(hosts=(serving,)),))
    finding = only(
        found(seen(hba_machine, profile=profile(("queue_depth", AtLeast(4)))), "host-depth-share")
    )
    assert (finding.severity, facts(finding)["wanted"]) == (INFO, 32)
    assert facts(finding)["share"] == 16


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
    ("adapter_errors", "above", "root", "severity"),
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
    adapter_errors: Errors, above: Errors, root: Errors, severity: Severity | None
) -> None:
    sick = machine()
    fares = adapters(
        sick, errors=adapter_errors, port=port(errors=above), root=Root("0000:00:01.0", root)
    )
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
    text = format_finding(only(found(on_a_line(LINE), "msix-off")))
    assert "option" not in text.evidence + text.advice
    assert "journalctl -k -g msi" in text.advice


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


@pytest.mark.parametrize(
    ("vectors", "queues", "options", "severity"),
    [
        (9, 8, {"max_msix_vectors": "-1"}, None),
        (4, 8, {"max_msix_vectors": "4"}, ADVICE),
        # Without an option there is nothing to be done about it.
        (4, 8, {}, INFO),
        (4, 4, {"max_msix_vectors": "4"}, INFO),
        (2, 2, {"max_msix_vectors": "-1", "poll_queues": "0", "smp_affinity_enable": "1"}, None),
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


def test_mpi3mr_vector_shortage_is_advice() -> None:
    card = adapter(family="mpi3mr", hw_queues=8)
    few = machine(adapters=(card,))
    fares = health(few, **adapters(few, vectors=3, options={"poll_queues": "4"}))
    finding = only(found(seen(few, fares), "msix-few"))
    assert (finding.severity, finding.source) == (ADVICE, "D4-2")
    assert "poll_queues=4" in format_finding(finding).advice


@pytest.mark.parametrize(
    ("family", "options", "limiting"),
    [
        ("mpi3mr", {"poll_queues": "0"}, None),
        ("lpfc", {"lpfc_irq_chann": "0", "lpfc_hdw_queue": "0", "lpfc_use_msi": "2"}, None),
        ("lpfc", {"lpfc_irq_chann": "4", "lpfc_use_msi": "1"}, "irq_chann=4, lpfc_use_msi=1"),
        ("mpt3sas", {"max_msix_vectors": "-1", "smp_affinity_enable": "1"}, None),
        ("mpt3sas", {"max_msix_vectors": "4", "poll_queues": "0"}, "max_msix_vectors=4"),
        ("vmw_pvscsi", {"disable_msi": "N", "disable_msix": "Y"}, "disable_msix=Y"),
    ],
)
def test_vector_shortage_names_no_default(
    family: str, options: dict[str, str], limiting: str | None
) -> None:
    few = machine(adapters=(adapter(family=family, hw_queues=8),))
    fares = health(few, **adapters(few, vectors=3, options=options))
    finding = only(found(seen(few, fares), "msix-few"))
    assert finding.severity == (ADVICE if limiting else INFO)
    advice = format_finding(finding).advice
    if limiting:
        assert advice.endswith(f"back: lpfc_{limiting}" if family == "lpfc" else limiting)
    else:
        assert "=" not in advice


@pytest.mark.parametrize(
    ("vectors", "cpus", "severity"),
    [(1, 4, ADVICE), (1, 1, None), (3, 4, ADVICE), (4, 4, None), (15, 64, None), (14, 64, ADVICE)],
)
def test_single_queue_of_ipr_counts_vectors(
    vectors: int, cpus: int, severity: Severity | None
) -> None:
    card = machine(adapters=(adapter(family="ipr", hw_queues=1),), cpus=cpus)
    fares = health(card, **adapters(card, vectors=vectors))
    findings = found(seen(card, fares), "msix-few")
    assert [finding.severity for finding in findings] == ([severity] if severity else [])
    assert all("number_of_msix" in format_finding(finding).advice for finding in findings)


def test_modprobe_line_is_witness_of_vectors() -> None:
    card = machine(adapters=(adapter(family="ipr", hw_queues=1),), cpus=4)
    lines = tuple(
        ModuleOptionLine("/etc/modprobe.d/a.conf", number, "ipr", "number_of_msix", value)
        for number, value in ((1, "8"), (2, "1"))
    )
    fares = health(card, **adapters(card, vectors=1), module_options=lines)
    finding = only(found(seen(card, fares), "msix-few"))
    assert facts(finding)["options"] == ("number_of_msix=1 (/etc/modprobe.d/a.conf, line 2)",)


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
    [
        (False, ADVICE, "--profile oltp 0000:01:00.0`"),
        (True, INFO, "no action: none"),
    ],
)
def test_managed_crowded_vectors_stay(managed: bool, severity: Severity, advice: str) -> None:
    crowded = placed(*served("0", "0", managed=managed))
    finding = only(found(seen(crowded), "vectors-crowded"))
    assert finding.severity is severity
    assert advice in format_finding(finding).advice


def test_single_movable_vector_is_not_moved() -> None:
    """The profile places it on the same CPU, so the advice would never help."""
    movable, managed = served("0", "0")
    crowded = placed(movable, replace(managed, managed=True))
    finding = only(found(seen(crowded), "vectors-crowded"))
    assert finding.severity is INFO
    assert "no action" in format_finding(finding).advice


@pytest.mark.parametrize(("mask", "ids"), [("0", set()), ("0-3", {"vectors-crowded"})])
def test_pinned_vectors_are_no_finding(mask: str, ids: set[str]) -> None:
    """`apply` does not move a vector that an administrator has pinned, so no advice helps."""
    pinned = [replace(v, affinity=Attribute(mask, True)) for v in served("0", "0")]
    host = placed(*pinned, near=(0, 1))
    restrictions = {CpuRestriction.DEFAULT: (0, 1, 2, 3)}
    processors = replace(host.processors, online=(0, 1, 2, 3), restrictions=restrictions)
    findings = run_checks(seen(replace(host, processors=processors)))
    assert {finding.id for finding in findings} & {"vectors-crowded", "vectors-far"} == ids


@pytest.mark.parametrize(("managed", "severity"), [(False, ADVICE), (True, INFO)])
def test_remote_vectors_are_reported(managed: bool, severity: Severity) -> None:
    sick = placed(*served("0", "6", managed=managed))
    finding = only(found(seen(sick), "vectors-far"))
    assert (finding.severity, facts(finding)["vectors"]) == (severity, ("irq31",))
    assert "another NUMA node than the adapter's (0-3)" in format_finding(finding).evidence
    assert (
        "`hbatune apply --profile oltp 0000:01:00.0`" in format_finding(finding).advice
    ) is not managed
    assert not found(seen(placed(*served("0", "3"))), "vectors-far")
