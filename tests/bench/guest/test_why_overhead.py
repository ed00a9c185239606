"""The rate of a disk while `hbatune why` traces it, against its rate without."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.bench.guest.comparison import compared, in_turns, save
from tests.lab.guest.command import Done, Forked
from tests.lab.guest.kit import set_service_time, wait_a_moment
from tests.lab.guest.values import cat, put

KERNELS = ("6.12",)
ARTIFACTS = Path("/run/lab/artifacts")  # the host fetches its files
ROUNDS = 11
SECONDS = 10
"""The default of `why`."""
DEPTH = 16
TIME = Path("/run/lab/time")
"""The seconds of 10,000 reads during the last trace."""
BPFTRACE_ROUNDS = 5
STAGES = """
tracepoint:block:block_bio_queue /args->dev == DISK/ { @queued[args->sector] = nsecs; }
tracepoint:block:block_getrq /args->dev == DISK && @queued[args->sector]/ {
    @got[args->sector] = nsecs;
    @to_request = hist(nsecs - @queued[args->sector]);
    delete(@queued[args->sector]);
}
tracepoint:block:block_rq_issue /args->dev == DISK && @got[args->sector]/ {
    @sent[args->sector] = nsecs;
    @to_issue = hist(nsecs - @got[args->sector]);
    delete(@got[args->sector]);
}
tracepoint:block:block_rq_complete /args->dev == DISK && @sent[args->sector]/ {
    @to_completion = hist(nsecs - @sent[args->sector]);
    delete(@sent[args->sector]);
}
interval:s:1 { printf("recording\\n"); }
"""
"""The three stages of `why` for bpftrace, with the fewest events."""


@contextmanager
def loaded(disk: str) -> Iterator[None]:
    """Read as fast as all CPUs can."""
    reads = ("--readonly", "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=io_uring")
    shape = (f"--iodepth={DEPTH}", f"--numjobs={os.cpu_count()}", "--time_based", "--runtime=3600")
    words = ("fio", "--name=load", f"--filename=/dev/{disk}", "--thread", *reads, *shape)
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as running:
        try:
            while count_reads(disk) < 5000:
                assert running.poll() is None
                wait_a_moment()
            yield
        finally:
            running.kill()


def count_reads(disk: str) -> int:
    """Return the completed reads of the disk."""
    return int(cat(disk, "stat").split()[0])


def note_time(disk: str) -> None:
    """Have `why` note the time of a read during its trace."""
    from hbatune.operations import why

    trace = why._Tracing.run

    def run(tracing: why._Tracing, *arguments: Any) -> None:
        began, reads = time.monotonic(), count_reads(disk)
        trace(tracing, *arguments)
        seconds = time.monotonic() - began
        TIME.write_text(str(1e4 * seconds / (count_reads(disk) - reads)))

    why._Tracing.run = run  # type: ignore[assignment]


def explain(disk: str) -> Done:
    """Run `why`. Its trace leaves its time in ``TIME``."""
    done = Forked("why", disk, "--json", prepare=partial(note_time, disk)).wait()
    assert done.code == 0, done.out + done.err
    return done


def time_reads(disk: str) -> float:
    """Return the seconds of 10,000 reads."""
    began, reads = time.monotonic(), count_reads(disk)
    time.sleep(SECONDS)
    return 1e4 * (time.monotonic() - began) / (count_reads(disk) - reads)


@pytest.mark.deadline(1500)
def test_tracing_costs_few_iops(full_lun: str, series: str) -> None:
    set_service_time("delay", 0)
    put(full_lun, "queue/scheduler", "none")
    requests, shares = [], []

    def trace() -> float:
        done = explain(full_lun)
        requests.append(done.json["requests"])
        shares.append(done.json["traced"])
        return float(TIME.read_text())

    with loaded(full_lun):
        traced, free = in_turns(ROUNDS, trace, partial(time_reads, full_lun))
    comparison = compared(
        f"why-{series}",
        f"reading a disk that `why` traces, kernel {series}",
        1.03,
        ("10,000 reads during the trace", traced),
        ("10,000 reads without a trace", free),
        {
            "load": f"random 4K reads, {DEPTH} in flight on each CPU, as fast as they can",
            "machine": "QEMU without KVM, scsi_debug without a delay",
            "requests": f"{median(requests):g} in an answer (median)",
            "traced": f"{median(shares):.1%} of the time (median)",
        },
    )
    save(comparison, ARTIFACTS / "bench")
    assert comparison.met, comparison


@pytest.mark.deadline(1500)
def test_bpftrace_costs_more(full_lun: str, series: str) -> None:
    """So `why` does not use it."""
    set_service_time("delay", 0)
    put(full_lun, "queue/scheduler", "none")
    major, minor = map(int, cat(full_lun, "dev").split(":"))
    program = STAGES.replace("DISK", str(major << 20 | minor))
    starts, sizes = [], []

    def trace() -> float:
        explain(full_lun)
        return float(TIME.read_text())

    def trace_with_bpftrace() -> float:
        began = time.monotonic()
        with subprocess.Popen(("bpftrace", "-e", program), stdout=subprocess.PIPE) as running:
            try:
                assert running.stdout is not None
                while running.stdout.readline() != b"recording\n":
                    assert running.poll() is None
                starts.append(time.monotonic() - began)
                status = Path(f"/proc/{running.pid}/status").read_text()
                sizes.append(int(status.partition("VmRSS:")[2].split()[0]) >> 10)
                return time_reads(full_lun)
            finally:
                running.kill()

    with loaded(full_lun):
        traced, by_bpftrace = in_turns(BPFTRACE_ROUNDS, trace, trace_with_bpftrace)
    comparison = compared(
        f"why-bpftrace-{series}",
        f"reading a disk that `why` traces, against one that bpftrace traces, kernel {series}",
        1.0,
        ("10,000 reads during the trace", traced),
        ("10,000 reads while bpftrace measures the three stages", by_bpftrace),
        {
            "load": f"random 4K reads, {DEPTH} in flight on each CPU, as fast as they can",
            "machine": "QEMU without KVM, scsi_debug without a delay",
            "bpftrace": f"{median(starts):.0f} s to begin, {median(sizes)} MiB (medians)",
        },
    )
    save(comparison, ARTIFACTS / "bench")
    assert comparison.met, comparison
