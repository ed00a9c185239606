"""Print the watch: readings as a live table, plain lines or JSON, and alerts as text."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
from msgspec import Struct

from hbatune.facts.names import natural_key
from hbatune.shipped import load_texts
from hbatune.text.basic_output import format_count, make_console
from hbatune.text.tables import EMPTY_CELL, Line, StyledText, Table, make_columns, wrap_text
from hbatune.text.terminal import decode_json, fit_table, make_printable, print_note, style_line
from hbatune.text.units import format_percent
from hbatune.watch.alerts import AlertChange, AlertCondition
from hbatune.watch.readings import AdapterReading, Measure, Reading
from hbatune.watch.watch import Alert, AlertEvent, WatchState

StatePrinter = Callable[[WatchState, Sequence[AlertEvent]], None]
_COLUMNS = make_columns(
    "id TARGET | number IOPS | number MB/S | number MEAN MS | number P99 | "
    "number P99.9 | number GOAL | number IN FLIGHT | number KNEE | number BUSY"
)
_TARGET_WIDTH = 12
_WIDTHS = (9, 8, 8, 8, 8, 6, 9, 5, 6)


class WatchDocument(Struct, frozen=True, kw_only=True):
    """A line of JSON from `watch` for one interval; ``events`` are the changes of alerts."""

    schema: str = "hbatune.watch/1"
    hostname: str
    time: float
    readings: tuple[Reading, ...]
    adapters: tuple[AdapterReading, ...]
    alerts: tuple[Alert, ...]
    events: tuple[AlertEvent, ...]


def make_json_printer(hostname: str) -> StatePrinter:
    """Return a function that prints each state as a line of JSON."""

    def show(state: WatchState, events: Sequence[AlertEvent]) -> None:
        document = WatchDocument(
            hostname=hostname,
            time=state.time,
            readings=state.disks,
            adapters=state.servers,
            alerts=state.alerts,
            events=tuple(events),
        )
        sys.stdout.write(decode_json(msgspec.json.encode(document)) + "\n")
        # Also into a pipe: a reader must get each line immediately, not when a buffer is full.
        sys.stdout.flush()

    return show


def make_plain_printer() -> StatePrinter:
    """Print the headings once, and return a function that prints each endpoint as a line."""
    print(_format_line("TIME", [column.title for column in _COLUMNS]), flush=True)

    def show(state: WatchState, events: Sequence[AlertEvent]) -> None:
        clock = time.strftime("%H:%M:%S", time.localtime(state.time))
        for reading in _sort_readings(state):
            print(_format_line(clock, format_reading(reading)))
        sys.stdout.flush()
        for event in events:
            print_note(format_event(event))

    return show


@contextmanager
def show_live() -> Iterator[StatePrinter]:
    """Yield a function that redraws the table for each state, with the alerts below it."""
    from rich.console import Group
    from rich.live import Live

    terminal = make_console()
    # No refresh thread: each state is drawn once.
    with Live(console=terminal, auto_refresh=False, vertical_overflow="crop") as drawing:

        def show(state: WatchState, events: Sequence[AlertEvent]) -> None:
            lines = format_screen(state, terminal.width, terminal.height)
            drawing.update(Group(*map(style_line, lines)), refresh=True)

        yield show


def format_screen(state: WatchState, width: int, height: int) -> list[Line]:
    """Return the table and the alerts below it for a screen, with the number of omitted ones."""
    alerts: list[Line] = []
    for number, alert in enumerate(state.alerts):
        sentence = wrap_text(format_alert(alert), width, 2)
        if len(alerts) + len(sentence) > height // 2:
            hidden = len(state.alerts) - number
            alerts.append((StyledText(f"and {hidden} more alerts", "red"),))
            break
        for line in sentence:
            alerts.append((StyledText(line, "red"),))
    readings = _sort_readings(state)
    # A row has at least one line.
    visible = readings[:height]
    while True:
        lines = list(fit_table(Table(_COLUMNS, list(map(format_reading, visible))), width))
        if hidden := len(readings) - len(visible):
            lines.append((StyledText(f"and {hidden} more: name the targets to watch"),))
        too_many = len(lines) + len(alerts) - height
        if too_many <= 0 or len(visible) <= 1:
            return [*lines, *alerts]
        visible = visible[: max(1, len(visible) - max(1, too_many * len(visible) // len(lines)))]


def format_reading(reading: Reading) -> list[str]:
    """Return one endpoint's metrics as text.

    Without a histogram there is no p99. `>` marks the minimum time that stalled I/O has waited.
    """
    latency = reading.latency
    stalled = latency is not None and latency[0] is Measure.LEAST
    p99 = f">{_format_number(reading.stalled_ms)}" if stalled else _format_number(reading.p99_ms)
    return [
        reading.target,
        f"{reading.iops:.0f}",
        f"{(reading.read_bytes_per_s + reading.write_bytes_per_s) / 1e6:.1f}",
        _format_number(reading.mean_ms),
        p99,
        _format_number(reading.p999_ms),
        _format_number(reading.objective_ms),
        f"{reading.in_flight:.1f}",
        EMPTY_CELL if reading.knee is None else str(reading.knee),
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
    end = "no longer present"
    if event.value is not None:
        texts = load_texts("messages.toml")["alerts"][alert.condition]
        end = texts["end"].format(detail=alert.detail)
    return make_printable(f"alert ended: {alert.target}: {end} ({alert.source})")


def _sort_readings(state: WatchState) -> list[Reading]:
    return sorted(state.disks, key=lambda reading: natural_key(reading.target))


def _format_number(value: float | None, unknown: str = EMPTY_CELL) -> str:
    if value is None:
        return unknown
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _format_line(clock: str, words: Sequence[str]) -> str:
    first, *figures = map(make_printable, words)
    cells = map(str.rjust, figures, _WIDTHS)
    return "  ".join((clock.ljust(8), first.ljust(_TARGET_WIDTH), *cells))
