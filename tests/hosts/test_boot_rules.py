"""Rules compiled for disks that nobody has seen yet, against the plan for those that are there.

What a rule sets is what the plan would set, on every described machine and under every profile;
what it leaves, the daemon does.
"""

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hbatune.act.paths import Paths
from hbatune.boot.compile import CompiledRules, compile_rules, format_rules
from hbatune.facts.ids import extract_stable_part
from hbatune.facts.model import Endpoint, Kind, Machine, Medium, Protocol
from hbatune.facts.targets import list_endpoint_names
from hbatune.facts.udev import SEEN_PROPERTY
from hbatune.plan import make
from hbatune.plan.rows import RevertedValue, Row, State
from hbatune.policy.config import Site
from hbatune.policy.profile import (
    AtLeast,
    Effect,
    Exactly,
    Leave,
    Match,
    Multipath,
    Origin,
    ProbeSpec,
    Profile,
    Rule,
)
from hbatune.settings.table import SETTINGS
from tests.hosts.conftest import ALL, Surveyed
from tests.hosts.tree import Described
from tests.hosts.udev import Event, has_udev, real
from tests.hosts.udev_events import event, shipped_profile, shipped_rules

PROFILES = ("oltp", "latency", "throughput", "balanced")
Survey = Callable[[str], Surveyed]


def tuned(machine: Machine) -> list[Endpoint]:
    """The endpoints that udev tells of, but for those whose `rotational` somebody has falsified.

    The kernel takes that from the drive's page before it announces the disk.
    """
    return [
        endpoint
        for endpoint in machine.endpoints
        if endpoint.kind is not Kind.MAP
        and endpoint.device_node is not None
        and (
            endpoint.medium is Medium.NVME
            or endpoint.rotational is (endpoint.medium is Medium.HDD)
            or endpoint.medium is Medium.UNKNOWN
        )
    ]


def maps(machine: Machine) -> list[Endpoint]:
    """The maps of device mapper."""
    return [endpoint for endpoint in machine.endpoints if endpoint.target.startswith("dm-")]


def at_most(row: Row, endpoint: Endpoint, value: str) -> bool:
    """Whether more than a LUN takes was written: the driver refuses, or sets the most it takes."""
    cap = endpoint.depth_cap
    return row.setting == "queue_depth" and isinstance(cap, int) and int(value) > cap == row.value


def agree(
    machine: Machine, root: Path, profile: Profile, rules: CompiledRules | None = None
) -> list[tuple[str, str, str]]:
    """Assert that the plan wants each value that the rules write. Return these values."""
    rules = rules or compile_rules(profile, Site())
    rows = {(row.target, row.setting): row for row in make.make_plan(machine, profile).rows}
    names = {SETTINGS[name].path: name for name in rules.settings}
    values = []
    for endpoint in (*tuned(machine), *maps(machine)):
        done = event(root, endpoint, rules)
        # Without the mark, hbatune does not look for what the rules have saved (facts/udev.py).
        assert SEEN_PROPERTY in done.recorded or not (done.saved_values or done.written)
        for path, value in done.written.items():
            row = rows.get((endpoint.target, names[path]))
            assert row is not None, (endpoint.target, path, value)
            values.append((endpoint.target, names[path], value))
            if at_most(row, endpoint, value):
                continue
            assert str(row.value) == value, row
            reset = {
                name
                for written_path in done.written
                for name in SETTINGS[names[written_path]].resets
            }
            assert row.state is State.DRIFT or row.setting in reset, row
    return values


@pytest.mark.parametrize("name", sorted(ALL))
@pytest.mark.parametrize("profile", PROFILES)
def test_shipped_rules_match_plan(name: str, profile: str, surveyed: Survey) -> None:
    described = surveyed(name)
    agree(described.machine, described.root, shipped_profile(profile), shipped_rules(profile))


def choose_up_to_two(*values: object) -> st.SearchStrategy[list[object]]:
    """Return a strategy for lists of at most two of the values."""
    return st.lists(st.sampled_from(values), max_size=2, unique=True)


