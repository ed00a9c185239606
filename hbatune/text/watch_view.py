"""Print the watch: readings on the full screen, as plain lines or JSON, and alerts as text."""

import math
import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts.model import Endpoint
from hbatune.facts.names import group_items, natural_key
from hbatune.shipped import load_texts
from hbatune.text import tables, terminal
from hbatune.text.basic_output import format_count, make_console
from hbatune.text.plan_tables import format_medium, format_speed, format_value, list_uses
from hbatune.text.tables import EMPTY_CELL, Line, StyledText, load_columns, wrap_text
from hbatune.text.terminal import format_mark, make_printable, print_note
from hbatune.text.units import format_digits, format_percent
from hbatune.watch.alerts import AlertChange, AlertCondition
from hbatune.watch.readings import AdapterReading, Reading
from hbatune.watch.watch import Alert, AlertEvent, WatchState

StatePrinter = Callable[[WatchState, Sequence[AlertEvent]], None]
_TITLES = ("TARGET", "IOPS", "MB/S", "MEAN MS", "P99", "P99.9", "GOAL", "IN FLIGHT", "KNEE", "BUSY")
_LINE = "{:8}  {:12}  {:>9}  {:>8}  {:>8}  {:>8}  {:>8}  {:>6}  {:>9}  {:>5}  {:>6}"
"""A plain line: the time, then a column below each title."""

# The names stay the same, and their keys would take most of the time of a screen.
_get_natural_key = lru_cache(maxsize=1 << 16)(natural_key)
_WIDE, _ROOMY = 100, 20
"""The width of screens with a long chart, and the height of screens with adapters."""

_TREND, _SHORT_TREND, _MAX_ADAPTERS, _NEAR_GOAL = 30, 12, 4, 0.8
_RANKING_S, _RESIZE_S = 10.0, 0.25
"""Seconds for which rows stay in place, and seconds between two checks of the terminal's size."""


class Totals(Struct, frozen=True):
    """The load of all ``disks``, and the number of those over their goal.

    Paths of maps do not count: their I/O is the I/O of the map.
    """

    disks: int
    iops: float
    read_bytes_per_s: float
    write_bytes_per_s: float
    over_goal: int


class WatchDocument(Struct, frozen=True, kw_only=True):
    """A line of JSON from `watch` for one interval; ``events`` are the changes of alerts.

    ``worst`` is the disk with the highest latency relative to its goal, or null without goals.
    """

    schema: str = "hbatune.watch/1"
    hostname: str
    time: float
    readings: tuple[Reading, ...]
    adapters: tuple[AdapterReading, ...]
    alerts: tuple[Alert, ...]
    events: tuple[AlertEvent, ...]
    totals: Totals
    worst: str | None


def make_json_printer(hostname: str, paths: Collection[str]) -> StatePrinter:
    """Return a function that prints each state as a line of JSON; ``paths`` are ids."""

    def show(state: WatchState, events: Sequence[AlertEvent]) -> None:
        disks = [reading for reading in state.disks if reading.id not in paths]
        ranked = [disk for disk in sort_readings(disks, "worst") if disk.goal_ratio is not None]
        document = WatchDocument(
            hostname=hostname,
            time=state.time,
            readings=state.disks,
            adapters=state.servers,
            alerts=state.alerts,
            events=tuple(events),
            totals=_add_up(disks),
            worst=ranked[0].target if ranked else None,
        )
        sys.stdout.write(terminal.decode_json(msgspec.json.encode(document)) + "\n")
        # Also into a pipe: a reader must get each line immediately, not when a buffer is full.
        sys.stdout.flush()

    return show


def _add_up(disks: Sequence[Reading]) -> Totals:
    return Totals(
        disks=len(disks),
        iops=sum(disk.iops for disk in disks),
        read_bytes_per_s=sum(disk.read_bytes_per_s for disk in disks),
        write_bytes_per_s=sum(disk.write_bytes_per_s for disk in disks),
        over_goal=sum((disk.goal_ratio or 0.0) > 1 for disk in disks),
    )


