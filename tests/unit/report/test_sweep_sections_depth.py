"""The section on depth sweeps."""

import re

from msgspec.structs import replace

from hbatune.facts.model import Medium, Protocol
from tests.unit import report_server as reported
from tests.unit.report.parsed_page import Parsed, parse_report


def test_knee_is_named_and_marked(full: Parsed) -> None:
    assert "Past depth 32: 2 % more IOPS" in full.text["depth"]
    assert "(it may be anywhere from 16 to 64)" in full.text["depth"]
    assert "The shaded stretch" in full.text["depth"]
    assert "knee: 32" in full.text["depth"]
    assert "32 knee of sda" in re.sub(r"\s+", " ", full.text[""])


def test_documented_knee_is_next_to_measured() -> None:
    report = reported.seen()
    endpoints = []
    for disk in report.machine.endpoints:
        endpoints.append(replace(disk, protocol=Protocol.NVME, medium=Medium.NVME))
    machine = replace(report.machine, endpoints=tuple(endpoints))
    text = parse_report(replace(report, machine=machine)).text["depth"]
    knee = r"Past depth 32: [^.]*; on such a medium it is at depth 64 to 128 \(D0-12\)\."
    assert re.search(knee, text), text
    assert re.search(r"1 job: [^.]*it is at depth 64 to 128", text), text


def test_unrecorded_knee_has_no_range() -> None:
    report = reported.seen()
    records = tuple(reported.depth_sweep(report.machine))
    text = parse_report(replace(report, records=records)).text["depth"]
    assert "Past depth 32:" in text
    assert "how sure it is is unknown" in text


def test_sweep_shows_cpu_limit(full: Parsed) -> None:
    text = full.text["depth"]
    assert "kernel 6.1.0-56-amd64, scheduler none, nr_requests 256, 38 °C." in text
    assert "From depth 256 on the CPUs are the limit" in text
    assert "load and interrupts" in text
    assert "6.19 µs of CPU time each" in text, "that of interrupts included"


def test_short_sweep_has_no_knee() -> None:
    report = reported.seen()
    server = report.machine
    short = parse_report(
        replace(report, records=tuple(reported.depth_sweep(server, depths=(1, 2, 4, 8))))
    )
    assert "No knee up to depth 8" in short.text["depth"]
    assert "knee: " not in short.text["depth"]
