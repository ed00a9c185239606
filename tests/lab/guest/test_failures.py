"""Writes that fail, disks that go away or hang: the right outcome for each row, the others done."""

import fcntl
import os
import select
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hbatune.act import lock, paths
from tests.lab.guest.command import JOURNAL, configure, hbatune, installed
from tests.lab.guest.hang import hung, see_no_commands
from tests.lab.guest.kit import scsi_disks
from tests.lab.guest.values import BLOCK, cat, everything, put, put_back, scheduler

KERNELS = ("6.1",)
pytestmark = pytest.mark.usefixtures("virtual_disks_wanted")
LOCK = Path("/run/hbatune/lock")

ScsiDebug = Callable[..., list[str]]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Each test ends with everything as it found it."""
    before = everything()
    yield
    configure("")
    hbatune("rollback")
    after = everything()
    assert {name: after.get(name) for name in before if name in after} == {
        name: text for name, text in before.items() if name in after
    }


def test_read_only_sys_stops_apply() -> None:
    before = everything()
    mounts = (
        f"mount --bind {path} {path} && mount -o remount,ro,bind {path}"
        for path in ("/sys", "/proc/irq")
    )
    script = " && ".join((*mounts, "exec hbatune apply --profile oltp --no-probe --json"))
    bind = ("unshare", "-m", "sh", "-c", script)
    done = subprocess.run(bind, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "/sys is mounted read-only" in done.stderr
    assert everything() == before
    assert not JOURNAL.exists(), "what was not changed needs no baseline"


def test_vanished_lun_is_reported(scsi_debug: ScsiDebug) -> None:
    from hbatune.act import journal, paths
    from hbatune.act.executor import Means
    from hbatune.act.writer import write_plan
    from hbatune.operations.situation import SituationRequest, read_situation
    from hbatune.plan.rows import Outcome

    first, second, *_ = luns = scsi_debug(max_luns=4)
    situation = read_situation(SituationRequest(profile="oltp", targets=luns))
    plan = situation.plan()
    assert {(row.target, row.setting) for row in plan.drift} == {
        (lun, "nr_requests") for lun in luns
    }
    put(second, "device/delete", "1")
    means = Means(
        journal=paths.JOURNAL, claims=paths.CLAIMS, spent=paths.SPENT, workers=4, deadline=10.0
    )
    filed = journal.load(paths.JOURNAL, situation.machine.boot_id)[0]
    rows = write_plan(situation.machine, plan, filed, means)
    for row in rows:
        if row.setting != "nr_requests":
            continue
        expected = Outcome.VANISHED if row.target == second else Outcome.WRITTEN
        assert row.outcome is expected, row
    assert cat(first, "queue/nr_requests") == "2048"


def _wait_until_gone(pid: int) -> None:
    try:
        watch = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    select.select([watch], [], [])
    os.close(watch)


def test_hung_lun_spares_healthy_luns(
    scsi_debug: ScsiDebug,
) -> None:
    luns = scsi_debug(max_luns=4)
    sick, *well = luns
    configure("[act]\ndeadline_seconds = 2\n")
    put(sick, "queue/scheduler", "none")
    before = everything()
    with hung(sick) as reader:
        words = ("apply", "--profile", "oltp", "--no-probe", "--json", *luns)
        done = hbatune(*words, prepare=see_no_commands)
        assert reader.poll() is None, "the disk hung long enough"
        assert done.code == 1, done.err
        stuck = done.rows(target=sick, outcome="stuck")
        assert [row["setting"] for row in stuck] == ["scheduler"]
        remaining_rows = [row for row in done.rows(target=sick, state="drift") if row not in stuck]
        assert {(row["outcome"], row["errno"]) for row in remaining_rows} == {("cancelled", None)}
        for disk in well:
            assert {row["outcome"] for row in done.rows(target=disk, state="drift")} == {"written"}
            assert cat(disk, "queue/nr_requests") == "2048"
        [writer] = [claim.pid for claim in lock.find_outstanding_claims(paths.CLAIMS)]
        status = Path(f"/proc/{writer}/status").read_text()
        assert "State:\tD" in status, "the writer is still in the kernel"

        diff = hbatune("diff", "--json")
        assert reader.poll() is None
        assert {row["state"] for row in diff.rows(target=sick)} == {"unreadable"}
        assert str(writer) in diff.err
        assert diff.rows(target=well[0], state="ok")

        again = hbatune("apply", "--profile", "oltp", "--no-probe", "--json", *well)
        assert again.code == 0, "the next run is not locked out\n" + again.err
        back = hbatune("rollback", "--json", sick)
        assert back.code == 1
        assert {row["outcome"] for row in back.rows(target=sick)} == {"stuck"}
        assert reader.poll() is None, "all of that while the disk hung"
    _wait_until_gone(writer)
    assert scheduler(sick) == "mq-deadline", "the write of a killed worker lands late"
    late = hbatune("diff")
    assert f"{sick}: the late write of scheduler has landed" in late.err, late.err
    back = hbatune("rollback")
    assert back.code == 0, back.out + back.err
    assert everything() == before
    assert hbatune("uninstall").code == 0  # what was rolled back by name would stay so


def test_diff_survives_unresponsive_disk(scsi_debug: ScsiDebug) -> None:
    """Somebody else's write is stuck behind the hung I/O, and reads of the queue behind that."""
    luns = scsi_debug(max_luns=3)
    sick, *well = luns
    configure("[act]\ndeadline_seconds = 2\n")
    was = cat(sick, "queue/nr_requests")
    with hung(sick) as reader:
        writer = subprocess.Popen(["sh", "-c", f"echo 64 > {BLOCK}/{sick}/queue/nr_requests"])
        while "State:\tD" not in Path(f"/proc/{writer.pid}/status").read_text():
            os.sched_yield()
        diff = hbatune("diff", "--profile", "oltp", "--json", *luns)
        assert reader.poll() is None
        assert diff.code == 1
        unreadable = {row["setting"] for row in diff.rows(target=sick, state="unreadable")}
        assert {"scheduler", "nr_requests"} <= unreadable
        for disk in well:
            assert not diff.rows(target=disk, state="unreadable")
        listed = hbatune("list", "--json")
        assert sick in {endpoint["target"] for endpoint in listed.json["endpoints"]}
    writer.wait()
    put(sick, "queue/nr_requests", was)