def make_plain_printer() -> StatePrinter:
    """Print the headings once, and return a function that prints each endpoint as a line."""
    print(_LINE.format("TIME", *_TITLES), flush=True)

    def show(state: WatchState, events: Sequence[AlertEvent]) -> None:
        clock = time.strftime("%H:%M:%S", time.localtime(state.time))
        for reading in sort_readings(state.disks, "name"):
            print(_LINE.format(clock, *map(make_printable, format_reading(reading))))
        sys.stdout.flush()
        for event in events:
            print_note(format_event(event))

    return show


ROW_ORDERS: Mapping[str, Callable[[Reading], Any]] = {
    # Without an objective, the number in flight shows how much I/O waits.
    "worst": lambda reading: (reading.goal_ratio or -1.0, reading.in_flight),
    "IOPS": attrgetter("iops"),
    "MB/s": attrgetter("bytes_per_s"),
    "in flight": attrgetter("in_flight"),
    "name": lambda reading: 0,
}
"""The sort keys of a screen's rows, the highest first. Equal rows are in the order of names."""


def sort_readings(readings: Iterable[Reading], order: str) -> list[Reading]:
    """Return the readings in one of the ``ROW_ORDERS``."""
    by_name = sorted(readings, key=lambda reading: _get_natural_key(reading.target))
    return sorted(by_name, key=ROW_ORDERS[order], reverse=True)


_SCROLL_KEYS = {"\x1b[A": -1, "\x1b[B": 1, "\x1b[5~": -10, "\x1b[6~": 10}
_SCROLL_KEYS |= {"\x1bOA": -1, "\x1bOB": 1, "\x1b[H": -1 << 16, "\x1b[F": 1 << 16}
"""The rows that arrows, page keys, Home and End scroll; some terminals send ``ESC O A``."""


class View(Struct, frozen=True):
    """The choices of the person at the screen; ``top`` is the number of rows above the screen."""

    order: str = "worst"
    top: int = 0
    filter: str = ""
    is_typing: bool = False
    is_paused: bool = False
    shows_paths: bool = False
    shows_help: bool = False


def react_to_key(view: View, key: str) -> View | None:
    """Return the view after a key, or None for the end."""
    match key:
        case "\x1b":
            return replace(view, is_typing=False, filter="")
        case "\n" | "\r":
            return replace(view, is_typing=False)
        case "\x7f" | "\b":
            return replace(view, filter=view.filter[:-1])
        case _ if view.is_typing:
            return replace(view, filter=view.filter + key) if key.isprintable() else view
        case "q":
            return None
        case "s":
            orders = [*ROW_ORDERS, *ROW_ORDERS]
            return replace(view, order=orders[orders.index(view.order) + 1], top=0)
        case "/":
            return replace(view, is_typing=True, filter="")
        case "p":
            return replace(view, is_paused=not view.is_paused)
        case "x":
            return replace(view, shows_paths=not view.shows_paths)
        case "?":
            return replace(view, shows_help=not view.shows_help)
    return replace(view, top=max(0, view.top + _SCROLL_KEYS.get(key, 0)))


class Picture(Struct, frozen=True):
    """All values on the screen.

    ``endpoints`` are by id, ``products`` by adapter. ``p99`` is how it is measured, or why not.
    ``trends`` are the latencies of the last readings by id in milliseconds: None without I/O,
    infinity if no waiting I/O completed. ``ranked`` is the earlier state that determines the order
    of the rows, and ``rank`` returns its readings in one of the ``ROW_ORDERS``.
    """

    hostname: str
    profile: str | None
    interval_s: float
    endpoints: Mapping[str, Endpoint]
    products: Mapping[str, str]
    state: WatchState = WatchState(0.0)
    ranked: WatchState = WatchState(0.0)
    rank: Callable[[str], Sequence[Reading]] = partial(sort_readings, ())
    p99: str = ""
    trends: Sequence[Mapping[str, float | None]] = ()


