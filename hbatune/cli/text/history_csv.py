"""The history as one table of comma-separated values: a line for each run with its figures."""

import time
from collections.abc import Iterable, Iterator

from hbatune.cli.text.csv import Field, csv_text
from hbatune.probe.history import HistoryEntry
from hbatune.probe.kept import KeptTogether
from hbatune.probe.model import ProbeResult, Served

HEAD = (
    *("when", "target", "id", "command", "profile", "kernel", "driver", "firmware"),
    *("pattern", "block_bytes", "reads_percent", "depth", "jobs", "rate", "queue_depth", "writer"),
    *("iops", "bytes_per_second", "mean_us", "p50_us", "p95_us", "p99_us", "p999_us"),
    *("cpu_us_per_io", "interrupt_us_per_io", "busy", "in_flight", "written_beside_per_second"),
    *("doubt", "verdict", "stale"),
)
"""The columns; ``in_flight`` is by Little's law, ``depth`` is that of each job.

A run on all disks of an adapter has the adapter as its target, and the load of each disk.
"""


def history_csv(entries: Iterable[HistoryEntry]) -> str:
    """Return the runs of a history as CSV (D3-9), in the order of the entries."""
    return csv_text(HEAD, _rows(entries))


def _rows(entries: Iterable[HistoryEntry]) -> Iterator[tuple[Field, ...]]:
    for entry in entries:
        record = entry.record
        measured = record.result or record.together
        if measured is None:
            continue
        asked, figures, served = measured.workload, measured.figures, _served(measured)
        doubt = record.result.doubt if record.result is not None else None
        when = time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(record.time))
        yield (
            *(when, record.target, record.id, record.command, record.profile, record.kernel),
            " ".join(str(each.driver) for each in served),
            " ".join(str(each.firmware) for each in served),
            *(asked.pattern, asked.block_size, asked.reads, asked.depth, asked.jobs, asked.rate),
            *(asked.queue_depth, "yes" if asked.writer else "no"),
            *(figures.iops, figures.bandwidth, figures.mean_us, figures.p50_us, figures.p95_us),
            *(figures.p99_us, figures.p999_us, figures.cpu_us_per_io, figures.interrupt_us_per_io),
            *(figures.busy, figures.concurrency, figures.written_beside, doubt),
            None if record.proof is None else record.proof.verdict.word,
            " ".join(each.what for each in entry.stale),
        )


def _served(measured: ProbeResult | KeptTogether) -> tuple[Served, ...]:
    if isinstance(measured, KeptTogether):
        return () if measured.served is None else (measured.served,)
    return measured.served
