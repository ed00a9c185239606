"""Values that somebody has lowered stay, unless it was hbatune or the kernel, or they are named."""

from typing import Any

import pytest
from msgspec.structs import replace

from hbatune.facts.families.ahci import ncq_off
from hbatune.facts.model import Attribute, Endpoint, Module, Pci, Protocol
from hbatune.facts.udev import SavedTexts
from hbatune.operations.situation import SituationRequest, read_situation
from hbatune.plan.make import EarlierChanges, make_plan
from hbatune.plan.rows import Row, State
from hbatune.policy.profile import AtLeast, Effect, Exactly, Match, Origin, ProbeSpec, Profile, Rule
from hbatune.text.limit_text import describe_limit
from tests.unit.command_runs import see_machine
from tests.unit.machines import ABSENT, adapter, attributes, endpoint, host, machine
from tests.unit.site_folder import SiteFolder

DEPTH, REQUESTS = "queue_depth", "nr_requests"


def wish(setting: str, effect: Effect, origin: Origin = Origin.SHIPPED) -> Profile:
    rule = Rule("wish", Match(), setting, effect, "because", "D0-2", "x.toml", origin)
    return Profile("test", "A test", origin, (rule,), (), ProbeSpec(), ("x.toml",))


def lun(depth: str, **overrides: Any) -> Endpoint:
    lun_attributes = attributes(
        queue__scheduler="[mq-deadline] none", queue__nr_requests="256", device__queue_depth=depth
    )
    serving = host(can_queue=1000, cmd_per_lun=32)
    return endpoint(family="iscsi_tcp", host=serving, attributes=lun_attributes, **overrides)


def row(disk: Endpoint, profile: Profile, *modules: Module, **changes: Any) -> Row:
    host, earlier = replace(machine(disk), modules=modules), EarlierChanges(**changes)
    [planned_row] = make_plan(host, profile, earlier=earlier).rows
    return planned_row


RAISED = wish(DEPTH, AtLeast(64))
DEEP = wish(DEPTH, AtLeast(300))
DEADLINE = wish("scheduler", Exactly("mq-deadline"))
SUSE = "/usr/lib/udev/rules.d/60-io-scheduler.rules"


def test_lowered_depth_stays_until_named() -> None:
    disk = lun("8")
    planned_row = row(disk, RAISED)
    assert (planned_row.state, planned_row.value) == (State.EXCLUDED, None)
    assert describe_limit(planned_row.limit) == (
        "below the driver's own 32: an administrator's decision, until `apply sda` names it"
    )
    assert row(disk, RAISED, targets_named=True).value == 64
    assert row(lun("32"), RAISED).value == 64, "the driver's own is nobody's decision"


def test_exact_site_rule_overrides() -> None:
    disk = lun("8")
    assert row(disk, wish(DEPTH, Exactly(16), Origin.SITE)).value == 16
    assert row(disk, wish(DEPTH, AtLeast(16), Origin.SITE)).state is State.EXCLUDED
    assert row(disk, wish(DEPTH, Exactly(16))).state is State.EXCLUDED


def test_hbatune_lowered_depth_is_raised() -> None:
    disk = lun("8")
    assert row(disk, RAISED, set_by_us=lambda id, name: (id, name) == (disk.id, DEPTH)).value == 64


@pytest.mark.parametrize(
    ("texts", "state"),
    [
        ({"NR_REQUESTS": "256"}, "drift"),  # the rule has set it, and somebody has lowered it since
        ({"SCHEDULER": "none"}, "excluded"),
        (None, "excluded"),
    ],
)
def test_udev_rule_value_is_raised(
    monkeypatch: pytest.MonkeyPatch,
    site: SiteFolder,
    texts: dict[str, str] | None,
    state: str,
) -> None:
    disk_attributes = attributes(queue__scheduler="[mq-deadline] none", queue__nr_requests="64")
    disk = endpoint(attributes=disk_attributes)
    module = "hbatune.operations.situation"
    see_machine(monkeypatch, lambda: machine(disk))
    saved_texts = {} if texts is None else {disk.id: SavedTexts(texts, "")}
    monkeypatch.setattr(f"{module}.read_saved_texts", lambda endpoints: saved_texts)
    rows = {
        row.setting: row for row in read_situation(SituationRequest(profile="balanced")).plan().rows
    }
    assert rows[REQUESTS].state == state


