"""Every command on terminals of every width, with the longest names that are out there."""

import math
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from hbatune.act.paths import Paths
from hbatune.agent import status
from hbatune.checks.depth_checks import _LoweredDepth
from hbatune.checks.disk_checks import _StatisticsOff
from hbatune.checks.finding import Finding, Severity
from hbatune.cli import main
from hbatune.cli.commands import apply, check, probe
from hbatune.facts.model import Kind, Machine, Protocol
from hbatune.facts.sampler import LinkSample
from hbatune.operations.probe import Measured, ProbeRuns, find_standings
from hbatune.operations.verify import VerificationResult
from hbatune.plan import make
from hbatune.plan.rows import Outcome, Restored, Row, State
from hbatune.probe import history
from hbatune.probe.result import Doubt, Skip, Skipped
from hbatune.probe.sweeps import Sweep, SweptParameter
from hbatune.snapshot.file import encode_snapshot
from hbatune.text import terminal
from hbatune.text.notes import show_restored
from hbatune.text.probe_tables import show_curves
from hbatune.text.tables import Line, Table, format_table, measure_width
from hbatune.text.terminal import make_printable
from hbatune.text.units import format_rate
from hbatune.text.watch_view import Picture, View, format_screen, sort_readings
from hbatune.watch.alerts import AlertCondition
from hbatune.watch.readings import AdapterReading, Reading
from hbatune.watch.watch import Alert, WatchState
from tests.unit import report_server as reported
from tests.unit.check_inputs import adapter_health, disk_health, health, seen
from tests.unit.command_runs import see_machine
from tests.unit.machines import adapter, attributes, endpoint, machine, vector
from tests.unit.snapshots import snapshot
from tests.unit.statuses import GOOD, LEFT, RAMPING, WAITING
from tests.unit.terminals import Terminal

WIDTHS = (60, 80, 100, 132, 200)
MAP = "oracle_production_datawarehouse_asm_data_disk_01"
DISK = "a_disk_with_a_name_as_long_as_one_of_a_map_has"
SAS, NVME = "10000:e1:00.0", "10001:0a:00.0"
WWN = "naa.600508b400105e210000900000490000"
MODEL = "Vendor's Enterprise NVMe SSD 30.72TB Gen5"
"""As long as the model of an NVMe drive can be."""


def host() -> Machine:
    """Return a server with many disks, long names, a map, and interrupts that cannot be placed."""
    reported_host = reported.host()
    sas = replace(
        reported_host.adapters[0], target=SAS, product=MODEL, firmware="24.00.00.00-lenovo\n1"
    )
    nvme = replace(reported_host.adapters[1], target=NVME)
    moved = {reported.NVME: NVME, "0000:01:00.0": SAS}
    disks = [replace(disk, adapter=moved[disk.adapter or ""]) for disk in reported_host.endpoints]
    disks[1] = replace(disks[1], mounts=("/", "/boot/efi", "[SWAP]", "/srv/pgsql/15/main/base"))
    disks[2] = replace(disks[2], model=MODEL, vendor="HPE-LONG", id=f"{WWN}@{SAS}/fc-0x5-lun-12")
    disks[3] = replace(
        disks[3],
        target=DISK,
        attributes=attributes(
            queue__scheduler="[mq-deadline] none kyber bfq",
            queue__nr_requests="64",
            device__queue_depth="32",
        ),
    )
    paths_of = ("sdx", "sdy")
    ways = [
        endpoint(
            target=name,
            adapter=SAS,
            id=f"{WWN}@{SAS}/fc-0x5-lun-{name}",
            kind=Kind.PATH,
            map=MAP,
            protocol=Protocol.FC,
            holders=(MAP,),
        )
        for name in paths_of
    ]
    multipath_map = endpoint(
        target=MAP,
        adapter=None,
        id=f"mpath-{WWN}",
        kind=Kind.MAP,
        paths=paths_of,
        protocol=Protocol.FC,
        mounts=("/u01/oradata",),
        attributes=attributes(queue__scheduler="[mq-deadline] none", queue__nr_requests="128"),
    )
    vectors = [replace(vector, adapter=moved[vector.adapter]) for vector in reported_host.vectors]
    vectors += [vector(irq=200, adapter=SAS, managed=True, names=("mpt3sas0-msix99",))]
    return replace(
        reported_host,
        adapters=(nvme, sas),
        # In an order in which no person would count.
        endpoints=(*reversed(disks), *ways, multipath_map),
        vectors=tuple(vectors),
        local_cpus={SAS: tuple(range(16)), NVME: tuple(range(16, 32))},
    )


