"""A profile as udev rules: exact or left to the daemon, and nobody's name becomes more than text.

That they agree with the plan is shown on described machines (tests/hosts/test_boot_rules.py).
"""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given

from hbatune.act.paths import Paths
from hbatune.boot.compile import CompiledRules, compile_rules, format_rules
from hbatune.boot.conditions import build_condition
from hbatune.plan.rows import RevertedValue
from hbatune.policy.config import LimitScope, Site, SiteArray
from hbatune.policy.profile import AtLeast, Effect, Exactly, Match, Profile, Rule
from hbatune.settings.table import parse_saved_values
from tests.unit.hostile_names import hostile
from tests.unit.profiles import profile
from tests.unit.site_folder import SiteFolder

# What udev reads as one part of a rule: no other form leaves the quotation marks.
PART = r'[A-Z]+(\{([A-Za-z0-9_./-]|\$(id|kernel)/)+\})?(==|!=|=)"[ !#-\[\]-~]*"'
RULE = re.compile(rf"{PART}(, {PART})*")


def ruled(effect: Effect, setting: str = "nomerges", **when: Any) -> Profile:
    """Return a profile of one rule."""
    base_profile = profile((setting, effect))
    [rule] = base_profile.rules
    return msgspec.structs.replace(
        base_profile, rules=(msgspec.structs.replace(rule, when=msgspec.convert(when, Match)),)
    )


def lines(rules: CompiledRules) -> list[str]:
    """Return the rules without their comments."""
    return [line for line in format_rules(rules).split("\n") if line and not line.startswith("#")]


def part(rules: CompiledRules, title: str) -> list[str]:
    """Return the lines of the section whose title starts with ``title``."""
    sections = format_rules(rules).split("\n\n")
    [section] = [text for text in sections if text.startswith(f"# {title}")]
    return [line for line in section.splitlines() if not line.startswith("#")]


def find_program(rules: CompiledRules) -> tuple[int, list[str]]:
    """Return the number of the line that starts the program, and the program's words."""
    [found] = [
        (number, match[1].split())
        for number, line in enumerate(lines(rules))
        if (match := re.match(r'PROGRAM=="([^"]+)", ENV{HBATUNE_UNSET}="\$result"$', line))
    ]
    return found


def test_shipped_profiles_compile_to_rules(site: SiteFolder) -> None:
    rules = compile_rules(site.load("oltp"), Site())
    assert all(RULE.fullmatch(line) for line in lines(rules))
    ssd = ', ENV{.HBATUNE_MEDIUM}=="ssd", ENV{.HBATUNE_QUEUE_DEPTH}='
    assert part(rules, "sas-ssd-depth") == [
        f'ENV{{.HBATUNE_PROTOCOL}}=="sas|sas+volume"{ssd}""',
        f'ENV{{.HBATUNE_PROTOCOL}}=="sas"{ssd}"64"',
    ]
    assert part(rules, "fabric-scheduler") == [
        'ENV{.HBATUNE_PROTOCOL}=="fc|iscsi", ENV{.HBATUNE_SCHEDULER}="", '
        'ENV{.HBATUNE_SCHEDULER_LEFT}="0"'
    ]
    assert part(rules, "Only as a disk appears") == [
        'ACTION!="add", GOTO="hbatune_end"',
        'ENV{.HBATUNE_KNOWN}=="1", GOTO="hbatune_end"',
        'ENV{HBATUNE_SEEN}="$env{DISKSEQ}"',
        'ENV{HBATUNE_SEEN}=="", ENV{HBATUNE_SEEN}="unnumbered"',
    ]


def test_writes_are_ordered_after_saves(site: SiteFolder) -> None:
    rules = compile_rules(site.load("throughput"), Site())
    position, words = find_program(rules)
    assert words == [
        "/bin/sh",
        str(Paths.udev_writer),
        "$sys$devpath",
        "bracketed:queue/scheduler:$env{.HBATUNE_SCHEDULER}:",
        "lower:device/queue_depth:$env{.HBATUNE_QUEUE_DEPTH}:",
        "scheduled:queue/nr_requests:$env{.HBATUNE_NR_REQUESTS}:",
    ]
    saving = [number for number, line in enumerate(lines(rules)) if '="$attr{' in line]
    assert max(saving) < position


def test_failed_start_is_recorded(site: SiteFolder) -> None:
    rules = compile_rules(site.load("oltp"), Site())
    position, _ = find_program(rules)
    assert lines(rules)[position - 1] == 'ENV{HBATUNE_UNSET}="unstarted"'


