"""Readings and alerts of `watch` as lines of text and of JSON."""

import json
import math
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import pytest

from hbatune.facts.model import Kind
from hbatune.text import terminal
from hbatune.text.watch_view import (
    Picture,
    View,
    describe_alert,
    format_reading,
    format_screen,
    format_trend,
    keeps_order,
    make_json_printer,
    make_plain_printer,
    react_to_key,
    select_rows,
    sort_readings,
)
from hbatune.watch.alerts import AlertCondition
from hbatune.watch.readings import AdapterReading, Reading
from hbatune.watch.watch import Alert, AlertEvent, Watcher, WatchState
from tests.documented import validate
from tests.unit import watch_samples as watched
from tests.unit.machines import endpoint
from tests.unit.watch_samples import HBA, PLAIN, counted, every, sample, working


def stuck() -> Iterator[tuple[WatchState, tuple[AlertEvent, ...]]]:
    """Yield the states of a watched disk until its alert is raised and over again."""
    watcher = Watcher(PLAIN, watched.subjects())
    for reading in every(250, lambda at: sample(at, counted(in_flight=4))):
        yield watcher.tick(reading)
    for reading in every(200, sample, start=260):
        yield watcher.tick(reading)


def test_json_lines_match_schema(capsys: pytest.CaptureFixture[str]) -> None:
    show = make_json_printer("db1", {"path"})
    for state, events in stuck():
        show(state, events)
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for document in documents:
        validate(document)
    changes = [event["change"] for document in documents for event in document["events"]]
    assert changes == ["raised", "cleared"]
    assert {document["schema"] for document in documents} == {"hbatune.watch/1"}


def test_json_has_totals_without_paths(capsys: pytest.CaptureFixture[str]) -> None:
    disks = [busy("sda", 9.0), busy("sdb", 1.0), busy("dm-0", 0.5, objective_ms=None)]
    show = make_json_printer("db1", {"sdb"})
    show(WatchState(100.0, tuple(disks)), ())
    show(WatchState(102.0, tuple(disks[1:])), ())
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    validate(first)
    totals = first["totals"]
    assert (totals["disks"], totals["iops"], totals["over_goal"]) == (2, 2000.0, 1)
    assert (first["worst"], second["worst"]) == ("sda", None)


def test_piped_alerts_use_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show = make_plain_printer()
    for state, events in stuck():
        show(state, events)
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].split()[:3] == ["TIME", "TARGET", "IOPS"]
    assert len({len(line.rstrip()) for line in lines}) == 1
    assert ">10000" in out
    assert [line.split(": ")[1] for line in err.splitlines()] == ["alert", "alert ended"]


def test_mean_column_shows_mean() -> None:
    watcher = Watcher(PLAIN, watched.subjects())
    watcher.tick(sample(10, working(10, ms=2.0)))
    state, _ = watcher.tick(sample(20, working(20, ms=2.0)))
    assert format_reading(state.disks[0]) == [
        *("sda", "1000", "4.1", "2", "-", "-", "2", "2.0", "64", "50 %"),
    ]


@pytest.mark.parametrize(
    ("condition", "detail", "value", "text"),
    [
        ("p99", "sampled", 4.0, "p99 is 4 ms, sampled; the objective is a p99 of 0.85 ms"),
        ("p99", "mean", None, "no reliable p99; the mean is unknown ms; the objective"),
        ("p99", "least", 4.0, "nothing was done in 4 ms, and something waits; the objective"),
        ("utilisation", None, 0.9, "busy 90 % of the time, more than 85 %"),
        ("utilisation", "32", None, "unknown of 32 commands in flight, more than 85 %"),
        ("link-degraded", "width", 4.0, "the link runs at 4 lanes; it has run at 0.85"),
        ("link-degraded", "speed", 8.0, "the link runs at 8 GT/s; it has run at 0.85"),
        ("counters-rising", "errors", 7.0, "errors rose by 7"),
    ],
)
def test_alert_has_text_of_detail(
    condition: str, detail: str | None, value: float | None, text: str
) -> None:
    alert = Alert(AlertCondition(condition), "id", "sda", None, value, 0.85, detail, 1.0, "D0-7")
    assert describe_alert(alert).startswith(text)


ALERT = Alert(AlertCondition.P99, "sda", "sda", HBA, 4.0, 2.0, "p99", 1.0, "D0-7")


def busy(target: str, p99_ms: float, **overrides: Any) -> Reading:
    return watched.reading(target, iops=1000.0, mean_ms=0.5, p99_ms=p99_ms, **overrides)