def plain(line: Line) -> str:
    return "".join(piece.text for piece in line)


class Screen:
    """The output of a command, and the tables in it."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.tables: list[Table] = []
        self.out = Terminal()

    @property
    def text(self) -> str:
        return re.sub(r"\x1b\[[0-9;]*m", "", self.out.getvalue())

    def check(self) -> None:
        """Assert that all lines fit, and that no name, value, state or word is missing."""
        lines = self.text.split("\n")
        assert [line for line in lines if measure_width(line) > self.width] == []
        assert all(make_printable(line) == line for line in lines)
        for drawn in self.tables:
            drawn_text = "\n".join(plain(line) for line in format_table(drawn, self.width))
            assert drawn_text in self.text
            words = set(drawn_text.split())
            for row in drawn.rows:
                for cell, column in zip(row, drawn.columns, strict=True):
                    for part in (cell,) if isinstance(cell, str) else cell:
                        if column.is_prose:
                            assert set(part.split()) <= words, part
                        elif part not in ("", "-"):
                            assert "…" not in part
                            self.assert_whole(part, drawn_text)

    def assert_whole(self, part: str, drawn_text: str) -> None:
        """Assert that a name is on one line, or on consecutive full lines if it is too long."""
        if measure_width(part) <= self.width:
            assert any(part in line for line in drawn_text.split("\n")), part
        else:
            # The path of the checkout may have blanks, where a line may end.
            assert "".join(part.split()) in "".join(drawn_text.split()), part


Show = Callable[..., Screen]


@pytest.fixture(params=WIDTHS)
def width(request: pytest.FixtureRequest) -> int:
    """Return the width of a terminal."""
    assert isinstance(request.param, int)
    return request.param


@pytest.fixture
def show(width: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Show:
    """Return a function that shows a command on a terminal of one of the widths."""
    see_machine(monkeypatch, lambda: host())
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("HBATUNE_PAGER", "")
    screen = Screen(width)

    def recorded(table: Table, width: int | None) -> Iterator[Line]:
        screen.tables.append(table)
        return format_table(table, width)

    monkeypatch.setattr(terminal, "format_table", recorded)

    def run(*words: str, code: int | None = 0, by: Callable[[], object] | None = None) -> Screen:
        with redirect_stdout(screen.out):
            done = by() if by else main(list(words))
        assert code is None or by or done == code
        screen.check()
        return screen

    return run


def ailing(tmp_path: Path) -> str:
    """Save a snapshot of a machine with many findings; return its path."""
    ailing_host = host()
    host_snapshot = snapshot(ailing_host, active="oltp")
    disks = {disk.target: disk_health() for disk in ailing_host.endpoints}
    for name in ("sda", "sdb", "sdk", MAP):
        disks[name] = disk_health(timeouts=3)
    disks["sdc"] = disk_health(timeouts=7)
    adapters = {
        SAS: adapter_health(vectors=0),
        NVME: adapter_health(),
    }
    host_snapshot = replace(
        host_snapshot, health=health(ailing_host, disks=disks, adapters=adapters)
    )
    path = tmp_path / "host.snapshot"
    path.write_bytes(encode_snapshot(host_snapshot))
    return str(path)


def test_list_fits_any_width(show: Show) -> None:
    assert "1 of 10" in " ".join(show("list").text.split())
    text = show("list", "--all").text
    # Whatever the width: what is in use is said, and targets are in the order of people.
    assert "/srv/pgsql/15/main/base" in text
    assert "[SWAP]" in text
    places = [re.search(rf"(^|TARGET +){name}( |$)", text, re.M) for name in ("sdb", "sdc", "sdk")]
    assert [place.start() for place in places if place] == sorted(e.start() for e in places if e)
    assert text.index(SAS) < text.index(NVME) < text.index("over several adapters")
    assert "lenovo\\n1" in text


def test_diff_fits_any_width(show: Show) -> None:
    text = show("diff", "--profile", "oltp", code=1).text
    assert DISK in text
    flat = " ".join(text.split())
    assert "15 interrupts (irq81..irq95): irq_affinity is fixed: set by the kernel" in flat
    assert "irq200: irq_affinity is fixed" in flat
    assert flat.count("boot with isolcpus=managed_irq,30-31") == 1, "one vector is on these CPUs"


def test_reason_stands_at_its_row(show: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (adapter(target=target) for target in (SAS, NVME))
    disks = (endpoint(target="sda", adapter=SAS), endpoint(target="sdb", adapter=NVME))
    scanned = machine(*disks, adapters=(first, second))
    see_machine(monkeypatch, lambda: scanned)
    flat = " ".join(show("diff", "--profile", "oltp", code=1).text.split())
    row = "nr_requests 256 → 2048 lets the block layer queue bursts, up to the kernel's maximum"
    assert flat.count(row) == 2, "one for each adapter"


def test_full_diff_fits_any_width(show: Show) -> None:
    text = show("diff", "--profile", "oltp", "--all", code=1).text
    assert all(f"irq{number}" in text for number in range(81, 97))
    assert "is fixed:" not in text


def test_check_fits_any_width(show: Show, tmp_path: Path) -> None:
    check_output = show("check", "--snapshot", ailing(tmp_path), code=1)
    flat = " ".join(check_output.text.split())
    assert flat.count("look at the kernel's log for this disk") <= 1
    assert re.search(r"\bwarning\b", check_output.text)


def test_every_finding_has_its_advice(show: Show) -> None:
    check_input = seen(host())
    sunk = [_LoweredDepth(depth, 64, None) for depth in (3, 4)]
    findings = [
        Finding("depth-sunk", Severity.WARNING, "sda", None, sunk[0], "K-ramp"),
        Finding("iostats-off", Severity.WARNING, "sda", None, _StatisticsOff(), "K-ramp"),
        Finding("depth-sunk", Severity.WARNING, "sdb", None, sunk[1], "K-ramp"),
    ]
    text = " ".join(show(by=lambda: check._show_findings(check_input, findings)).text.split())
    assert text.count("find out why the target's queue is full") == 2
    assert text.count("it saves a little CPU time") == 1


def test_explain_fits_any_width(show: Show, tmp_path: Path) -> None:
    show("explain", MAP, "--profile", "oltp")
    explain_output = show("explain", DISK, "nr_requests", "--profile", "oltp")
    assert re.search(r"\bdecides\b", explain_output.text)


def test_profiles_fit_any_width(show: Show) -> None:
    show("profiles")
    show("profiles", "oltp")


def test_history_fits_any_width(show: Show) -> None:
    records = [
        replace(record, target=MAP if record.target == "sdd" else record.target)
        for record in reported.seen().records
    ]
    single = next(record for record in records if record.result and not record.proof)
    history.append(Paths.history, [*records, replace(single, time=single.time + 9000)])
    text = show("history").text
    rate = format_rate(single.result.figures.iops) if single.result else ""
    last_time = rf"the\s+last\s+time\s+{rate}\s+IOPS\s+and\s+p99\s+[\d.]+\s+µs"
    assert re.search(last_time, text), "the figures of the run before, and no change in percent"
    assert re.search(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}", text)
    assert re.search(r"past depth 32", text)


def test_status_fits_any_width(show: Show) -> None:
    changes = [
        replace(change, target=name) for change in (LEFT, WAITING) for name in (MAP, "sdz", "sdb")
    ]
    alert = Alert(AlertCondition.P99, "id", MAP, SAS, 12.5, 2.0, "p99", 1000.0, "D0-9")
    status.save(Paths.status, replace(GOOD, open=(*changes, RAMPING), alerts=(alert,)))
    text = show("status", code=1).text
    assert text.index("sdb") < text.index("sdz")


def test_report_fits_any_width(show: Show, tmp_path: Path) -> None:
    page = tmp_path / ("a-folder-with-a-long-name-" * 3) / "page.html"
    page.parent.mkdir()
    show("report", str(page), "--snapshot", ailing(tmp_path))


def test_probe_fits_any_width(show: Show) -> None:
    show("probe")
    records = []
    for record in reported.depth_sweep(reported.host()):
        if record.result is not None:
            records.append(replace(record.result, target=MAP))
    runs = [Measured(record.workload, record, None) for record in records]
    runs[1] = Measured(runs[1].workload, runs[1].outcome, Doubt.TOO_FEW)
    runs.append(Measured(records[0].workload, Skipped(MAP, Skip.BUSY, f"by {'x' * 30}"), None))
    probed = ProbeRuns(machine=reported.host(), runs=tuple(runs))
    show(by=lambda: probe._show_runs(probed))
    show(by=lambda: show_curves([Sweep(SweptParameter.DEPTH, tuple(records))], {}))


def test_apply_fits_any_width(show: Show) -> None:
    scanned, profile = host(), reported.oltp()
    plan = make.make_plan(scanned, profile)
    proofs = [
        replace(proof, target=name)
        for number, name in ((3, MAP), (4, "sdb"))
        if (proof := reported.proof(reported.host(), 1.25, number, 0).proof)
    ]

    def outcome(row: Row) -> Row:
        if row.state is not State.DRIFT:
            return row
        if row.target == "sdb":
            return replace(row, outcome=Outcome.REVERTED)
        failed = row.target == DISK
        return replace(
            row,
            outcome=Outcome.REFUSED if failed else Outcome.WRITTEN,
            errno=22 if failed else None,
        )

    rows = tuple(outcome(row) for row in plan.rows)
    reverted = {(row.id, row.setting): proofs[0] for row in rows if row.outcome is Outcome.REVERTED}
    verified = VerificationResult(rows=rows, proofs=proofs, reverted=reverted)
    results = [record.result for record in reported.lone(reported.host()) if record.result]
    pairs = [SimpleNamespace(before=replace(results[0], target=MAP), after=results[1])]
    applied = SimpleNamespace(
        plan=plan,
        rows=rows,
        situation=SimpleNamespace(machine=scanned, profile=profile, chosen=scanned),
        probes=pairs,
        verified=verified,
        standings=find_standings([replace(results[0], target=MAP)], scanned, profile),
    )
    arguments = SimpleNamespace(json=False, all=False, once=False)
    apply_output = show(by=lambda: apply._print_report(applied, arguments))  # type: ignore[arg-type]
    assert re.search(r"\breverted\b", apply_output.text)


def test_dry_run_fits_any_width(show: Show) -> None:
    show("apply", "--profile", "oltp", "--dry-run", code=None)


def test_rollback_fits_any_width(show: Show) -> None:
    scanned = host()
    entries = [
        Restored(
            target=disk.target,
            id=disk.id,
            adapter=disk.adapter,
            setting="nr_requests",
            before=number,
            current=2048,
            outcome=Outcome.REFUSED if number % 3 else Outcome.WRITTEN,
            errno=16 if number % 3 else None,
        )
        for number, disk in enumerate(scanned.endpoints)
    ]
    text = show(by=lambda: show_restored(entries, scanned)).text
    assert "could not be restored" in text
    assert re.search(r"TARGET +SETTING", text)


def test_watch_fits_any_screen(width: int) -> None:
    alerts = [
        Alert(AlertCondition.P99, f"id{n}", MAP, SAS, 12.5, 2.0, "p99", 1000.0, "D0-9")
        for n in range(20)
    ]
    disks = [
        Reading(
            name,
            name,
            SAS,
            2.0,
            123456.7,
            5e9,
            5e9,
            1.25,
            1234.5,
            23456.7,
            None,
            1023.4,
            1.0,
            128,
            False,
            {},
            {},
            2.0,
            64,
        )
        for name in (MAP, "sdaa", "sdz", *(f"nvme{number}n1" for number in range(40)))
    ]
    server = AdapterReading(SAS, LinkSample(16.0, 8), 3, 0.5, {}, {})
    endpoints = {disk.id: endpoint(target=disk.target, id=disk.id) for disk in disks}
    state = WatchState(0.0, tuple(disks), (server,), tuple(alerts))
    trends = [dict.fromkeys(endpoints, value) for value in (1.0, None, math.inf) * 10]
    reason = "no p99: run `mount -t tracefs tracefs /sys/kernel/tracing`, or use the host"
    rank = partial(sort_readings, disks)
    products = {SAS: "SAS " * 9}
    picture = Picture("db07", "oltp", 2.0, endpoints, products, state, state, rank, reason, trends)
    row = re.compile(rf"(✗ +)?(nvme\d+n1|sdz|sdaa|{MAP})( |$)")
    for height in (10, 24, 60, 400):
        lines, _ = format_screen(picture, View(), width, height)
        text = [plain(line) for line in lines]
        assert len(text) == height
        assert all(measure_width(line) <= width for line in text)
        if height < 24 or width < 40:
            continue
        shown_count = sum(bool(row.match(line)) for line in text)
        hidden_counts = [
            int(match[1]) for line in text if (match := re.match(r"(\d+) more disks", line))
        ]
        assert shown_count + sum(hidden_counts) == len(disks), "those that do not fit are counted"