def test_undecided_scheduler_defers_nr_requests(site: SiteFolder) -> None:
    rules = compile_rules(site.load("oltp"), Site())
    undecided = 'ENV{.HBATUNE_SCHEDULER}=="", ENV{.HBATUNE_SCHEDULER_LEFT}=="1", '
    assert f'{undecided}ENV{{.HBATUNE_NR_REQUESTS}}=""' in lines(rules)


def test_nr_requests_saves_async_depth(site: SiteFolder) -> None:
    rule_lines = lines(compile_rules(site.load("oltp"), Site()))
    for path in ("queue/async_depth", "queue/iosched/async_depth"):  # newer kernels, older ones
        save = f'ENV{{HBATUNE_WAS_ASYNC_DEPTH}}="$attr{{{path}}}"'
        assert any(line.endswith(save) and "NR_REQUESTS" in line for line in rule_lines)


def test_saved_async_depth_is_baseline_with_scheduler() -> None:
    saved = {"ASYNC_DEPTH": "256", "NR_REQUESTS": "256"}
    baselines = {"nr_requests": 256, "async_depth": 256, "scheduler": "mq-deadline"}
    assert parse_saved_values({**saved, "SCHEDULER": "none _mq-deadline_"}) == baselines
    assert "async_depth" not in parse_saved_values({**saved, "SCHEDULER": "_none_ mq-deadline"})


def test_saved_values_survive_every_event(site: SiteFolder) -> None:
    for name in ("oltp", "balanced"):
        rule_lines = lines(compile_rules(site.load(name), Site()))
        import_index = rule_lines.index('IMPORT{db}=="HBATUNE_WAS_QUEUE_DEPTH"')
        assert import_index < rule_lines.index('ACTION!="add", GOTO="hbatune_end"')
        assert rule_lines.index('IMPORT{db}=="HBATUNE_SEEN"') < import_index


def test_rules_skip_initramfs(site: SiteFolder) -> None:
    rule_lines = lines(compile_rules(site.load(), Site()))
    assert 'TEST=="/etc/initrd-release", GOTO="hbatune_end"' in rule_lines[:6]


def test_read_ahead_is_written_last() -> None:
    base_profile = profile(("read_ahead_kb", Exactly(131)), ("max_sectors_kb", Exactly(64)))
    rules = compile_rules(base_profile, Site())
    assert find_program(rules)[1][-2:] == [
        "different:queue/max_sectors_kb:$env{.HBATUNE_MAX_SECTORS_KB}:queue/max_hw_sectors_kb",
        "different:queue/read_ahead_kb:$env{.HBATUNE_READ_AHEAD_KB}:",
    ]
    # Rounded like the kernel does.
    assert 'ENV{.HBATUNE_READ_AHEAD_KB}="128"' in format_rules(rules)


@pytest.mark.parametrize(
    ("when", "exact"),
    [
        ({"protocol": ["sata"], "medium": ["ssd"]}, True),
        ({"protocol": ["sas", "volume"]}, True),
        ({"protocol": ["sas"], "medium": ["ssd"]}, False),  # behind MegaRAID perhaps a volume
        ({"tri_mode": True}, True),
        ({"rotational": True}, True),
        ({"vendor": ["SEAGATE"], "model": ["ST*", "HU?"]}, True),
        ({"vendor": ["*"]}, True),
        ({"kind": ["disk"], "multipath": ["none"]}, True),
        ({"family": ["mpt3sas"]}, False),  # a driver without a family may be any
        ({"use": ["zfs"]}, False),  # it gets it later
        ({"link": {"gen": [3]}}, False),
        ({"model": ["ST[0-9]*"]}, False),
        ({"model": ["A|B"]}, False),
        ({"model": ["ends in a blank "]}, False),
        ({"model": ["back\\slash"]}, False),
        ({"model": ['quo"te']}, False),
        ({"model": ["Größe"]}, False),
        ({"model": ["{new}line\n"]}, False),
    ],
)
def test_conditions_report_exactness(when: dict[str, Any], exact: bool) -> None:
    assert build_condition(msgspec.convert(when, Match)).exact is exact
    daemon_settings = dict(compile_rules(ruled(Exactly(2), **when), Site()).left)
    assert ("nomerges (rule-0)" in daemon_settings) is not exact