def make_picture(*readings: Reading, **overrides: Any) -> Picture:
    """Return the picture of these disks at time 100, the worst first."""
    state = WatchState(100.0, readings, (AdapterReading(HBA, None, 1, 0.62, {}, {}),))
    endpoints = {disk.id: endpoint(target=disk.target, id=disk.id) for disk in readings}
    picture = Picture("db07", "oltp", 2.0, endpoints, {HBA: "HBA 9300-8i"}, state, state)
    picture = msgspec.structs.replace(picture, **overrides)
    return msgspec.structs.replace(picture, rank=partial(sort_readings, picture.ranked.disks))


def draw(picture: Picture, width: int = 80, height: int = 24, **choices: Any) -> list[str]:
    lines, _ = format_screen(picture, View(**choices), width, height)
    assert len(lines) == height
    return ["".join(piece.text for piece in line) for line in lines]


@pytest.mark.parametrize(
    ("view", "key", "after"),
    [
        (View(order="name"), "s", View(order="worst")),
        (View(), "p", View(is_paused=True)),
        (View(is_paused=True), "p", View()),
        (View(), "\x1b[A", View()),
        (View(top=3), "\x1bOA", View(top=2)),
        (View(top=3), "\x1b[B", View(top=4)),
        (View(top=3), "\x1b[6~", View(top=13)),
        (View(top=3), "\x1b[H", View()),
        (View(top=3), "s", View(order="IOPS")),
        (View(filter="sd"), "/", View(is_typing=True)),
        (View(is_typing=True, filter="n"), "q", View(is_typing=True, filter="nq")),
        (View(is_typing=True, filter="nv"), "\x7f", View(is_typing=True, filter="n")),
        (View(is_typing=True, filter="nv"), "\x1b[A", View(is_typing=True, filter="nv")),
        (View(is_typing=True, filter="nv"), "\n", View(filter="nv")),
        (View(is_typing=True, filter="nv"), "\x1b", View()),
        (View(), "x", View(shows_paths=True)),
        (View(shows_paths=True), "x", View()),
        (View(), "?", View(shows_help=True)),
        (View(shows_help=True), "?", View()),
        (View(shows_help=True), "q", None),
        (View(), "q", None),
        (View(), "z", View()),
    ],
)
def test_key_changes_view(view: View, key: str, after: View | None) -> None:
    assert react_to_key(view, key) == after


@pytest.mark.parametrize(
    ("time", "alerts", "disks", "keeps"),
    [
        (109.0, (), ("sda", "sdb"), True),
        (110.0, (), ("sda", "sdb"), False),
        (101.0, (ALERT,), ("sda", "sdb"), False),
        (101.0, (), ("sda",), False),
        (99.0, (), ("sda", "sdb"), False),  # the clock was set back
    ],
)
def test_rows_move_every_10_seconds(
    time: float, alerts: tuple[Alert, ...], disks: tuple[str, ...], keeps: bool
) -> None:
    ranked = WatchState(100.0, (busy("sda", 1.0), busy("sdb", 2.0)))
    later = WatchState(time, tuple(busy(disk, 9.0) for disk in disks), alerts=alerts)
    assert keeps_order(ranked, later) == keeps


def test_ranked_state_orders_rows() -> None:
    ranked = WatchState(100.0, (busy("sda", 1.0), busy("sdb", 2.0)))
    picture = make_picture(busy("sda", 9.0), busy("sdb", 2.0), ranked=ranked)
    rows = select_rows(picture, View())
    assert [(reading.target, reading.p99_ms) for reading in rows] == [("sdb", 2.0), ("sda", 9.0)]


def test_scrolled_screen_shows_later_rows() -> None:
    picture = make_picture(*(busy(f"sd{number}", 9.0 - number / 10) for number in range(30)))
    shown = [line.split()[1] for line in draw(picture, top=5) if " sas ssd " in line]
    assert shown[:2] == ["sd5", "sd6"]
    hidden = 30 - len(shown)
    assert any(line.startswith(f"{hidden} more disks") for line in draw(picture, top=5))
    _, top = format_screen(picture, View(top=1000), 80, 24)
    assert top == hidden, "the last row is at the end of the screen, and one key moves it"
    assert [line for line in draw(picture, top=1000) if " sd29 " in line]