def test_kernel_lowered_depth_is_raised() -> None:
    full = lun("8")
    counted = {**full.attributes, "device/ioerr_cnt": Attribute("0xb", False)}
    assert row(replace(full, attributes=counted), RAISED).value == 64
    few = {**full.attributes, "device/ioerr_cnt": Attribute("0xa", False)}
    assert row(replace(full, attributes=few), RAISED).state is State.EXCLUDED


def test_unknown_default_permits_raise() -> None:
    assert row(replace(lun("8"), family="hpsa"), RAISED).value == 64


def behind(family: str, depth: str, protocol: Protocol = Protocol.SAS, **overrides: Any) -> Row:
    """Return the depth's row of a LUN behind this driver: on a SAS3008, where that matters."""
    disk = lun(depth, protocol=protocol, depth_cap=1000)
    return row(replace(disk, family=family, **overrides), DEEP)


@pytest.mark.parametrize(
    ("family", "protocol", "own"),
    [
        ("mpt3sas", Protocol.SAS, 254),
        ("mpt3sas", Protocol.SATA, 32),
        ("mpt3sas", Protocol.NVME, 128),
        ("mptsas", Protocol.SAS, 64),
        ("mptsas", Protocol.SATA, 64),
        ("mptsas", Protocol.VOLUME, 64),
        ("megaraid_sas", Protocol.SAS, 256),
        ("megaraid_sas", Protocol.SATA, 32),
        ("megaraid_sas", Protocol.NVME, 64),
        ("megaraid_sas", Protocol.VOLUME, 256),
        ("libsas", Protocol.SAS, 256),
        ("libsas", Protocol.SATA, 31),
        ("hv_storvsc", Protocol.VIRTUAL, 32),  # cmd_per_lun of the host
    ],
)
def test_driver_constant_is_default(family: str, protocol: Protocol, own: int) -> None:
    lowered = behind(family, str(own - 1), protocol, ncq_depth=32)
    assert lowered.state is State.EXCLUDED
    assert describe_limit(lowered.limit).startswith(f"below the driver's own {own}: ")
    assert behind(family, str(own), protocol, ncq_depth=32).state is State.DRIFT


@pytest.mark.parametrize("level", ["1", "1e", "10"])
def test_mirrored_volume_has_driver_depth(level: str) -> None:
    """The depth of other volumes behind mpt3sas depends on their members."""
    lowered = behind("mpt3sas", "127", Protocol.VOLUME, raid_level=level)
    assert describe_limit(lowered.limit).startswith("below the driver's own 128: ")
    assert behind("mpt3sas", "128", Protocol.VOLUME, raid_level=level).state is State.DRIFT
    assert behind("mpt3sas", "127", Protocol.VOLUME, raid_level="0").state is State.DRIFT


def test_hisilicon_starts_sas_lower() -> None:
    hisi = host(proc_name="hisi_sas_v3_hw", can_queue=1000)
    assert behind("libsas", "63", host=hisi).state is State.EXCLUDED
    assert behind("libsas", "64", host=hisi).state is State.DRIFT


def test_only_containers_show_volume_default() -> None:
    """aacraid divides can_queue among them. Other volumes have a depth of their own."""
    for family, states in (("aacraid", ["drift", "excluded"]), ("mpt3sas", ["drift", "drift"])):
        disks = []
        for target, depth in (("sda", "100"), ("sdb", "50")):
            disk = lun(depth, target=target, protocol=Protocol.VOLUME, depth_cap=500)
            disks.append(replace(disk, family=family))
        assert [row.state for row in make_plan(machine(*disks), DEEP).rows] == states


SAS35 = adapter(pci=Pci("0000:01:00.0", 0x010700, 0x1000, 0x00AC, ABSENT, ABSENT))


