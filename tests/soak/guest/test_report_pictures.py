"""The report of all that can be measured by real probes: it has the documents' pictures."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.guest.command import hbatune

KERNELS = ("6.1",)

PICTURES = (
    "Percentiles of latency",
    "Throughput against latency",
    "IOPS over depth, by depth of the LUN",
    "Mean response time over IOPS",
    "IOPS of random I/O over depth",
    "Throughput of sequential I/O over depth",
    *(
        f"{picture}: {pattern}"
        for picture in (
            "IOPS of all disks over block size",
            "Throughput of all disks over block size",
            "IOPS of all disks over CPU time",
        )
        for pattern in ("random reads", "sequential writes", "random writes")
    ),
    "IOPS over block size",
    "CPU time over block size",
    "Throughput over block size",
    "IOPS over CPU time",
    "IOPS over the percentage of reads",
    "Latency over the share of reads",
    "Latency of a reader, with and without a bulk writer",
)
"""Those that docs/report.md names for the documents', and that of interference."""


@pytest.mark.deadline(3600)
def test_report_has_every_picture(scsi_debug: Callable[..., list[str]], tmp_path: Path) -> None:
    disk, second_disk = scsi_debug(max_luns=2, dev_size_mb=64, delay=0, ndelay=5_000_000)
    for words in (
        ("depth-sweep", disk),
        ("queue-depth", disk),
        ("block-sweep-small", disk, second_disk, "--together"),
        ("block-sweep-writes", disk, second_disk, "--together", "--destructive"),
        ("oltp1-load", disk, "--destructive"),
        ("four-corners", disk, "--destructive"),
        ("mix-sweep", disk, "--destructive"),
        ("interference", disk, "--destructive"),
    ):
        done = hbatune("probe", *words, "--runtime", "0.5")
        assert done.code == 0, done.out + done.err
    page = tmp_path / "report.html"
    done = hbatune("report", str(page))
    assert done.code == 0, done.err
    drawn = set(re.findall(r"<h4>(.*?)</h4>", page.read_text()))
    assert set(PICTURES) <= drawn, sorted(drawn)