def test_filter_and_key_show_paths() -> None:
    picture = make_picture(busy("sda", 1.0), busy("dm-0", 1.0))
    path = msgspec.structs.replace(picture.endpoints["sda"], kind=Kind.PATH, map="dm-0")
    endpoints = {"sda": path, "dm-0": endpoint(target="dm-0", id="dm-0", adapter=None)}
    picture = msgspec.structs.replace(picture, endpoints=endpoints)

    def select(**choices: Any) -> list[str]:
        return [reading.target for reading in select_rows(picture, View(**choices))]

    assert select() == ["dm-0"]
    assert select(filter="01:00") == ["sda"]
    assert select(filter="SAS SSD") == ["dm-0", "sda"]
    assert select(shows_paths=True) == ["dm-0", "sda"]
    for choices in ({}, {"filter": "sda"}, {"shows_paths": True}):
        assert "0 of 1 disk over the goal" in draw(picture, **choices)[1], "paths count once"


USED = endpoint(
    **{"target": "dm-3", "id": "dm-3", "adapter": None, "paths": ("sde", "sdf"), "alias": "mpatha"},
    mounts=("/srv", "/var/lib/pg"),
    volumes=("vg1/data",),
)


@pytest.mark.parametrize(
    ("width", "name"), [(80, "dm-3 mpatha /srv +"), (132, "dm-3 mpatha /srv /var/lib/pg +")]
)
def test_disk_has_names_people_use(width: int, name: str) -> None:
    busiest = watched.reading("dm-3", iops=99_000.0, p99_ms=8.0, in_flight=84.0, knee=64)
    picture = make_picture(busy("sda", 1.0), busiest)
    endpoints = dict(picture.endpoints) | {"dm-3": USED}
    picture = msgspec.structs.replace(picture, endpoints=endpoints)
    lines = draw(picture, width=width)
    assert max(map(len, lines)) <= width
    assert "FLIGHT" in "\n".join(lines)
    assert f"✗  {name}  " in "\n".join(lines)
    for text in ("MPATHA", "/srv", "/lib/pg", "vg1/"):
        rows = select_rows(picture, View(filter=text))
        assert [reading.target for reading in rows] == ["dm-3"], text


@pytest.mark.parametrize(
    ("values", "goal", "chart"),
    [
        ([0.0, 1.0, 2.0], 2.0, "▁▅█"),
        ([1.0, 4.0], 2.0, "▃█"),  # beyond the goal, to the highest
        ([None, math.inf, 3.0], None, " !█"),
        ([None, None], 2.0, "  "),
    ],
)
def test_trend_scales_to_goal(values: list[float | None], goal: float | None, chart: str) -> None:
    assert format_trend(values, goal, "▁▂▃▄▅▆▇█") == chart


@pytest.mark.parametrize(("width", "height"), [(80, 24), (132, 43)])
def test_worst_disk_is_first_row(width: int, height: int) -> None:
    disks = [busy(f"sd{chr(97 + number)}", 0.2) for number in range(26)]
    disks += [watched.reading(f"sda{chr(97 + number)}") for number in range(26)]
    disks += [busy("sdzz", 8.2, in_flight=84.0, knee=64, write_bytes_per_s=1e9)]
    lines = draw(make_picture(*disks, p99="p99 sampled"), width, height)
    assert lines[0].startswith("db07  oltp  ")
    assert "27,000 IOPS  0.00 GB/s read  1.00 written" in lines[0]
    assert lines[1].startswith("✗ 1 of 53 disks over the goal, 26 idle")
    assert lines[1].endswith("p99 sampled")
    assert re.match(r" +0000:01:00.0 +62 % +- +27,000 +1.00 +53 +sdzz 4.1x", lines[3])
    heading = lines.index(next(line for line in lines if "DISK" in line and "MEAN" in line))
    assert re.match(r"✗  sdzz +sas ssd +1,000 +1000 +0.5 +8.2 +4.1x +84>64", lines[heading + 1])
    assert lines[heading + 2].startswith("●  sda ")
    hidden = next(line for line in lines if "more disks" in line)
    shown = sum(line.startswith(("✗  sd", "●  sd", "   sd")) for line in lines)
    assert int(hidden.split()[0]) + shown == 53
    assert (" more disks, 26 idle, 0 over the goal; arrow" in hidden) == (height == 24)
    assert ("XS400ME70084" in lines[heading + 1]) == (width == 132)
    assert lines[-1].startswith("q quit  s sort: worst")