@pytest.mark.parametrize("family", ["mpt3sas", "mpi3mr", "hpsa"])
def test_alike_disks_show_firmware_default(family: str) -> None:
    disks = [
        replace(lun(depth, target=target), family=family)
        for target, depth in (("sda", "40"), ("sdb", "8"))
    ]
    server = machine(*disks, adapters=(SAS35,))
    first, second = make_plan(server, RAISED).rows
    assert (first.value, second.state) == (64, State.EXCLUDED)
    assert describe_limit(second.limit).startswith("below the 40 of equal disks on its adapter: ")
    # Another model may have another depth.
    other = replace(disks[1], model="OTHER")
    assert [
        row.value for row in make_plan(machine(disks[0], other, adapters=(SAS35,)), RAISED).rows
    ] == [64, 64]


def test_raised_peer_counts_as_before() -> None:
    """Otherwise each disk that appears after an apply would count as lowered."""
    disks = [
        replace(lun(depth, target=target), family="mpi3mr")
        for target, depth in (("sda", "64"), ("sdb", "32"))
    ]
    earlier = EarlierChanges(original_depths={disks[0].id: 32})
    rows = make_plan(machine(*disks), RAISED, earlier=earlier).rows
    assert [row.value for row in rows] == [64, 64]


def test_full_sibling_lun_explains_depth() -> None:
    """A full queue lowers all LUNs of the target, and only one of them counts the answers."""
    first, second = (lun("8", target=name, address=f"0:0:1:{name[-1]}") for name in ("sd0", "sd1"))
    counted = {**first.attributes, "device/ioerr_cnt": Attribute("0xb", False)}
    server = machine(replace(first, attributes=counted), second)
    assert [row.value for row in make_plan(server, RAISED).rows] == [64, 64]
    apart = machine(replace(first, attributes=counted), replace(second, address="0:0:2:0"))
    assert [row.value for row in make_plan(apart, RAISED).rows] == [64, None]


def test_module_option_sets_default() -> None:
    disk = replace(lun("16"), family="lpfc")
    module = Module("lpfc", {"lpfc_lun_queue_depth": Attribute("64", False)})
    assert row(disk, RAISED, module).state is State.EXCLUDED
    module = Module("lpfc", {"lpfc_lun_queue_depth": Attribute("16", False)})
    assert row(disk, RAISED, module).value == 64


@pytest.mark.parametrize(
    ("scheduler", "current", "tags", "state"),
    [
        ("[mq-deadline] none", "64", 1000, State.EXCLUDED),
        ("[mq-deadline] none", "256", 1000, State.DRIFT),
        ("[mq-deadline] none", "64", 32, State.DRIFT),  # twice the tags is what the kernel sets
        ("[none] mq-deadline", "64", 1000, State.DRIFT),  # an accident: it holds for all LUNs
    ],
)
def test_low_nr_requests_stays(scheduler: str, current: str, tags: int, state: State) -> None:
    disk_attributes = attributes(queue__scheduler=scheduler, queue__nr_requests=current)
    disk = endpoint(attributes=disk_attributes, tags=tags)
    assert row(disk, wish(REQUESTS, Exactly(2048))).state is state


def test_scheduler_change_discards_requests() -> None:
    disk_attributes = attributes(queue__scheduler="[bfq] mq-deadline none", queue__nr_requests="64")
    disk = endpoint(attributes=disk_attributes)
    rules = tuple(
        Rule(name, Match(), name, Exactly(value), "because", "D0-1", "x.toml")
        for name, value in (("scheduler", "mq-deadline"), (REQUESTS, 2048))
    )
    both = replace(wish(REQUESTS, Exactly(2048)), rules=rules)
    by_rule = EarlierChanges(scheduler_rules=lambda: {disk.id: SUSE})
    rows = {row.setting: row for row in make_plan(machine(disk), both, earlier=by_rule).rows}
    assert rows[REQUESTS].value == 2048
    rows = {row.setting: row for row in make_plan(machine(disk), both).rows}
    assert (rows["scheduler"].state, rows[REQUESTS].state) == (State.EXCLUDED, State.EXCLUDED)


