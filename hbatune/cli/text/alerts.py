"""What alerts say to a person: on the terminal, in the journal, in `status`."""

from hbatune.cli.text.output import printable
from hbatune.watch.alerts import AlertChange, AlertCondition
from hbatune.watch.readings import Measure
from hbatune.watch.watch import Alert, AlertEvent


def sentence(alert: Alert) -> str:
    """Return what is the matter, with the value that raised it and its limit."""
    value, limit = _figure(alert.value), _figure(alert.limit)
    match alert.condition:
        case AlertCondition.P99:
            return f"{_latency(alert, value)}; the objective is a p99 of {limit} ms"
        case AlertCondition.UTILISATION:
            return f"busy {_percent(alert.value)} of the time, more than {_percent(alert.limit)}"
        case AlertCondition.DEPTH:
            return f"{value} in flight on average; beyond its knee, {limit}, they only wait"
        case AlertCondition.QUEUE_FULL:
            return f"queue_depth is {value}, not {limit}: the kernel lowers it for a full queue"
        case AlertCondition.COUNTERS:
            return f"{alert.detail} rose by {value}"
        case AlertCondition.LINK:
            what = "lanes" if alert.detail == "width" else "GT/s"
            return f"the link runs at {value} {what}; it has run at {limit}"
        case AlertCondition.CPU:
            busy = _percent(alert.value)
            return f"CPU {alert.detail}, which serves its interrupts, is busy {busy} of the time"


def told(alert: Alert) -> str:
    """Return an alert in one line, with its target and what it stands on."""
    return printable(f"{alert.target}: {sentence(alert)} ({alert.source})")


def event_line(event: AlertEvent) -> str:
    """Return what became of an alert."""
    if event.change is AlertChange.RAISED:
        return f"alert: {told(event.alert)}"
    if event.value is None:
        return f"over, since it is gone: {told(event.alert)}"
    return f"over: {told(event.alert)}"


def _latency(alert: Alert, value: str) -> str:
    match alert.detail:
        case Measure.LEAST:
            return f"nothing was done in {value} ms, and something waits"
        case Measure.MEAN:
            return f"the mean alone is {value} ms"
        case _:
            return f"p99 is {value} ms"


def _figure(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{share:.0%}".replace("%", " %")