WHEN = st.fixed_dictionaries(
    {},
    optional={
        "family": choose_up_to_two(
            "mpt3sas", "mpi3mr", "megaraid_sas", "nvme", "ipr", "scsi_debug", "nobody's"
        ),
        "protocol": choose_up_to_two(*map(str, Protocol)),
        "medium": choose_up_to_two(*map(str, Medium)),
        "kind": choose_up_to_two(*map(str, Kind)),
        "multipath": choose_up_to_two(*map(str, Multipath)),
        "vendor": choose_up_to_two("SEA*", "ATA", "*", "A?A", "[A-S]*", "NVMe", "DE|LL", "LS*"),
        "model": choose_up_to_two("ST*", "*0*", "MODEL", "?*", "QEMU*", "M[OZ]*", "x"),
        "tri_mode": st.booleans(),
        "link": st.one_of(
            st.just({}),
            st.fixed_dictionaries({"gen": st.lists(st.sampled_from([1, 3, 4]), min_size=1)}),
            st.fixed_dictionaries({"width": st.lists(st.sampled_from([4, 8, 16]), min_size=1)}),
        ),
    },
).map(lambda when: msgspec.convert({k: v for k, v in when.items() if v not in ([], {})}, Match))

CHANGES: st.SearchStrategy[tuple[str, Effect]] = st.sampled_from(
    [
        *(("scheduler", Exactly(name)) for name in ("none", "mq-deadline", "kyber")),
        *(("nr_requests", Exactly(number)) for number in (64, 256, 2048)),
        *(("queue_depth", AtLeast(number)) for number in (4, 64, 128, 300)),
        ("queue_depth", Exactly(96)),
        ("nomerges", Exactly(2)),
        ("add_random", Exactly(1)),
        ("iostats", Exactly(0)),
        ("nomerges", AtLeast(1)),
        ("rq_affinity", Exactly(2)),
        ("read_ahead_kb", Exactly(130)),
        ("wbt_lat_usec", Exactly(0)),
        ("max_sectors_kb", Exactly(512)),
        *((name, Leave()) for name in ("scheduler", "nr_requests", "queue_depth", "nomerges")),
    ]
)


DEEP: tuple[Match, tuple[str, Effect]] = (Match(), ("queue_depth", AtLeast(300)))


def build_profile(rules: list[tuple[Match, tuple[str, Effect]]]) -> Profile:
    """Build a profile from the rules."""
    listed = tuple(
        Rule(f"rule-{number}", when, setting, effect, "because", "site", "x.toml")
        for number, (when, (setting, effect)) in enumerate(rules)
    )
    return Profile("any", "Any", Origin.SITE, listed, (), ProbeSpec(), ())


