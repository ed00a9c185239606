"""`hbatune compare`: what differs between two hosts, and what matters first."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hbatune.cli import main
from hbatune.facts.health import LOG_COUNTER_PREFIX
from hbatune.fleet.compared_facts import Difference, compare_hosts
from hbatune.snapshot.file import Snapshot, encode_snapshot
from tests.documented import validate
from tests.unit import machines as factory
from tests.unit.check_inputs import disk_health
from tests.unit.fleets import depth, host

Capture = pytest.CaptureFixture[str]


def another(number: int, **changed: Any) -> Snapshot:
    """Return the snapshot of a host with its own boot id."""
    base = host(number, **changed)
    return replace(base, machine=replace(base.machine, boot_id=f"boot-{number}"))


def list_differences(
    differences: tuple[Difference, ...],
) -> list[tuple[str, list[object], list[object]]]:
    return [
        (
            difference.what,
            [value.value for value in difference.first],
            [value.value for value in difference.second],
        )
        for difference in differences
    ]


def test_link_and_firmware_come_first() -> None:
    slow = another(
        17, adapter={"link": factory.link(width=4), "firmware": "15.00.00.00"}, **depth(32)
    )
    slow = replace(slow, machine=replace(slow.machine, kernel="6.12.9", cpus=4))
    assert list_differences(compare_hosts(another(16), slow).differences) == [
        ("link width", [8], [4]),
        ("firmware", ["16.00.12.00"], ["15.00.00.00"]),
        ("queue_depth", [254], [32]),
        ("kernel", ["6.1.0-56-amd64"], ["6.12.9"]),
        ("CPUs", [8], [4]),
    ]


def test_identities_are_no_difference() -> None:
    comparison = compare_hosts(another(16), another(17))
    assert comparison.differences == ()
    assert comparison.same > 10


def test_surplus_adapter_is_difference() -> None:
    more = another(17)
    adapters = (
        *more.machine.adapters,
        factory.adapter(target="0000:81:00.0", product="HBA 9500-8i", firmware="28.00"),
    )
    more = replace(more, machine=replace(more.machine, adapters=adapters))
    [difference] = compare_hosts(another(16), more).differences
    assert (difference.subject, difference.what, difference.first) == (
        "HBA 9500-8i",
        "adapters",
        (),
    )


def test_different_models_are_compared() -> None:
    other_model = another(17, model="HUSMR1619ASS204", vendor="HGST", **depth(64))
    assert list_differences(compare_hosts(another(16), other_model).differences) == [
        ("queue_depth", [254], [64]),
        ("model", ["SEAGATE XS400ME70084"], ["HGST HUSMR1619ASS204"]),
    ]


def failing(healthy: Snapshot, timeouts: int) -> Snapshot:
    disks = {"sda": disk_health(timeouts=timeouts, logged={"reset": 9, "medium": timeouts})}
    return replace(healthy, health=replace(healthy.health, disks=disks))


def test_failures_precede_versions() -> None:
    bad = failing(another(17, adapter={"firmware": "15"}), 5)
    assert list_differences(compare_hosts(another(16), bad).differences) == [
        ("timeouts", [0], [5]),
        (f"{LOG_COUNTER_PREFIX}medium", [0], [5]),
        ("firmware", ["16.00.12.00"], ["15"]),
        (f"{LOG_COUNTER_PREFIX}reset", [0], [9]),
    ]


def test_same_boot_compares_increases() -> None:
    before = failing(another(16), 5)
    later = replace(failing(another(16), 5), taken=before.taken + 3600)
    assert compare_hosts(before, later).differences == ()
    worse = replace(failing(another(16), 7), taken=before.taken + 3600)
    comparison = compare_hosts(before, worse)
    assert (comparison.one_host, comparison.one_boot) == (True, True)
    assert ("timeouts", [0], [2]) in list_differences(comparison.differences)


def save(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize(
    ("seconds", "heading"),
    [
        (120, r" \S+ \d\d:\d\d +\S+ \d\d:\d\d "),
        (2, r" \S+ \d\d:\d\d:\d1 +\S+ \d\d:\d\d:\d3 "),
        (0, r" \S+/before.snap +\S+/after.snap "),
    ],
)
def test_snapshots_of_one_host_have_different_headings(
    seconds: int, heading: str, tmp_path: Path, capsys: Capture
) -> None:
    before = replace(another(16), taken=1_800_000_001)
    after = replace(another(16, adapter={"link": factory.link(width=4)}), taken=before.taken)
    first = save(tmp_path / "before.snap", encode_snapshot(before))
    after = replace(after, taken=before.taken + seconds)
    assert main(["compare", first, save(tmp_path / "after.snap", encode_snapshot(after))]) == 1
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("WHAT")]
    assert re.search(heading, line), line


def test_compare_prints_table_and_json(tmp_path: Path, capsys: Capture) -> None:
    first_file = save(tmp_path / "db16.snap", encode_snapshot(another(16)))
    slow = another(17, adapter={"link": factory.link(width=4)})
    second_file = save(tmp_path / "db17.snap", encode_snapshot(slow))
    assert main(["compare", first_file, second_file]) == 1
    out = capsys.readouterr().out
    assert re.search(r"^link width +8 +4 +HBA 9300-8i; a ceiling .* \(D4-9\)$", out, re.M), out
    assert out.splitlines()[-1].startswith("db16 and db17: 1 difference, ")
    assert main(["compare", "--json", first_file, second_file]) == 1
    document = json.loads(capsys.readouterr().out)
    validate(document)
    assert document["differences"][0]["what"] == "link width"
    assert main(["compare", first_file, first_file]) == 0
    assert ": 0 differences, " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.snap", "x"], "'nowhere.snap': cannot be read: No such file or directory"),
        ([], "FIRST"),
    ],
)
def test_bad_usage_exits_2(words: list[str], message: str, capsys: Capture) -> None:
    assert main(["compare", *words]) == 2
    assert message in capsys.readouterr().err


def test_hostile_names_are_escaped(tmp_path: Path, capsys: Capture) -> None:
    evil = another(17, adapter={"firmware": "\x1b[31mred\x07"})
    evil = replace(evil, machine=replace(evil.machine, hostname="\x1b]0;title\x07"))
    first_file = save(tmp_path / "1.snap", encode_snapshot(another(16)))
    main(["compare", first_file, save(tmp_path / "2.snap", encode_snapshot(evil))])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\\x1b[31mred\\x07" in out