def test_mean_proves_no_goal() -> None:
    disk = busy("sda", 0.2)
    assert draw(make_picture(disk))[1].startswith("● 0 of 1 disk over the goal")
    mean = msgspec.structs.replace(disk, p99_ms=None)
    assert draw(make_picture(mean))[1].startswith("○ 0 of 1 disk over the goal")
    mixed = draw(make_picture(disk, busy("sdb", 0.2, objective_ms=None)))
    assert mixed[1].startswith("○ 0 of 2 disks over the goal, 1 without a goal")
    assert draw(make_picture(watched.reading("sda")))[1].startswith("○ 0 of 1 disk over")
    assert draw(make_picture())[1].startswith("○ no reading yet")
    text = "○ no profile is active: `hbatune watch --profile oltp` has goals"
    without = busy("sdb", 0.2, objective_ms=None)
    assert draw(make_picture(without, profile=None))[1].startswith(text)
    assert draw(make_picture(without))[1].startswith("○ profile oltp has no goal for these disks")


def test_slower_link_marks_adapter() -> None:
    link = Alert(AlertCondition.LINK, HBA, HBA, HBA, 4.0, 8.0, "width", 1.0, "D0-10")
    state = msgspec.structs.replace(make_picture(busy("sda", 1.0)).state, alerts=(link,))
    lines = draw(make_picture(busy("sda", 1.0), state=state))
    assert lines[3].startswith("▲  0000:01:00.0")
    assert lines[-2].startswith("✗ 0000:01:00.0: the link runs at 4 lanes")


def test_console_without_symbols_uses_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "can_show_symbols", lambda: False)
    picture = make_picture(
        busy("sda", 8.0), busy("sdb", 1.8), trends=({"sda": 1.0}, {"sda": None}, {"sda": 8.0})
    )
    lines = draw(picture)
    assert all(line.isascii() for line in lines)
    assert [line[:3] for line in lines if " sd" in line[:8]] == ["[X]", "[!]"]
    assert lines[6].endswith("1 9")


def test_help_lists_keys_instead_of_disks() -> None:
    picture = make_picture(busy("sda", 1.0))
    lines = draw(picture, shows_help=True)
    assert "0 of 1 disk over the goal" in lines[1]
    assert not any(" sda " in line for line in lines)
    keys = re.findall(r"^(\S+) +\w", "\n".join(lines[2:-1]), re.MULTILINE)
    assert keys == ["q", "s", "/", "p", "x", "arrows", "?"]
    assert lines[-1].endswith("? help")


def test_pause_and_filter_are_shown() -> None:
    picture = make_picture(busy("sda", 1.0))
    assert draw(picture, is_paused=True)[-1].startswith("paused  q quit")
    assert draw(picture, filter="sdz")[-1].startswith("filter: sdz  (")
    assert not any("sda" in line[:8] for line in draw(picture, filter="sdz"))


def test_hostile_names_are_escaped() -> None:
    name = "sd\x1b[2J\n"
    disks = [busy(f"{name}{number}", 9.0) for number in range(40)]
    alert = msgspec.structs.replace(ALERT, target=name)
    state = msgspec.structs.replace(make_picture(*disks).state, alerts=(alert,))
    overrides = {"hostname": name, "p99": name, "profile": name, "products": {HBA: name}}
    for line in draw(make_picture(*disks, state=state, **overrides), width=132):
        assert line.isprintable()


@pytest.mark.parametrize(
    ("order", "targets"),
    [
        # A disk without an objective has no ratio, even with a latency.
        ("worst", ["sdb", "sdd", "sda", "sde", "sdc", "sdaa"]),
        ("IOPS", ["sda", "sdb", "sdc", "sdd", "sde", "sdaa"]),
        ("MB/s", ["sdc", "sda", "sdb", "sdd", "sde", "sdaa"]),
        ("in flight", ["sde", "sdc", "sda", "sdb", "sdd", "sdaa"]),
        ("name", ["sda", "sdb", "sdc", "sdd", "sde", "sdaa"]),
    ],
)
def test_order_puts_worst_disk_first(order: str, targets: list[str]) -> None:
    readings = [
        watched.reading("sdaa", objective_ms=None),
        watched.reading("sde", objective_ms=None, in_flight=1.0, stalled_ms=None),
        watched.reading("sdc", mean_ms=9.0, objective_ms=None, in_flight=0.9, read_bytes_per_s=9.0),
        watched.reading("sda", mean_ms=1.0, iops=9.0),
        watched.reading("sdd", stalled_ms=2000.0, objective_ms=2000.0),
        watched.reading("sdb", mean_ms=1.0, p99_ms=8.0, iops=5.0),
    ]
    ordered = [reading.target for reading in sort_readings(readings, order)]
    assert ordered == targets