def keeps_order(ranked: WatchState, state: WatchState) -> bool:
    """Return whether rows stay in place, so people can read them, until other rows matter."""
    is_recent = 0 <= state.time - ranked.time < _RANKING_S
    is_same = {reading.id for reading in state.disks} == {reading.id for reading in ranked.disks}
    return is_recent and is_same and state.alerts == ranked.alerts


def select_rows(picture: Picture, view: View) -> list[Reading]:
    """Return the readings that match the filter. Without one, paths of maps need the key ``x``."""
    readings = {reading.id: reading for reading in picture.state.disks}
    targets, text = {reading.target for reading in readings.values()}, view.filter.lower()
    rows = []
    for ranked in picture.rank(view.order):
        disk = picture.endpoints[ranked.id]
        is_shown = view.shows_paths or disk.map not in targets
        if text:
            words = (disk.target, format_medium(disk), disk.model, disk.adapter, disk.alias)
            names = (*words, *disk.mounts, *disk.volumes)
            is_shown = text in " ".join(filter(None, names)).lower()
        if is_shown:
            rows.append(readings[ranked.id])
    return rows


def format_screen(picture: Picture, view: View, width: int, height: int) -> tuple[list[Line], int]:
    """Return the lines from row ``view.top`` on, or earlier to fill the screen, and that row."""
    state, rows = picture.state, select_rows(picture, view)
    alerts = list[str]()
    for alert in state.alerts:
        alerts += wrap_text(f"{format_mark('bad')} {format_alert(alert)}", width, 2)
    if len(alerts) > (limit := height // 4):
        alerts[limit:] = [format_count(len(state.alerts), "alert")]
    below = [_make_line(line, "red") for line in alerts]
    keys = f"q quit  s sort: {view.order}  / filter  p pause  x paths  "
    keys += f"{'↑↓' if terminal.can_show_symbols() else 'arrows'} scroll  ? help"
    if view.is_typing or view.filter:
        keys = f"filter: {view.filter}  (Enter keeps it, Esc clears it)"
    paused, style = ("paused  ", "reverse") if view.is_paused else ("", "dim")
    below.append(_make_line(wrap_text(paused + keys, width)[0], style))
    disks = select_rows(picture, View()) if view.filter or view.shows_paths else rows
    above = _format_head(picture, disks, width)
    if view.shows_help:
        for key, effect in load_texts("messages.toml")["watch_keys"].items():
            above += map(_make_line, wrap_text(f"{key:<8}{effect}", width, 8))
        return _fill_screen(above, below, height), view.top
    if height >= _ROOMY:
        above += [*_format_adapters(picture, width), ()]
    # Two more lines: the heading, and the number of hidden rows.
    room = max(1, height - len(above) - len(below) - 2)
    top = min(view.top, max(0, len(rows) - room))
    above += _format_rows(picture, rows[top : top + room], width)
    if hidden := rows[:top] + rows[top + room :]:
        idle, over = sum(reading.is_idle for reading in hidden), _add_up(hidden).over_goal
        count = format_count(len(hidden), "more disk")
        answer = f"{count}, {idle} idle, {over} over the goal; arrow keys scroll"
        above.append(_make_line(wrap_text(answer, width)[0]))
    return _fill_screen(above, below, height), top


def _fill_screen(above: list[Line], below: list[Line], height: int) -> list[Line]:
    above = above[: max(0, height - len(below))]
    return [*above, *[()] * (height - len(above) - len(below)), *below][-height:]


def format_trend(values: Sequence[float | None], goal_ms: float | None, symbols: str) -> str:
    """Return a chart up to the goal or the maximum: a blank without I/O, ``!`` for stalled I/O."""
    finite = [value for value in values if value is not None and value != math.inf]
    scale = max([*finite, goal_ms or 0.0]) or 1.0
    chart = ""
    for value in values:
        if value is None or value == math.inf:
            chart += " " if value is None else "!"
        else:
            chart += symbols[min(len(symbols) - 1, int(value / scale * len(symbols)))]
    return chart


@contextmanager
def read_single_keys() -> Iterator[None]:
    """Let ``read_keys`` return each key immediately; restore the terminal at the end."""
    import termios  # few commands read keys
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        attributes = termios.tcgetattr(sys.stdin)
        # Ctrl-Z would stop the process with the full screen still on the terminal.
        attributes[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, attributes)
        yield
    finally:
        with suppress(termios.error):  # the terminal no longer exists
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def read_keys(seconds: float) -> list[str]:
    """Return the keys pressed within this time. Raises ``KeyboardInterrupt`` without a terminal."""
    from select import select

    ready, _, _ = select([sys.stdin], [], [], seconds)
    data = b""
    with suppress(OSError):
        data = os.read(sys.stdin.fileno(), 64) if ready else b""
    if ready and not data:
        raise KeyboardInterrupt
    return re.findall(r"\x1b[\[O][0-9;]*[A-Za-z~]|.", data.decode(errors="replace"), re.DOTALL)


def show_live(
    picture: Picture, sample: Callable[[], tuple[WatchState, str]], advance: Callable[[float], None]
) -> None:
    """Show samples until ``q`` or Ctrl-C, and advance in between. ``sample`` also describes p99."""
    from rich.console import Group
    from rich.live import Live

    view, trends = View(), deque[Mapping[str, float | None]](maxlen=_TREND)
    picture = replace(picture, state=WatchState(time.time()))
    due, console = time.monotonic() + picture.interval_s, make_console()
    # No refresh thread: each picture is drawn once.
    with read_single_keys(), Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            size = console.size
            lines, top = format_screen(picture, view, *size)
            live.update(Group(*map(terminal.style_line, lines)), refresh=True)
            view, keys = replace(view, top=top), list[str]()
            while not keys and size == console.size and (wait := due - time.monotonic()) > 0:
                keys = read_keys(min(wait, _RESIZE_S))
                advance(time.monotonic())
            # A host that takes longer for a reading than the interval reacts to keys, too.
            for key in keys or read_keys(0.0):
                after = react_to_key(view, key)
                if after is None:
                    return
                view = after
            if time.monotonic() >= due:
                due, (state, p99) = due + picture.interval_s, sample()
                trends.append({reading.id: _find_trend_value(reading) for reading in state.disks})
                if not view.is_paused:
                    if not keeps_order(picture.ranked, state):
                        rank = lru_cache(partial(sort_readings, state.disks))
                        picture = replace(picture, ranked=state, rank=rank)
                    picture = replace(picture, state=state, p99=p99, trends=tuple(trends))


def _find_trend_value(reading: Reading) -> float | None:
    if reading.stalled_ms is not None:
        return math.inf
    return reading.mean_ms if reading.p99_ms is None else reading.p99_ms


def _format_head(picture: Picture, disks: Sequence[Reading], width: int) -> list[Line]:
    """Return the host, the totals of disks without paths of maps, and the number over the goal."""
    clock = time.strftime("%H:%M:%S", time.localtime(picture.state.time))
    host = f"{picture.hostname}  {picture.profile or 'no profile'}  {clock}"
    host += f"  every {picture.interval_s:g} s"
    totals = _add_up(disks)
    read, written = totals.read_bytes_per_s / 1e9, totals.write_bytes_per_s / 1e9
    load = f"{totals.iops:,.0f} IOPS  {read:.2f} GB/s read  {written:.2f} written"
    lines = [_make_line(line, "bold") for line in _join_ends(host, load, width)]
    active, over = [reading for reading in disks if not reading.is_idle], totals.over_goal
    answer = f"{over} of {format_count(len(disks), 'disk')} over the goal"
    if idle := len(disks) - len(active):
        answer += f", {idle} idle"
    if without := sum(reading.objective_ms is None for reading in active):
        answer += f", {without} without a goal"
    if not disks:
        answer = "no reading yet"
    elif picture.profile is None:
        answer = "no profile is active: `hbatune watch --profile oltp` has goals"
    elif all(reading.objective_ms is None for reading in disks):
        answer = f"profile {picture.profile} has no goal for these disks"
    # A disk without a measured p99 may be over its goal.
    is_proven = active and all(_judge_reading(reading) in ("good", "look") for reading in active)
    mark = format_mark("bad" if over else "good" if is_proven else "off")
    for line in _join_ends(f"{mark} {answer}", picture.p99, width):
        lines.append(_make_line(line, tables.STYLES[mark] if line.startswith(mark) else ""))
    return lines


def _format_adapters(picture: Picture, width: int) -> list[Line]:
    """Return the adapters with their busiest CPU, link and load, the worst first."""
    state = picture.state
    ratios = {reading.target: reading.goal_ratio or 0.0 for reading in state.disks}
    load = group_items(state.disks, lambda reading: reading.adapter)
    slower = {alert.target for alert in state.alerts if alert.condition is AlertCondition.LINK}
    rows: list[tuple[float, list[str]]] = []
    for server in sorted(state.servers, key=lambda server: natural_key(server.target)):
        # Only the map of a path has a goal.
        readings = load.get(server.target, [])
        disks = [picture.endpoints[reading.id].map or reading.target for reading in readings]
        worst = max(((ratios.get(disk, 0.0), disk) for disk in disks), default=(0.0, ""))
        cells = [
            format_mark("look" if server.target in slower else None),
            server.target,
            EMPTY_CELL if server.cpu_busy is None else format_percent(server.cpu_busy),
            (server.link and format_speed(server.link.speed, server.link.width)) or EMPTY_CELL,
            f"{sum(reading.iops for reading in readings):,.0f}",
            f"{sum(reading.bytes_per_s for reading in readings) / 1e9:.2f}",
            str(len(readings)),
            f"{worst[1]} {worst[0]:.1f}x" if worst[1] else EMPTY_CELL,
            picture.products[server.target],
        ]
        rows.append((-worst[0], cells))
    rows.sort(key=lambda row: row[0])
    lines = _fit_columns("watch-adapters", [cells for _, cells in rows[:_MAX_ADAPTERS]], width)
    if (more := len(rows) - _MAX_ADAPTERS) > 0:
        lines.append(_make_line(format_count(more, "more adapter")))
    return lines


def _format_rows(picture: Picture, readings: Sequence[Reading], width: int) -> list[Line]:
    """Return the heading and the rows; a narrow screen has a shorter chart and fewer columns."""
    cells = _TREND if width >= _WIDE else _SHORT_TREND
    symbols = "▁▂▃▄▅▆▇█" if terminal.can_show_symbols() else "0123456789"
    rows = []
    for reading in readings:
        id, knee = reading.id, reading.knee
        disk, is_past_knee = picture.endpoints[id], knee is not None and reading.in_flight > knee
        trend = [latencies[id] for latencies in picture.trends if id in latencies][-cells:]
        names = " ".join(filter(None, (disk.alias, *list_uses([disk]))))
        # A ``+`` marks names beyond this width.
        line, *more = wrap_text(make_printable(names), cells)
        row = [
            format_mark(_judge_reading(reading)),
            " ".join(filter(None, (disk.target, line, "+" if more else None))),
            format_medium(disk) + (f" x{len(disk.paths)}" if disk.paths else ""),
            f"{reading.iops:,.0f}",
            format_digits(reading.bytes_per_s / 1e6),
            _format_number(reading.mean_ms),
            _format_p99(reading),
            EMPTY_CELL if reading.goal_ratio is None else f"{reading.goal_ratio:.1f}x",
            f"{reading.in_flight:.0f}>{knee}" if is_past_knee else f"{reading.in_flight:.0f}",
            format_trend(trend, reading.objective_ms, symbols).rjust(cells),
            _format_number(reading.p999_ms),
            format_percent(reading.utilisation),
            format_value(knee),
            disk.model,
        ]
        rows.append(row)
    return _fit_columns("watch-disks", rows, width)


def _fit_columns(name: str, rows: Sequence[Sequence[str]], width: int) -> list[Line]:
    """Return the lines of the table of this ``name`` without the last columns that do not fit."""
    columns = load_columns(name)
    for count in range(len(columns), 1, -1):
        table = tables.Table(columns[:count], [row[:count] for row in rows])
        lines = list(terminal.fit_table(table, None))
        widths = (sum(tables.measure_width(piece.text) for piece in line) for line in lines)
        if max(widths, default=0) <= width:
            break
    return lines


def _make_line(text: str, style: str = "") -> Line:
    return (StyledText(text, style),)


def _judge_reading(reading: Reading) -> str | None:
    """Return the mark of a reading. A mean below the goal does not show that p99 is."""
    ratio = reading.goal_ratio
    if ratio is not None and ratio > _NEAR_GOAL:
        return "bad" if ratio > 1 else "look"
    return None if ratio is None or reading.p99_ms is None else "good"


def _join_ends(left: str, right: str, width: int) -> list[str]:
    """Return two texts at the ends of one line, or on several lines if they do not fit."""
    left, right = make_printable(left), make_printable(right)
    gap = width - tables.measure_width(left) - tables.measure_width(right)
    if gap >= tables.COLUMN_GAP:
        return [left + " " * gap + right]
    # A command is never broken between two lines.
    unbroken = re.sub("`[^`]*`", lambda command: command[0].replace(" ", "\xa0"), right)
    lines = [*wrap_text(left, width, 2), *wrap_text(unbroken, width)]
    return [line.replace("\xa0", " ") for line in lines]


def format_reading(reading: Reading) -> list[str]:
    """Return one endpoint's metrics as text."""
    return [
        reading.target,
        f"{reading.iops:.0f}",
        f"{reading.bytes_per_s / 1e6:.1f}",
        _format_number(reading.mean_ms),
        _format_p99(reading),
        _format_number(reading.p999_ms),
        _format_number(reading.objective_ms),
        f"{reading.in_flight:.1f}",
        format_value(reading.knee),
        format_percent(reading.utilisation),
    ]


def describe_alert(alert: Alert) -> str:
    """Return the cause of an alert, with the value that raised it and its limit."""
    texts = load_texts("messages.toml")["alerts"][alert.condition]
    text: str = texts.get(alert.detail, texts["raised"])
    facts = {"detail": alert.detail, "most": format_percent(alert.limit)}
    if alert.condition is AlertCondition.UTILISATION and alert.detail is not None:
        text, facts["commands"] = texts["commands"], format_count(int(alert.detail), "command")
    return text.format(
        value=_format_number(alert.value, "unknown"),
        limit=_format_number(alert.limit, "unknown"),
        busy="unknown" if alert.value is None else format_percent(alert.value),
        **facts,
    )


def format_alert(alert: Alert) -> str:
    """Return an alert in one line, with its target and its source."""
    return make_printable(f"{alert.target}: {describe_alert(alert)} ({alert.source})")


def format_event(event: AlertEvent) -> str:
    """Return one line for an alert that was raised or cleared."""
    alert = event.alert
    if event.change is AlertChange.RAISED:
        return f"alert: {format_alert(alert)}"
    end = "no longer watched"
    if event.value is not None:
        texts = load_texts("messages.toml")["alerts"][alert.condition]
        end = texts["end"].format(detail=alert.detail)
    return make_printable(f"alert ended: {alert.target}: {end} ({alert.source})")


def _format_p99(reading: Reading) -> str:
    """Return the p99 if it is measured; `>` marks the minimum time that stalled I/O has waited."""
    if reading.stalled_ms is not None:
        return f">{_format_number(reading.stalled_ms)}"
    return _format_number(reading.p99_ms)


def _format_number(value: float | None, unknown: str = EMPTY_CELL) -> str:
    if value is None:
        return unknown
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
