"""The commands outstanding at a disk's queue, read from files."""

from pathlib import Path

import pytest

from hbatune.facts import commands
from hbatune.facts.commands import CommandCounters, Hang, QueueLoad, find_hang

HOST = "devices/0000:01:00.0/host3"


def make_disk(top: Path, position: str = "target3:0:0", **files: str) -> Path:
    """Make a SCSI disk below a host, and the files with these texts below its block device."""
    device = top / HOST / position / "3:0:0:0"
    disk = device / "block/sda"
    disk.mkdir(parents=True)
    (disk / "device").symlink_to(device)
    for path, text in files.items():
        (disk / path.replace("__", "/")).write_text(text)
    return disk


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_idle_disk_ignores_old_timeouts(tmp_path: Path) -> None:
    """Older kernels never count a command as done that timed out."""
    counters = {"device__iorequest_cnt": "0x1a", "device__iodone_cnt": "0x18"}
    disk = make_disk(tmp_path, inflight="0 0\n", device__device_busy="0\n", **counters)
    assert CommandCounters(str(disk)).read() == QueueLoad()


@pytest.mark.parametrize(
    ("in_flight", "busy", "outstanding"),
    [("       1        2\n", "3\n", 3), ("0 0\n", "1\n", 1), ("4 0\n", "1\n", 4)],
    ids=["read", "SG_IO or iostats 0", "waiting in the scheduler"],
)
def test_larger_count_is_outstanding(
    tmp_path: Path, in_flight: str, busy: str, outstanding: int
) -> None:
    disk = make_disk(tmp_path, inflight=in_flight, device__device_busy=busy)
    assert CommandCounters(str(disk)).read().outstanding == outstanding


def test_completions_of_all_types_count(tmp_path: Path) -> None:
    fields = [0] * 17
    fields[0], fields[4], fields[11], fields[15] = 1, 20, 300, 4000
    statistics = " ".join(map(str, fields))
    disk = make_disk(tmp_path, inflight="1 0", stat=statistics, device__iodone_cnt="0x1\n")
    assert CommandCounters(str(disk)).read().completed == 4322


@pytest.mark.parametrize(
    ("position", "file", "text", "state"),
    [
        ("target3:0:0", "target3:0:0/3:0:0:0/state", "blocked", "the device is blocked"),
        ("target3:0:0", "scsi_host/host3/state", "recovery", "the host is recovery"),
        (
            "rport-3:0-1/target3:0:0",
            "rport-3:0-1/fc_remote_ports/rport-3:0-1/port_state",
            "Blocked",
            "the port is Blocked",
        ),
        (
            "session2/target3:0:0",
            "session2/iscsi_session/session2/state",
            "FAILED",
            "the session is FAILED",
        ),
    ],
)
def test_state_without_commands_is_reported(
    tmp_path: Path, position: str, file: str, text: str, state: str
) -> None:
    disk = make_disk(tmp_path, position, inflight="0 0")
    write(tmp_path / HOST / file, f"{text}\n")
    assert CommandCounters(str(disk)).read() == QueueLoad(state=state)


def test_healthy_states_are_not_reported(tmp_path: Path) -> None:
    disk = make_disk(tmp_path, "rport-3:0-1/target3:0:0", device__state="running\n")
    write(tmp_path / HOST / "scsi_host/host3/state", "running\n")
    write(tmp_path / HOST / "rport-3:0-1/fc_remote_ports/rport-3:0-1/port_state", "Online\n")
    assert CommandCounters(str(disk)).read() == QueueLoad()


def test_suspended_map_is_reported(tmp_path: Path) -> None:
    write(tmp_path / "dm-0/dm/suspended", "1\n")
    assert CommandCounters(str(tmp_path / "dm-0")).read().state == "the map is suspended"


def test_age_is_that_of_oldest_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "DEBUGFS", tmp_path)
    counters = CommandCounters("/sys/devices/x/block/sda")
    assert counters.read_age() is None
    line = (
        "0000000012345678 {{.op=READ, .state=in_flight, .cmd=Read(10), allocated {}.120 s ago}}\n"
    )
    write(tmp_path / "sda/hctx0/busy", line.format(3))
    write(tmp_path / "sda/hctx1/busy", line.format(9) + line.format(31))
    assert counters.read_age() == 31


class Loads(CommandCounters):
    """Counters that show one load after the other, and then the last one."""

    def __init__(self, *loads: QueueLoad) -> None:
        self.loads = list(loads)
        self.reads = 0

    def read(self) -> QueueLoad:
        self.reads += 1
        return self.loads.pop(0) if len(self.loads) > 1 else self.loads[0]

    def read_age(self) -> int | None:
        return 31


def test_idle_queue_is_not_observed() -> None:
    counters = Loads(QueueLoad(0, 5))
    assert find_hang(counters) is None
    assert counters.reads == 1


@pytest.mark.parametrize(
    "later", [QueueLoad(0, 5), QueueLoad(2, 6)], ids=["it ends", "another one ends"]
)
def test_slow_command_does_not_hang(later: QueueLoad) -> None:
    assert find_hang(Loads(QueueLoad(2, 5), QueueLoad(2, 5), later)) is None


def test_number_and_age_of_hanging_commands_are_found() -> None:
    assert find_hang(Loads(QueueLoad(2, 5)), 0) == Hang(2, 31)


class Clock:
    """The time in seconds, which passes only in pauses."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class LateLoads(CommandCounters):
    """Counters of a disk that completes its only command at a time of the clock."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock, self.seconds = clock, seconds

    def read(self) -> QueueLoad:
        return QueueLoad(1, int(self.clock.seconds >= self.seconds))

    def read_age(self) -> int | None:
        return None


@pytest.mark.parametrize(("completes_at", "hang"), [(0.9, None), (1.2, Hang(1, 1))])
def test_observation_ends_after_a_second(
    completes_at: float, hang: Hang | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(commands, "time", clock)
    assert find_hang(LateLoads(clock, completes_at)) == hang
    assert clock.seconds == pytest.approx(min(completes_at, 1.0), abs=0.05)


def test_state_is_found_unless_it_passes() -> None:
    recovering = QueueLoad(0, 0, "the host is recovery")
    assert find_hang(Loads(recovering, QueueLoad())) is None
    hang = find_hang(Loads(recovering), 0)
    assert hang is not None
    assert hang.state == recovering.state