@given(
    rules=st.lists(st.tuples(WHEN, CHANGES), min_size=1, max_size=6),
    name=st.sampled_from(sorted(ALL)),
)
@example(rules=[(Match(), ("max_sectors_kb", Exactly(512)))], name="ipr")  # which takes 256 at most
@example(rules=[(Match(), ("max_sectors_kb", Exactly(512)))], name="multipath")  # below a stack
@settings(
    max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_random_site_rules_match_plan(
    rules: list[tuple[Match, tuple[str, Effect]]], name: str, surveyed: Survey
) -> None:
    described = surveyed(name)
    agree(described.machine, described.root, build_profile(rules))


LEFT = {
    "aacraid": {("sdc", "nr_requests")},
    "ipr": {("sdb", "nr_requests"), ("sdb", "queue_depth"), ("sda", "queue_depth")},
    "lab": {("sdc", "queue_depth")},
    "megaraid_sas": {("sdc", "queue_depth")},
    "mpi3mr": {("sda", "queue_depth"), ("sdd", "queue_depth")},
    "mpi3mr_flat": {("sda", "nr_requests"), ("sda", "queue_depth"), ("sdc", "queue_depth")},
    "perc_h755n": {("sda", "queue_depth")},
    "reserved_tags": {("sda", "queue_depth")},
}
"""What the plan would change and udev does not: SAS drives that only page 83h identifies, and
depths that depend on the drive or the firmware."""
LEFT |= dict.fromkeys(("ipr_57b5", "ipr_57c4", "ipr_gen1"), LEFT["ipr"])


@pytest.mark.parametrize("name", sorted(ALL))
def test_udev_sets_every_settable_value(name: str, surveyed: Survey) -> None:
    described, profile = surveyed(name), shipped_profile("throughput")
    rules = shipped_rules("throughput")
    rows = {
        (row.target, row.setting): row
        for row in make.make_plan(described.machine, profile).rows
        if row.state is State.DRIFT and row.setting in rules.settings
    }
    missing = set()
    for endpoint in tuned(described.machine):
        done = event(described.root, endpoint, rules) if endpoint.kind is Kind.DISK else None
        scheduler = rows.get((endpoint.target, "scheduler"))
        for setting in rules.settings:
            # A switch to no scheduler brings the whole tag set by itself.
            follows = setting == "nr_requests" and scheduler and scheduler.value == "none"
            wanted = done is not None and not follows and (endpoint.target, setting) in rows
            if wanted and done is not None and SETTINGS[setting].path not in done.written:
                missing.add((endpoint.target, setting))
    assert missing == LEFT.get(name, set())


@pytest.mark.parametrize("name", ["hpsa", "lab", "mpi3mr", "mpt3sas", "mptspi"])
def test_depth_of_earlier_rule_stays(
    name: str, built: Callable[[Described], Path], surveyed: Survey
) -> None:
    """An administrator's udev rule has lowered it before: only equal disks could show that."""
    root, rules = built(ALL[name]()), compile_rules(build_profile([DEEP]), Site())
    disks = [disk for disk in tuned(surveyed(name).machine) if disk.kind is Kind.DISK]
    for disk in disks:
        path = (root / "sys/class/block" / disk.target).resolve() / "device/queue_depth"
        path.write_text("20\n")
    assert disks
    assert not any(event(root, disk, rules).written for disk in disks)


@pytest.mark.parametrize(
    ("schedulers", "is_kept"), [("[mq-deadline] none\n", True), ("mq-deadline [none]\n", False)]
)
def test_requests_of_earlier_rule_stay(
    schedulers: str, is_kept: bool, built: Callable[[Described], Path], surveyed: Survey
) -> None:
    """A switch of the scheduler discards the number in any case."""
    root, rules = built(ALL["mpt3sas"]()), shipped_rules("throughput")
    disks = [disk for disk in tuned(surveyed("mpt3sas").machine) if disk.kind is Kind.DISK]
    numbers = []
    for disk in disks:
        queue = (root / "sys/class/block" / disk.target).resolve() / "queue"
        (queue / "scheduler").write_text(schedulers)
        (queue / "nr_requests").write_text("64\n")
        numbers.append(event(root, disk, rules).written.get("queue/nr_requests"))
    assert ("2048" not in numbers) is is_kept


def test_uncertain_scheduler_defers_nr_requests(surveyed: Survey) -> None:
    """Without a scheduler nr_requests is the adapter's tag set, which nobody may lower."""
    odd = msgspec.convert({"link": {"gen": [1]}}, Match)
    rules = [(Match(), ("scheduler", Exactly("none"))), (odd, ("scheduler", Exactly("none")))]
    described = surveyed("aacraid")
    assert (
        agree(
            described.machine,
            described.root,
            build_profile([*rules, (Match(), ("nr_requests", Exactly(64)))]),
        )
        == []
    )


@pytest.mark.parametrize("name", sorted(ALL))
def test_any_excluded_name_skips_disk(name: str, surveyed: Survey) -> None:
    described, profile = surveyed(name), shipped_profile("throughput")
    for endpoint in tuned(described.machine):
        for endpoint_name in list_endpoint_names(endpoint):
            done = event(
                described.root, endpoint, compile_rules(profile, Site(exclude=(endpoint_name,)))
            )
            assert not done.written, endpoint_name
        done = event(
            described.root, endpoint, compile_rules(profile, Site(), excluded=(endpoint.id,))
        )
        assert not done.written
        rows = [
            RevertedValue(endpoint.id, setting, 2048) for setting in ("nr_requests", "scheduler")
        ]
        done = event(described.root, endpoint, compile_rules(profile, Site(), reverted=rows))
        assert not done.written.keys() & {"queue/nr_requests", "queue/scheduler"}


@pytest.mark.parametrize("name", sorted(ALL))
def test_exclusions_match_case_and_links(name: str, surveyed: Survey) -> None:
    described, profile = surveyed(name), shipped_profile("throughput")
    mine = compile_rules(profile, Site(exclude=("/dev/oracle/asm1",)))
    for endpoint in tuned(described.machine):
        stable = extract_stable_part(endpoint.id)
        if stable.startswith(("naa.", "eui.")):
            for written_name in (stable.upper(), f"wwn-0x{stable[4:].upper()}"):
                for spelled in (
                    written_name,
                    f"{written_name}@{endpoint.id.rpartition('@')[2].upper()}",
                ):
                    rules = compile_rules(profile, Site(exclude=(spelled,)))
                    assert not event(described.root, endpoint, rules).written, spelled
        assert not event(described.root, endpoint, mine, SYMLINK="disk/x oracle/asm1").written
        with_other_link = event(
            described.root, endpoint, mine, SYMLINK="disk/x oracle/asm2"
        ).written
        without = event(described.root, endpoint, shipped_rules("throughput")).written
        assert with_other_link == without


OF_MAPS = (msgspec.convert({"kind": ["map"]}, Match), ("read_ahead_kb", Exactly(512)))
A_MAP = "multipath"


def test_map_is_set_at_activation(surveyed: Survey) -> None:
    described, profile = surveyed(A_MAP), build_profile([OF_MAPS])
    [joined, *_] = maps(described.machine)
    rules = compile_rules(profile, Site())
    assert event(described.root, joined, rules).written == {"queue/read_ahead_kb": "512"}
    from_initramfs = event(described.root, joined, rules, ACTION="add")
    assert from_initramfs.written == {"queue/read_ahead_kb": "512"}
    for plain in ({"DM_ACTIVATION": "0"}, {"ACTION": "remove"}, {"DM_UUID": "LVM-1"}):
        done = event(described.root, joined, rules, **plain)
        assert not done.written, plain
    saved_values = {"HBATUNE_WAS_READ_AHEAD_KB": "64"}
    properties = {"ACTION": "change", "DEVTYPE": "disk"}
    assert (
        Event(described.root, joined.target, properties, saved_values).run(rules).saved_values
        == saved_values
    )


def test_table_reload_resets_only_limits(
    surveyed: Survey,
) -> None:
    """An administrator's value that the load leaves as it is stays as it is, too."""
    merges = (msgspec.convert({"kind": ["map"]}, Match), ("nomerges", Exactly(2)))
    described, profile = surveyed(A_MAP), build_profile([OF_MAPS, merges])
    [joined, *_] = maps(described.machine)
    rules = compile_rules(profile, Site())
    first = event(described.root, joined, rules, DISKSEQ="9")
    assert first.written == {"queue/read_ahead_kb": "512", "queue/nomerges": "2"}

    def later(**properties: str) -> Event:
        event_properties = {
            "ACTION": "change",
            "DEVTYPE": "disk",
            "DISKSEQ": "9",
            "DM_ACTIVATION": "1",
        }
        event_properties |= {"DM_UUID": "mpath-1", **properties}
        return Event(described.root, joined.target, event_properties, first.recorded).run(rules)

    assert later().written == {"queue/read_ahead_kb": "512"}
    assert later().recorded == first.recorded
    for same in (later(ACTION="add"), later(DM_ACTION="PATH_REINSTATED")):
        assert not same.written
        assert same.recorded == first.recorded


def test_repeated_add_tunes_once(surveyed: Survey) -> None:
    """As by `udevadm trigger --action=add`, or when systemd-udev-trigger is restarted."""
    described = surveyed("megaraid_sas")
    [first, *_] = tuned(described.machine)
    rules = shipped_rules("oltp")
    appeared = event(described.root, first, rules, DISKSEQ="17")
    assert appeared.written
    assert appeared.recorded["HBATUNE_SEEN"] == "17"
    properties = {"ACTION": "add", "DEVTYPE": "disk", "DISKSEQ": "17"}
    again = Event(described.root, first.target, dict(properties), appeared.recorded).run(rules)
    assert not again.written
    assert again.recorded == appeared.recorded
    removal = {**properties, "ACTION": "remove"}
    removed = Event(described.root, first.target, removal, again.recorded).run(rules)
    back = {**properties, "DISKSEQ": "18"}
    assert Event(described.root, first.target, back, removed.recorded).run(rules).written


def test_initramfs_disk_is_new(surveyed: Survey) -> None:
    described = surveyed("megaraid_sas")
    [first, *_] = tuned(described.machine)
    properties = {"ACTION": "add", "DEVTYPE": "disk", "DISKSEQ": "17"}
    rules = shipped_rules("oltp")
    database = {"ID_SERIAL": "of the initramfs"}
    assert Event(described.root, first.target, properties, database).run(rules).written


def test_unnumbered_disk_tuned_once(
    surveyed: Survey,
) -> None:
    described = surveyed("megaraid_sas")
    [first, *_] = tuned(described.machine)
    rules = shipped_rules("oltp")
    appeared = event(described.root, first, rules)
    assert appeared.written
    properties = {"ACTION": "add", "DEVTYPE": "disk"}
    assert not Event(described.root, first.target, properties, appeared.recorded).run(rules).written


def test_marked_disk_is_skipped(built: Callable[[Described], Path], surveyed: Survey) -> None:
    name = "megaraid_sas"
    [first, *_] = tuned(surveyed(name).machine)
    root, rules = built(ALL[name]()), shipped_rules("oltp")
    mark = root / Paths.seen.relative_to("/") / "17"
    mark.parent.mkdir(parents=True)
    mark.touch()
    try:
        assert not event(root, first, rules, DISKSEQ="17").written
        assert event(root, first, rules, DISKSEQ="1").written
        assert event(root, first, rules).written, "without a number it asks for no folder"
    finally:
        mark.unlink()


def test_any_exclusion_defers_maps(surveyed: Survey) -> None:
    described, profile = surveyed(A_MAP), build_profile([OF_MAPS])
    [joined, *_] = maps(described.machine)
    for rules in (
        compile_rules(profile, Site(exclude=(joined.target,))),
        compile_rules(profile, Site(), excluded=(joined.id,)),
        compile_rules(profile, Site(), reverted=[RevertedValue(joined.id, "read_ahead_kb", 512)]),
    ):
        assert not event(described.root, joined, rules).written
        assert [setting for setting, why in rules.left if "maps" in why] == [
            "read_ahead_kb (rule-0)"
        ]


@pytest.mark.parametrize("action", ["change", "remove", "move", "bind"])
def test_only_add_event_writes(action: str, surveyed: Survey) -> None:
    described = surveyed("megaraid_sas")
    [first, *_] = tuned(described.machine)
    rules = shipped_rules("oltp")
    saved_values = {"HBATUNE_WAS_NR_REQUESTS": "64"}
    properties = {"ACTION": action, "DEVTYPE": "disk"}
    done = Event(described.root, first.target, properties, saved_values).run(rules)
    assert not done.written
    assert done.saved_values == ({} if action == "remove" else saved_values)


def test_first_saved_value_stays(surveyed: Survey) -> None:
    described = surveyed("megaraid_sas")
    [first, *_] = tuned(described.machine)
    rules = shipped_rules("oltp")
    properties = {"ACTION": "add", "DEVTYPE": "disk"}
    done = Event(described.root, first.target, properties, {"HBATUNE_WAS_NR_REQUESTS": "64"}).run(
        rules
    )
    assert done.written
    assert done.saved_values["HBATUNE_WAS_NR_REQUESTS"] == "64"


def test_rules_start_one_process() -> None:
    """A thousand disks that appear at once are no more than a thousand processes."""
    for name in ("oltp", "throughput", "latency", "balanced"):
        rules_text = format_rules(shipped_rules(name))
        assert "target_port_protocols" in rules_text
        assert re.findall(r"PROGRAM|RUN|IMPORT\{(?!db\})", rules_text) == ["PROGRAM"]


def read_settings(root: Path, disk: str) -> dict[str, str]:
    """Return the texts of the disk's settings, by path."""
    directory = (root / "sys/class/block" / disk).resolve()
    files = {setting.path: directory / setting.path for setting in SETTINGS.values()}
    return {path: file.read_text().strip() for path, file in files.items() if file.is_file()}


def make_idle(root: Path) -> None:
    """Give all SCSI disks of a tree the attributes that show udev an idle disk."""
    for disk in (root / "sys/class/block").iterdir():
        if (disk / "device/queue_depth").exists():
            (disk / "inflight").write_text("       0        0\n")
            (disk / "device/device_busy").write_text("0\n")
            (disk / "device/state").write_text("running\n")


@pytest.mark.parametrize("name", sorted(ALL))
def test_idle_disks_get_same_values(name: str, built: Callable[[Described], Path]) -> None:
    root = built(ALL[name]())
    rules = shipped_rules("oltp")
    disks = sorted(path.name for path in (root / "sys/class/block").iterdir())
    outcomes = []
    for prepare in (lambda root: None, make_idle):
        prepare(root)
        events = [
            Event(root, disk, {"ACTION": "add", "DEVTYPE": "disk"}).run(rules) for disk in disks
        ]
        outcomes.append([(event.written, event.recorded) for event in events])
    assert outcomes[0] == outcomes[1]


def test_idle_disk_needs_no_program(built: Callable[[Described], Path]) -> None:
    root = built(ALL["lab"]())
    changes = (("scheduler", Exactly("kyber")), ("nr_requests", Exactly(2048)))
    rules = compile_rules(build_profile([(Match(), change) for change in changes]), Site())
    properties = {"ACTION": "add", "DEVTYPE": "disk"}
    assert Event(root, "sda", dict(properties)).run(rules).programs == 1
    make_idle(root)
    done = Event(root, "sda", properties).run(rules)
    assert (done.programs, done.written["queue/nr_requests"]) == (0, "2048")


@pytest.mark.skipif(not has_udev(), reason="needs udev, in a version whose test mode starts it")
@pytest.mark.parametrize("is_idle", [False, True])
@pytest.mark.parametrize("name", sorted(ALL))
def test_real_udev_agrees(
    name: str, is_idle: bool, surveyed: Survey, built: Callable[[Described], Path]
) -> None:
    described, rules = surveyed(name), shipped_rules("oltp")
    root = built(ALL[name]())
    if is_idle:
        make_idle(root)
    for endpoint in described.machine.endpoints:
        if endpoint.kind is Kind.DISK and endpoint.device_node is not None:
            done = event(described.root, endpoint, rules)
            before = read_settings(root, endpoint.target)
            output = real(root, format_rules(rules), endpoint.target)
            assert re.search(r"rules:\d+ (?!Running PROGRAM )", output) is None, output
            after = read_settings(root, endpoint.target)
            assert dict(after.items() - before.items()) == done.written, output
            assert "HBATUNE_UNSET" not in output
            saved_values = dict(re.findall(r"^(HBATUNE_WAS_\w+)=(.*)$", output, re.MULTILINE))
            assert saved_values == done.saved_values