def test_offline_disk_is_skipped(scsi_debug: ScsiDebug) -> None:
    luns = scsi_debug(max_luns=2)
    put(luns[0], "device/state", "offline\n")
    done = hbatune("apply", "--profile", "oltp", "--no-probe", "--json", *luns)
    assert done.code == 1
    assert {row["state"] for row in done.rows(target=luns[0], setting="scheduler")} == {
        "unreadable"
    }
    assert scheduler(luns[1]) == "mq-deadline"
    put(luns[0], "device/state", "running\n")


def test_clamped_value_is_detected() -> None:
    """virtio_scsi takes any depth and makes it cmd_per_lun, without an error."""
    from hbatune.act.chain import Chain, Step
    from hbatune.plan.rows import Outcome
    from tests.kernel.chains import write_chain

    disk = scsi_disks("virtio_scsi")[0]
    before = int(cat(disk, "device/queue_depth"))
    host = next(path for path in (BLOCK / disk).resolve().parents if path.name.startswith("host"))
    attributes = host / "scsi_host" / host.name
    can_queue = int((attributes / "can_queue").read_text())
    at_most = int((attributes / "cmd_per_lun").read_text())
    assert at_most < can_queue, "or there is nothing to clamp"
    sysfs = str((BLOCK / disk).resolve())
    chain = Chain(disk, disk, None, None, sysfs, (Step("queue_depth", can_queue, before),))
    [result] = write_chain(chain)
    assert (result.outcome, result.found) == (Outcome.IGNORED, at_most)
    put(disk, "device/queue_depth", str(before))


def test_refusal_carries_errno() -> None:
    from hbatune.act.chain import Chain, Step, WriteResult
    from hbatune.plan.rows import Outcome
    from tests.kernel.chains import write_chain

    def depth(disk: str, value: int) -> WriteResult:
        step = Step("queue_depth", value, None)
        [result] = write_chain(
            Chain(disk, disk, None, None, str((BLOCK / disk).resolve()), (step,))
        )
        return result

    einval = depth(scsi_disks("megaraid_sas")[0], 100_000)
    eacces = depth(scsi_disks("sym53c8xx")[0], 4)
    assert (einval.outcome, einval.errno) == (Outcome.REFUSED, 22)
    assert (eacces.outcome, eacces.errno) == (Outcome.REFUSED, 13)


def test_second_writer_exits_3() -> None:
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with open(LOCK, "w") as holder:
        fcntl.lockf(holder, fcntl.LOCK_EX)
        for command in (("apply", "--profile", "oltp", "--no-probe"), ("rollback",)):
            done = hbatune(*command)
            assert done.code == 3
            assert str(os.getpid()) in done.err
        assert hbatune("diff", "--profile", "oltp").code == 1, "reading needs no lock"


def test_simultaneous_applies_never_both_write() -> None:
    command = ["hbatune", "apply", "--profile", "oltp", "--no-probe"]
    both = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(2)]
    codes = sorted(process.wait() for process in both)
    assert codes in ([0, 3], [0, 0])