@pytest.mark.parametrize("when", [{"kind": ["path"]}, {"kind": ["map"], "multipath": ["nvme"]}])
def test_map_paths_need_daemon(when: dict[str, Any]) -> None:
    rules = compile_rules(ruled(Exactly(2), **when), Site())
    assert rules.settings == {}
    assert rules.left == (("nomerges (rule-0)", "is for maps and their paths"),)


@pytest.mark.parametrize("when", [{"kind": ["map"]}, {"multipath": ["dm"]}])
def test_only_pure_map_rules_compile(when: dict[str, Any]) -> None:
    alone = compile_rules(ruled(Exactly(2), kind=["map"], multipath=["dm"]), Site())
    assert (alone.settings, alone.left) == ({"nomerges": ("2",)}, ())
    rules = compile_rules(ruled(Exactly(2), **when), Site())
    assert list(rules.settings) == ["nomerges"]
    assert rules.left == (("nomerges (rule-0)", "is for more than dm-multipath maps"),)


def test_inexact_condition_clears_setting() -> None:
    base_profile = profile(("nomerges", Exactly(2)))
    [first] = base_profile.rules
    second = Rule("odd", Match(model=("ST[0-9]*",)), "nomerges", Exactly(0), "b", "site", "x.toml")
    rules = compile_rules(msgspec.structs.replace(base_profile, rules=(first, second)), Site())
    assert part(rules, "odd") == [
        'KERNEL=="sd*", ENV{.HBATUNE_NOMERGES}=""',
        'KERNEL=="nvme*", ENV{.HBATUNE_NOMERGES}=""',
    ]


def test_raise_only_nomerges_deferred() -> None:
    rules = compile_rules(profile(("nomerges", AtLeast(1))), Site())
    assert rules.settings == {}
    assert "lowered" in rules.left[0][1]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("sda", ['KERNELS=="sda"']),
        ("/dev/sda", ['KERNELS=="sda"']),
        ("0000:03:00.0", ['KERNELS=="0000:03:00.0"']),
        ("naa.500c", ['ATTR{device/wwid}=="*.500[cC]"', 'ATTR{wwid}=="*.500[cC]"']),
        ("EUI.500C", ['ATTR{device/wwid}=="*.500[cC]"', 'ATTR{wwid}=="*.500[cC]"']),
        (
            "t10.T_1",
            ['ATTR{device/wwid}=="[tT]10.[tT]*1"', 'ATTR{wwid}=="[tT]10.[tT]*1"'],
        ),
        (
            "NAA.5@0000:01:00.0/sas-0x50-lun-0",
            [
                'ATTR{device/wwid}=="*.5", KERNELS=="0000:01:00.0"',
                'ATTR{wwid}=="*.5", KERNELS=="0000:01:00.0"',
            ],
        ),
        (
            "naa.5@iscsi/iscsi-iqn.a:b-lun-1",
            ['ATTR{device/wwid}=="*.5"', 'ATTR{wwid}=="*.5"'],
        ),
        (
            "x@0000:01:00.0/scsi-0:1:2",
            [
                'ATTR{device/wwid}=="*.[xX]", KERNELS=="0000:01:00.0"',
                'ATTR{wwid}=="*.[xX]", KERNELS=="0000:01:00.0"',
                'ENV{.HBATUNE_WWID}!="1", KERNELS=="0000:01:00.0"',
            ],
        ),
        (
            "/dev/disk/by-path/pci-0",
            ['KERNELS=="disk*by-path*pci-0"', 'SYMLINK=="disk/by-path/pci-0"'],
        ),
        (
            "/dev/disk/by-id/wwn-0x5000C500",
            [
                'ATTR{device/wwid}=="*.5000[cC]500"',
                'ATTR{wwid}=="*.5000[cC]500"',
                'KERNELS=="disk*by-id*wwn-0x5000C500"',
                'SYMLINK=="disk/by-id/wwn-0x5000C500"',
            ],
        ),
    ],
)
def test_site_exclusion_skips_device(name: str, lines: list[str], site: SiteFolder) -> None:
    rules = compile_rules(site.load(), Site(exclude=(name,)))
    assert part(rules, "Excluded") == [f'{line}, GOTO="hbatune_end"' for line in lines]


def test_unseen_name_excludes_without_wwid(
    site: SiteFolder,
) -> None:
    rules = compile_rules(site.load(), Site(exclude=("SEAGATE-ST12-Z1",)))
    assert part(rules, "Excluded")[-1] == 'ENV{.HBATUNE_WWID}!="1", GOTO="hbatune_end"'


