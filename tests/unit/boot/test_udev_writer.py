"""The program that udev's rules start, against a directory in place of a disk's in sysfs."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from hbatune.act.paths import Paths
from hbatune.boot.compile import format_writer

SCHEDULER = "bracketed:queue/scheduler:{}:"
REQUESTS = "scheduled:queue/nr_requests:{}:"
DEPTH = "lower:device/queue_depth:{}:"
SECTORS = "different:queue/max_sectors_kb:{}:queue/max_hw_sectors_kb"
MERGES = "different:queue/nomerges:{}:"
SHELLS = [shell for shell in ("dash", "bash") if shutil.which(shell)]

# The directory is plain, so a function refuses writes in place of the kernel. The shell has emptied
# the file by then: the function writes the old text again.
BUSY = """
echo() {{
    count=$(cat "{count}")
    case $1 in
    mq-deadline) old='{scheduler}' ;;
    2048) old='{requests}' ;;
    *) old= ;;
    esac
    if [ -n "$old" ]; then
        printf '%s' "$((count + 1))" >"{count}"
        test "$count" -ge {times} || {{ printf '%s\\n' "$old"; return 1; }}
    fi
    printf '%s\\n' "$1"
}}
dd() {{
    cat >/dev/null
    echo "dd: error writing 'x': {error}" >&2
    return 1
}}
sleep() {{ printf '%s\\n' "$1" >>"{count}.pauses"; }}
"""


# The journal's program, in place of the machine's own.
LOGGER = 'timeout() { printf "%s|" "$@" >"$0.log"; }\n'
LOGGED = "5|logger|--priority|daemon.warning|--tag|hbatune|--|"


class Disk:
    """A directory with the files of a SCSI disk, and the program to run for it."""

    def __init__(self, root: Path, shell: str) -> None:
        self.root = root
        self.program = root / "write.sh"
        self._shell = shell
        self.directory = root / "sda"
        for name, text in {
            "queue/scheduler": "[none] mq-deadline kyber ",
            "queue/nr_requests": "64",
            "queue/max_sectors_kb": "1280",
            "queue/max_hw_sectors_kb": "512",
            "queue/nomerges": "0",
            "device/queue_depth": "32",
            "device/state": "running",
            "device/device_busy": "0",
            "device/iorequest_cnt": "0x20",  # one command timed out, and was never counted as done
            "device/iodone_cnt": "0x1f",
            "inflight": "       0        0",
            "stat": "1 0 8 1 2 0 8 1 0 1 1",
        }.items():
            self.put(name, text)
        self.marks = [root / "hands-off", root / "hands-off-now"]
        text = format_writer()
        for mark, place in zip((Paths.hands_off, Paths.hands_off_now), self.marks, strict=True):
            text = text.replace(f"-e {mark} ]", f"-e {place} ]")
        # A short wait for commands that do not end.
        assert "PATIENCE=100 " in text
        self.program.write_text(LOGGER + text.replace("PATIENCE=100 ", "PATIENCE=20 "))

    def put(self, name: str, text: str) -> None:
        """Set the content of a file."""
        file = self.directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def read(self, name: str) -> str:
        """Return the content of a file."""
        return (self.directory / name).read_text().strip()

    def run(self, *wishes: str) -> str:
        """Return the settings that the program could not set."""
        log = self.program.with_name("write.sh.log")
        log.write_text("")
        done = subprocess.run(
            [self._shell, self.program, self.directory, *wishes],
            capture_output=True,
            text=True,
            check=True,
            env={},  # as udev starts it, without PATH
        )
        unset = done.stdout.strip()
        message = f"hbatune could not set at sda: {unset}"
        assert log.read_text() == (f"{LOGGED}{message}|" if unset else "")
        assert done.stderr == ""
        return unset

    def refuse_writes(self, error: str, times: int) -> Path:
        """Have the next writes of a scheduler or nr_requests refused; return their counter."""
        count = self.root / "count"
        count.write_text("0")
        old = {
            "scheduler": self.read("queue/scheduler"),
            "requests": self.read("queue/nr_requests"),
        }
        wrapper = BUSY.format(count=count, error=error, times=times, **old)
        self.program.write_text(wrapper + self.program.read_text())
        return count


@pytest.fixture(params=SHELLS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return Disk(tmp_path, request.param)


def test_values_are_written_in_order(disk: Disk) -> None:
    wishes = (SCHEDULER.format("mq-deadline"), DEPTH.format(64), REQUESTS.format(2048))
    assert disk.run(*wishes, MERGES.format(2)) == ""
    assert disk.read("queue/scheduler") == "mq-deadline"
    assert disk.read("device/queue_depth") == "64"
    assert disk.read("queue/nr_requests") == "2048"
    assert disk.read("queue/nomerges") == "2"


def test_empty_wishes_write_nothing(disk: Disk) -> None:
    assert disk.run(SCHEDULER.format(""), DEPTH.format(""), REQUESTS.format("")) == ""
    assert disk.read("queue/scheduler").startswith("[none]")
    assert (disk.read("device/queue_depth"), disk.read("queue/nr_requests")) == ("32", "64")


def test_no_scheduler_keeps_nr_requests(disk: Disk) -> None:
    """Under `none` a smaller number takes tags from the entire adapter."""
    assert disk.run(SCHEDULER.format("none"), REQUESTS.format(32)) == ""
    assert disk.run(SCHEDULER.format(""), REQUESTS.format(32)) == ""
    disk.put("queue/scheduler", "none")  # a disk without a choice
    assert disk.run(SCHEDULER.format("mq-deadline"), REQUESTS.format(32)) == ""
    assert disk.read("queue/nr_requests") == "64"
    assert disk.read("queue/scheduler") == "none"


@pytest.mark.parametrize("schedulers", ["[none] mq-deadline kyber", "none mq-deadline [kyber]"])
def test_lost_scheduler_keeps_nr_requests(disk: Disk, schedulers: str) -> None:
    disk.put("queue/scheduler", schedulers)
    disk.refuse_writes("Invalid argument", times=9)
    wishes = (SCHEDULER.format("mq-deadline"), REQUESTS.format(2048))
    assert disk.run(*wishes) == "scheduler:refused"
    assert disk.read("queue/nr_requests") == "64"


@pytest.mark.parametrize("schedulers", ["[none] mq-deadline kyber", "none mq-deadline [kyber]"])
def test_active_scheduler_is_not_written_again(disk: Disk, schedulers: str) -> None:
    """Since 7.2, `none` over `none` resets nr_requests."""
    disk.put("queue/scheduler", schedulers)
    active = schedulers.partition("[")[2].partition("]")[0]
    assert disk.run(SCHEDULER.format(active)) == ""
    assert disk.read("queue/scheduler") == schedulers, "a write would leave only the name"


def test_existing_scheduler_allows_nr_requests(disk: Disk) -> None:
    disk.put("queue/scheduler", "none [kyber] mq-deadline")
    assert disk.run(SCHEDULER.format(""), REQUESTS.format(2048)) == ""
    assert disk.read("queue/nr_requests") == "2048"


def test_depth_is_only_raised(disk: Disk) -> None:
    assert disk.run(DEPTH.format(16)) == ""
    assert disk.read("device/queue_depth") == "32"


def test_maximum_is_obeyed(disk: Disk) -> None:
    assert disk.run(SECTORS.format(1024)) == ""
    assert disk.read("queue/max_sectors_kb") == "1280"
    assert disk.run(SECTORS.format(512)) == ""
    assert disk.read("queue/max_sectors_kb") == "512"


@pytest.mark.parametrize("holder", ["holders/md0", "sda1/holders/dm-2"])
def test_request_size_is_not_lowered_below_stack(disk: Disk, holder: str) -> None:
    (disk.directory / holder).mkdir(parents=True)
    disk.put("queue/max_hw_sectors_kb", "4096")
    assert disk.run(SECTORS.format(512)) == ""
    assert disk.read("queue/max_sectors_kb") == "1280"
    assert disk.run(SECTORS.format(2048)) == ""
    assert disk.read("queue/max_sectors_kb") == "2048"


def test_missing_file_is_skipped(disk: Disk) -> None:
    assert disk.run("different:queue/wbt_lat_usec:0:", MERGES.format(2)) == ""
    assert not (disk.directory / "queue/wbt_lat_usec").exists()
    assert disk.read("queue/nomerges") == "2"


def test_busy_write_is_repeated(disk: Disk) -> None:
    count = disk.refuse_writes("Device or resource busy", times=7)
    wishes = (SCHEDULER.format("mq-deadline"), REQUESTS.format(2048))
    assert disk.run(*wishes) == ""
    assert disk.read("queue/nr_requests") == "2048"
    assert int(count.read_text()) > 7


def test_pauses_between_writes_vary(disk: Disk) -> None:
    """Otherwise two disks of an adapter that have collided would collide each time."""
    count = disk.refuse_writes("Device or resource busy", times=40)
    assert disk.run(SCHEDULER.format("mq-deadline")) == ""
    pauses = Path(f"{count}.pauses").read_text().split()
    assert set(pauses) <= {"0.01", "0.02", "0.03", "0.04", "0.05", "0.06"}
    assert len(set(pauses)) > 1


@pytest.mark.parametrize(
    ("device", "adapter"),
    [
        ("pci/host7/target7:0:0/7:0:0:1", "pci/host7"),
        ("pci/host7/rport-7:0-1/target7:0:0/7:0:0:1", "pci/host7"),
        ("pci/nvme/nvme0", "pci/nvme/nvme0"),
    ],
)
def test_collided_disks_of_an_adapter_take_turns(disk: Disk, device: str, adapter: str) -> None:
    (disk.root / device).parent.mkdir(parents=True)
    os.rename(disk.directory / "device", disk.root / device)
    (disk.directory / "device").symlink_to(disk.root / device)
    log = disk.root / "locked"
    disk.refuse_writes("Device or resource busy", times=4)
    note_lock = f"flock() {{ readlink /proc/$$/fd/$3 >>{log}; }}\n"
    disk.program.write_text(note_lock + disk.program.read_text())
    assert disk.run(MERGES.format(2)) == ""
    assert not log.exists(), "nothing was refused"
    assert disk.run(SCHEDULER.format("mq-deadline"), REQUESTS.format(2048)) == ""
    assert log.read_text() == f"{disk.root / adapter}\n"
    assert disk.read("queue/nr_requests") == "2048"


def test_busy_write_ends(disk: Disk) -> None:
    text = disk.program.read_text()
    assert "RETRY=500" in text
    disk.program.write_text(text.replace("RETRY=500", "RETRY=20"))
    disk.refuse_writes("Device or resource busy", times=10**6)
    wishes = (SCHEDULER.format("mq-deadline"), REQUESTS.format(2048), MERGES.format(2))
    assert disk.run(*wishes) == "scheduler:busy"
    assert disk.read("queue/nr_requests") == "64"
    assert disk.read("queue/nomerges") == "2"


@pytest.mark.parametrize(
    ("name", "text"),
    [("inflight", "1 0"), ("inflight", "0 1"), ("device/device_busy", "1")],
)
def test_hanging_command_prevents_writes(disk: Disk, name: str, text: str) -> None:
    disk.put(name, text)
    wishes = (SCHEDULER.format("mq-deadline"), REQUESTS.format(2048), MERGES.format(2))
    assert disk.run(*wishes) == "scheduler:commands,nomerges:commands"
    assert disk.read("queue/scheduler").startswith("[none]")
    assert disk.read("queue/nomerges") == "0"


def test_completing_commands_allow_writes(disk: Disk) -> None:
    disk.put("inflight", "1 0")
    disk.program.write_text(
        f"sleep() {{ echo '2 0 8 1 2 0 8 1 0 1 1' >{disk.directory}/stat; }}\n"
        + disk.program.read_text()
    )
    assert disk.run(MERGES.format(2)) == ""
    assert disk.read("queue/nomerges") == "2"


@pytest.mark.parametrize("state", ["blocked", "offline", "quiesce", "transport-offline"])
def test_unusable_disk_is_skipped(disk: Disk, state: str) -> None:
    disk.put("device/state", state)
    assert disk.run(MERGES.format(2)) == "nomerges:commands"
    assert disk.read("queue/nomerges") == "0"


def test_disk_without_scsi_counters_is_written(disk: Disk) -> None:
    shutil.rmtree(disk.directory / "device")
    disk.put("device/state", "live")  # of an NVMe controller
    assert disk.run(MERGES.format(2)) == ""
    assert disk.read("queue/nomerges") == "2"


@pytest.mark.parametrize("number", [0, 1])
def test_rollback_stops_writes(disk: Disk, number: int) -> None:
    disk.marks[number].touch()
    assert disk.run(MERGES.format(2)) == "nomerges:rolled-back"
    assert disk.read("queue/nomerges") == "0"


def test_missing_logger_leaves_the_message_to_udev(disk: Disk) -> None:
    disk.put("device/state", "offline")
    program = disk.program.read_text().replace(LOGGER, "timeout() { return 127; }\n")
    disk.program.write_text(program)
    words = ["sh", str(disk.program), str(disk.directory), MERGES.format(2)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env={})
    assert done.stdout == "nomerges:commands\n"
    assert done.stderr == "hbatune could not set at sda: nomerges:commands\n"


def test_vanished_disk_is_no_error(disk: Disk) -> None:
    os.rename(disk.directory, disk.root / "gone")
    done = subprocess.run([SHELLS[0], disk.program, disk.directory, MERGES.format(2)], check=False)
    assert done.returncode == 0