def test_earlier_boot_journal_restores_nothing(tmp_path: Path) -> None:
    before = everything()
    [disk] = scsi_disks("sym53c8xx")
    assert hbatune("apply", "--profile", "oltp", "--no-probe", disk).code == 0
    tuned = everything()
    earlier_id = tmp_path / "boot_id"
    earlier_id.write_text("00000000-1111-2222-3333-444444444444\n")
    boot_id = "/proc/sys/kernel/random/boot_id"
    script = f"mount --bind {earlier_id} {boot_id} && exec hbatune rollback"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "earlier boot" in done.stderr
    assert everything() == tuned, "a value of another boot is nobody's baseline"
    put_back(before)


@pytest.mark.parametrize("command", ["apply", "rollback"])
def test_unprivileged_commands_write_nothing(command: str) -> None:
    before = everything()
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    words = (command, "--profile", "oltp") if command == "apply" else (command,)
    done = installed(*words, before=nobody)
    assert done.code == 2
    assert "needs root" in done.err
    assert "Traceback" not in done.err
    assert everything() == before


def test_diff_needs_no_root() -> None:
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    done = installed("diff", "--profile", "oltp", before=nobody)
    assert done.code == 1, done.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[rule]\n", "line 1"),
        (
            '[[rule]]\nname = "x"\nsetting = "nr_request"\nvalue = 8\n'
            'because = "x"\nsource = "site"\n',
            "nr_requests",
        ),
        (
            '[[rule]]\nname = "x"\nsetting = "nr_requests"\nvalue = 9999\n'
            'because = "x"\nsource = "site"\n',
            "2048",
        ),
        (
            '[[rule]]\nname = "x"\nsetting = "nr_requests"\nvalue = 8\nat_least = 9\n'
            'because = "x"\nsource = "site"\n',
            "at_least",
        ),
    ],
    ids=["malformed", "unknown-setting", "out-of-range", "contradictory"],
)
def test_bad_rule_file_writes_nothing(text: str, message: str) -> None:
    before = everything()
    rules = Path("/etc/hbatune/rules.d/mistake.toml")
    rules.parent.mkdir(parents=True, exist_ok=True)
    rules.write_text(text)
    try:
        done = hbatune("apply", "--profile", "oltp", "--no-probe")
    finally:
        rules.unlink()
    assert done.code == 2
    assert "mistake.toml" in done.err
    assert message in done.err
    assert "Traceback" not in done.err
    assert everything() == before


def test_bad_configuration_allows_rollback() -> None:
    before = everything()
    assert hbatune("apply", "--profile", "oltp", "--no-probe", *scsi_disks("sym53c8xx")).code == 0
    assert everything() != before
    configure("[daemon\n")
    back = hbatune("rollback")
    assert back.code == 1, "the profile stays written"
    assert "hbatune.toml" in back.err
    assert everything() == before


@pytest.mark.parametrize(
    "words",
    [
        ("apply", "--profile", "nope", "--no-probe"),
        ("apply", "--profile", "oltp", "--no-probe", "sdzz"),
        ("apply", "--profile", "oltp", "--frobnicate"),
        ("explain", "vda", "nr_request", "--profile", "oltp"),
        ("diff",),
        ("nonsense",),
        (),
    ],
)
def test_bad_usage_exits_2(words: tuple[str, ...]) -> None:
    before = everything()
    done = hbatune(*words)
    assert done.code == 2
    assert done.err.strip()
    assert "Traceback" not in done.err
    assert everything() == before


def test_world_writable_rule_is_refused() -> None:
    rules = Path("/etc/hbatune/rules.d/open.toml")
    rules.parent.mkdir(parents=True, exist_ok=True)
    rules.write_text("")
    rules.chmod(0o666)
    try:
        done = hbatune("apply", "--profile", "oltp", "--no-probe")
        assert done.code == 2
        assert "open.toml" in done.err
    finally:
        rules.unlink()


def test_excessive_request_memory_is_refused(scsi_debug: ScsiDebug) -> None:
    luns = scsi_debug(max_luns=4)
    before = everything()
    configure("[act]\nmemory_share = 0.0001\n")
    done = hbatune("apply", "--profile", "oltp", "--no-probe", *luns)
    assert done.code == 2
    assert "memory" in done.err
    assert everything() == before


def test_full_journal_disk_prevents_writes(tmp_path: Path) -> None:
    before = everything()
    script = (
        "mount -t tmpfs -o size=4k tmpfs /var/lib/hbatune && "
        "head -c 4096 /dev/zero > /var/lib/hbatune/full; "
        "exec hbatune apply --profile oltp --no-probe"
    )
    Path("/var/lib/hbatune").mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "journal" in done.stderr
    assert "Traceback" not in done.stderr
    assert everything() == before