@pytest.mark.parametrize("chosen", ["bfq", "kyber"])
def test_chosen_scheduler_stays_until_named(chosen: str) -> None:
    disk = endpoint(attributes=attributes(queue__scheduler=f"none mq-deadline [{chosen}]"))
    planned_row = row(disk, DEADLINE)
    assert (planned_row.state, planned_row.value) == (State.EXCLUDED, None)
    assert describe_limit(planned_row.limit) == (
        f"no kernel selects {chosen} by itself: an administrator's decision, "
        "until `apply sda` names it"
    )
    assert row(disk, DEADLINE, targets_named=True).value == "mq-deadline"
    local_rule = wish("scheduler", Exactly("mq-deadline"), Origin.SITE)
    assert row(disk, local_rule).value == "mq-deadline"
    assert row(disk, DEADLINE, set_by_us=lambda id, name: True).value == "mq-deadline"


def test_distribution_scheduler_is_replaced_and_reported() -> None:
    disk = endpoint(attributes=attributes(queue__scheduler="none mq-deadline [bfq]"))
    planned_row = row(disk, DEADLINE, scheduler_rules=lambda: {disk.id: SUSE})
    assert (planned_row.state, planned_row.value) == (State.DRIFT, "mq-deadline")
    assert f"replaces the choice of {SUSE}" in describe_limit(planned_row.limit)


@pytest.mark.parametrize(("scheduler", "is_read"), [("bfq", True), ("kyber", False)])
def test_distribution_rules_are_read_for_bfq(
    monkeypatch: pytest.MonkeyPatch, site: SiteFolder, scheduler: str, is_read: bool
) -> None:
    disk = endpoint(attributes=attributes(queue__scheduler=f"none mq-deadline [{scheduler}]"))
    see_machine(monkeypatch, lambda: machine(disk))
    monkeypatch.setattr("hbatune.operations.situation.read_saved_texts", lambda endpoints: {})
    rules = "hbatune.facts.observe.find_distribution_rules"
    monkeypatch.setattr(rules, lambda disks: {disk.id: SUSE for disk in disks})
    rows = read_situation(SituationRequest(profile="balanced")).plan().rows
    [planned_row] = [row for row in rows if row.setting == "scheduler"]
    assert (planned_row.state is State.DRIFT) is is_read


def test_disabled_ncq_stays_off() -> None:
    disk = replace(lun("1"), family="mpt3sas", protocol=Protocol.SATA, ncq_depth=32)
    planned_row = row(disk, RAISED)
    assert planned_row.state is State.EXCLUDED
    assert "native command queuing is off" in describe_limit(planned_row.limit)
    assert row(disk, RAISED, targets_named=True).value == 64
    # Of a drive that does not say what it can, nobody knows whose decision it was.
    silent = row(replace(disk, ncq_depth=None), RAISED)
    assert silent.state is State.EXCLUDED
    assert "the drive does not queue, or an" in describe_limit(silent.limit)


@pytest.mark.parametrize(
    ("line", "port", "off"),
    [
        ("ro libata.force=noncq quiet", 3, True),
        ("libata.force=3:noncq", 3, True),
        ("libata.force=3:noncq", 4, False),
        ("libata.force=3.00:1.5Gbps,noncq", 3, True),  # the last ID holds
        ("libata.force=4:1.5Gbps,noncq", 3, False),
        ("libata.force=noncq libata.force=3:ncq", 3, False),
        ("libata.force=nolpm", 3, False),
        ("ro quiet", 3, False),
    ],
)
def test_command_line_disables_ncq(line: str, port: int, off: bool) -> None:
    assert (ncq_off(line, port) is not None) is off


@pytest.mark.parametrize(
    ("text", "wanted", "state"),
    [
        ("[none] mq-deadline", "mq-deadline", State.DRIFT),
        ("[none] kyber", "mq-deadline", State.FIXED),  # not built into this kernel
        ("[none] mq-deadline", "kyber", State.DRIFT),  # a module, which the write loads
    ],
)
def test_only_offered_schedulers_are_planned(text: str, wanted: str, state: State) -> None:
    disk = endpoint(attributes=attributes(queue__scheduler=text))
    planned_row = row(disk, wish("scheduler", Exactly(wanted)))
    assert planned_row.state is state
    if state is State.FIXED:
        assert describe_limit(planned_row.limit) == (
            "this kernel has loaded none, kyber: load mq-deadline with modprobe if it is a module"
        )
