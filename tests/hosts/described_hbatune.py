"""hbatune as a command on a described machine: ``python -m tests.hosts.described_hbatune WORDS``.

The disks of a described machine are files. fio and traces would measure nothing, so this command
replaces their results and the kernel's counters: the disks work, and the change halves the time of
an I/O on every disk except in ``UNCHANGED``.
"""

import sys
import time
from collections.abc import Collection
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec

from hbatune.act.paths import Paths
from hbatune.cli import main
from hbatune.facts import sampler
from hbatune.facts.model import Machine
from hbatune.operations import verify
from hbatune.probe import prove, run
from hbatune.probe.result import ProbeOutcome, ProbeResult, Served, Subject, Workload
from hbatune.probe.selection import choose_representatives
from hbatune.watch.latency import Interval, Latencies
from tests.unit.noisy_disks import Noise, NoisyDisk

UNCHANGED = ("sdb",)
"""Disks on which the change makes no difference."""
_TUNED = {"2048", "128"}
"""Values of nr_requests and of queue_depth that the profile oltp sets."""
_BLOCK = Path("/sys/class/block")
_STATS = Path("/proc/diskstats")
_noise = NoisyDisk(Noise(0.01), 1)


def _choose_subjects(machine: Machine, targets: Collection[str], *, shared: bool) -> Any:
    return choose_representatives(machine, targets)


def _probe(subject: Subject, workload: Workload, **options: Any) -> ProbeOutcome:
    if options.get("prepare") is not None:
        options["prepare"]()
    disk = _BLOCK / subject.target
    files = (disk / "queue/nr_requests", disk / "device/queue_depth")
    is_tuned = bool({file.read_text().strip() for file in files} & _TUNED)
    slower = 0.5 if is_tuned and subject.target not in UNCHANGED else 1.0
    served = tuple(
        Served(adapter.target, adapter.driver, adapter.driver_version, adapter.firmware)
        for adapter in subject.adapters
    )
    figures = _noise.run(slower)
    return ProbeResult(subject.target, subject.endpoint.id, workload, figures, "3.33", served)


def _list_loads() -> list[tuple[str, int, float]]:
    """Return each disk with its IOPS and its mean latency in ms; the last disk is the slowest."""
    names = sorted(path.name for path in _BLOCK.iterdir())
    loads = [(name, 6200 - 400 * number, 0.3 + 0.02 * number) for number, name in enumerate(names)]
    return [*loads[:-1], (names[-1], 31_000, 2.7)]


def _count_requests(sample: Any, *words: Any) -> Any:
    """Write the kernel's counters and the daemon's samples as of now, then read them."""
    now, lines, counts = time.monotonic(), [], {}
    for name, iops, mean in _list_loads():
        reads = int(iops * now)
        wait = int(reads * mean)
        sectors = reads * 8
        device = (_BLOCK / name / "dev").read_text().strip()
        number = device.replace(":", " ")
        flight = int(iops * mean / 1000)
        lines.append(f"{number} {name} {reads} 0 {sectors} {wait} 0 0 0 0 {flight} {wait} {wait}")
        counts[device] = {int(mean * 2500): 1000}
    _STATS.write_text("".join(f"{line} 0 0 0 0 0 0\n" for line in lines))
    interval = Interval(now, 2.0, counts)
    Paths.latency.parent.mkdir(parents=True, exist_ok=True)
    Paths.latency.write_bytes(msgspec.json.encode(Latencies((interval,))))
    return sample(*words)


def _run_replaced() -> int:
    # In a fixed order, for the same verdicts in each run.
    proving = partial(prove.Proving, random=Random(1))
    sample = partial(_count_requests, sampler.Sampler.sample)
    with (
        patch.object(run, "choose_subjects", _choose_subjects),
        patch.object(run, "probe_subject", _probe),
        patch.object(run, "find_disturbance", lambda subject: None),
        patch.object(verify, "Proving", proving),
        patch.object(sampler.Sampler, "sample", lambda *words: sample(*words)),
    ):
        return main()


if __name__ == "__main__":
    sys.exit(_run_replaced())