def test_reverted_setting_is_skipped(site: SiteFolder) -> None:
    tried = RevertedValue("naa.5@0000:01:00.0/scsi-0:1:2", "nr_requests", 2048)
    rules = compile_rules(site.load(), Site(), reverted=(tried,))
    assert part(rules, "Tried") == [
        f'ATTR{{{path}}}=="naa.5", KERNELS=="0000:01:00.0", ENV{{.HBATUNE_NR_REQUESTS}}=""'
        for path in ("device/wwid", "wwid")
    ]


def test_site_array_depths_need_daemon(site: SiteFolder) -> None:
    array = SiteArray("a", 4, port_limit=1600, counting=LimitScope.LUN)
    rules = compile_rules(site.load(), Site(array=(array,), members={"sda": 5}))
    section_lines = part(rules, "Depths that only the daemon")
    assert 'ENV{.HBATUNE_STORAGE}=="array", ENV{.HBATUNE_QUEUE_DEPTH}=""' in section_lines
    assert 'ENV{.HBATUNE_PROTOCOL}=="*volume*", ENV{.HBATUNE_QUEUE_DEPTH}=""' in section_lines


def test_rules_raise_only_lower_initial_depths(site: SiteFolder) -> None:
    section_lines = part(compile_rules(site.load(), Site()), "Depths that only the daemon")
    flag = ".HBATUNE_INITIAL_DEPTH"
    assert section_lines[-1] == f'ENV{{{flag}}}!="1", ENV{{.HBATUNE_QUEUE_DEPTH}}=""'
    initial = {
        tuple(re.findall(r'=="([\w|]+)"', line))
        for line in section_lines
        if line.endswith(f'ENV{{{flag}}}="1"')
    }
    # Behind mpt3sas, SAS drives begin with 254 and NVMe drives with 128: no wish is higher.
    assert initial == {
        ("mpt3sas", "sata", "32", "128|64"),
        ("mptsas", "sas", "64", "128"),
        ("mptsas", "sata", "64", "128"),
    }


@given(hostile.filter(bool), hostile.filter(bool), hostile.filter(bool))
def test_hostile_names_stay_quoted(first: str, second: str, third: str) -> None:
    hostile_profile = ruled(Exactly(2), vendor=[first], model=[second, third])
    [rule] = hostile_profile.rules
    named = msgspec.structs.replace(rule, name=first, because=second, source=third)
    tried = (RevertedValue(f"{second}@{third}", "nomerges", 2),)
    rules = compile_rules(
        msgspec.structs.replace(hostile_profile, rules=(named,), name=third),
        Site(exclude=(first, f"{first}@{second}", f"naa.{third}")),
        excluded=(second, f"{second}/{third}"),
        reverted=tried,
    )
    text = format_rules(rules)
    assert all(line.isprintable() for line in text.split("\n"))
    assert all(RULE.fullmatch(line) for line in lines(rules)), text
    variables = r"\$attr\{queue/|\$env\{DISKSEQ\}|\$env\{\.HBATUNE_\w+\}|\$sys|\$devpath|\$kernel/"
    ours = re.compile(variables)
    ours_alone = '"$result"'
    substituted = [
        line for line in lines(rules) if "$" in ours.sub("", line.removesuffix(ours_alone))
    ]
    assert all("ATTRS{sas_device/$id/target_port_protocols}==" in line for line in substituted)


def test_exhausted_memory_defers_nr_requests() -> None:
    """udev sees one disk at a time and cannot add up what all of them take."""
    sas_profile = ruled(Exactly(2048), "nr_requests", protocol=["sas"])
    assert compile_rules(sas_profile, Site()).settings == {"nr_requests": ("2048",)}
    without = compile_rules(sas_profile, Site(), room=False)
    assert without.settings == {}
    assert any("memory of the requests" in why for _, why in without.left)


def test_hands_off_mark_stops_rules() -> None:
    section_lines = part(
        compile_rules(ruled(Exactly(1), protocol=["sas"]), Site()), "Hands off: everything"
    )
    assert section_lines == [
        f'TEST=="{mark}", GOTO="hbatune_end"' for mark in (Paths.hands_off, Paths.hands_off_now)
    ]


def test_disk_without_capacity_is_skipped() -> None:
    rules = compile_rules(ruled(Exactly(0)), Site())
    [line] = [line for line in part(rules, "Hands off: maps") if "{size}" in line]
    assert line == 'ATTR{size}=="0", GOTO="hbatune_end"'
