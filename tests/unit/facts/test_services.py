"""The processes of services: proven by user, PID namespace and unit, never by the name alone."""

import errno
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hbatune.facts.model import Missing, Reason
from hbatune.facts.services import (
    HIDDEN_PROCESSES,
    IONICE,
    ProvenService,
    find_io_shares,
    find_services,
)
from tests.unit.proc import DOCKER, USER, proc_of, process

UNIT = "/system.slice/irqbalance.service"
HYBRID = f"12:pids:{UNIT}\n1:name=systemd:{UNIT}\n0::{UNIT}\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    return proc_of(tmp_path / "proc")


def find_irqbalance(proc: Path) -> ProvenService | Missing | None:
    return find_services(["irqbalance"], proc)["irqbalance"]


@pytest.mark.parametrize(
    "cgroup",
    [
        f"0::{UNIT}\n",
        HYBRID,
        f"4:pids:/\n1:name=systemd:{UNIT}\n0::/\n",
        "0::/tuning.slice/tuning-irq.slice/irqbalance.service\n",
    ],
)
def test_systemd_unit_proves_service(proc: Path, cgroup: str) -> None:
    process(proc, 812, "irqbalance", cgroup=cgroup, arguments=("irqbalance", "-f"))
    assert find_irqbalance(proc) == ProvenService(812, ("irqbalance", "-f", ""), ("",))


@pytest.mark.parametrize(
    "uids", [(USER,) * 4, (USER, "0", "0", "0"), ("0", USER, USER, USER), ("65534",) * 4]
)
def test_user_process_is_ignored(proc: Path, uids: tuple[str, ...]) -> None:
    process(proc, 400, "irqbalance", uids=uids)
    assert find_irqbalance(proc) is None


@pytest.mark.parametrize("cgroup", [f"0::{DOCKER}\n", f"0::{DOCKER}{UNIT}\n", f"0::{UNIT}\n"])
def test_container_process_is_ignored(proc: Path, cgroup: str) -> None:
    process(proc, 400, "irqbalance", pids=(400, 7), cgroup=cgroup)
    assert find_irqbalance(proc) is None


@pytest.mark.parametrize(
    "cgroup",
    [
        "0::/\n",
        "0::/openrc.irqbalance\n",
        f"0::{DOCKER}\n",
        f"0::{DOCKER}{UNIT}\n",
        f"0::/machine.slice/systemd-nspawn@one.service{UNIT}\n",
        "0::/user.slice/user-0.slice/user@0.service/app.slice/irqbalance.service\n",
        f"4:pids:{UNIT}\n0::/\n",
        f"0::{UNIT}.d\n",
        "not a cgroup\n",
    ],
)
def test_root_outside_unit_is_unproven(proc: Path, cgroup: str) -> None:
    process(proc, 400, "irqbalance", cgroup=cgroup)
    unproven = find_irqbalance(proc)
    assert isinstance(unproven, Missing)
    assert unproven.text == "process 400 is not part of irqbalance.service"


@pytest.mark.parametrize(("first", "second"), [(400, 812), (812, 400)])
def test_proven_process_takes_precedence(proc: Path, first: int, second: int) -> None:
    process(proc, first, "irqbalance", cgroup="0::/\n")
    process(proc, second, "irqbalance", arguments=("irqbalance", "--foreground"))
    service = find_irqbalance(proc)
    assert isinstance(service, ProvenService)
    assert service.pid == second


def test_services_need_matching_units(proc: Path) -> None:
    process(proc, 812, "irqbalance")
    process(proc, 813, "tuned", cgroup=f"0::{UNIT}\n")
    both = find_services(["irqbalance", "tuned"], proc)
    assert isinstance(both["irqbalance"], ProvenService)
    assert isinstance(both["tuned"], Missing)


def test_hidden_processes_mean_unknown(tmp_path: Path) -> None:
    process(tmp_path, 700, "bash")
    assert find_irqbalance(tmp_path) == HIDDEN_PROCESSES
    process(tmp_path, 812, "irqbalance")
    assert isinstance(find_irqbalance(tmp_path), ProvenService), (
        "systemd alone is hidden (hidepid=4)"
    )


def test_unreadable_proc_means_unknown(tmp_path: Path) -> None:
    missing = find_irqbalance(tmp_path / "none")
    assert missing == Missing(Reason.UNREADABLE, errno.ENOENT, "No such file or directory")


Refuse = Callable[[str, str, int], None]


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """Have one open of a file of a process fail."""
    real = os.open

    def refused(pid: str, name: str, number: int) -> None:
        def opening(path: str, flags: int, *, dir_fd: int | None = None) -> int:
            above = os.readlink(f"/proc/self/fd/{dir_fd}") if dir_fd is not None else ""
            if os.path.join(above, path).endswith(f"/{pid}/{name}".rstrip("/")):
                raise OSError(number, os.strerror(number))
            return real(path, flags, dir_fd=dir_fd)

        monkeypatch.setattr(os, "open", opening)

    return refused


@pytest.mark.parametrize("name", ["comm", "", "status", "cgroup", "cmdline", "environ"])
def test_ending_process_is_ignored(proc: Path, refuse: Refuse, name: str) -> None:
    process(proc, 812, "irqbalance")
    for number in (errno.ENOENT, errno.ESRCH):
        refuse("812", name, number)
        assert find_irqbalance(proc) is None


@pytest.mark.parametrize("name", ["comm", "", "status", "cgroup", "cmdline"])
def test_unreadable_process_means_unknown(proc: Path, refuse: Refuse, name: str) -> None:
    process(proc, 812, "irqbalance")
    for number in (errno.EACCES, errno.EIO):
        refuse("812", name, number)
        assert find_irqbalance(proc) == HIDDEN_PROCESSES


def test_environment_may_be_denied(proc: Path, refuse: Refuse) -> None:
    process(proc, 812, "irqbalance", environment=("IRQBALANCE_BANNED_CPULIST=0",))
    refuse("812", "environ", errno.EACCES)
    service = find_irqbalance(proc)
    assert isinstance(service, ProvenService)
    assert service.environment is None


@pytest.mark.parametrize("name", ["cmdline", "environ"])
def test_unproven_processes_stay_unread(proc: Path, name: str) -> None:
    """Their owner can make a read of them block without limit: here, by a FIFO nobody writes to."""
    for pid, uids in ((400, (USER,) * 4), (401, ("0",) * 4)):
        folder = process(proc, pid, "irqbalance", uids=uids, cgroup="0::/\n")
        (folder / name).unlink()
        os.mkfifo(folder / name)
    assert isinstance(find_irqbalance(proc), Missing)


def test_huge_files_are_truncated(proc: Path) -> None:
    process(proc, 812, "irqbalance", arguments=("irqbalance", "x" * (3 << 20)))
    service = find_irqbalance(proc)
    assert isinstance(service, ProvenService)
    assert len("".join(service.arguments)) < 2 << 20


def weigh(cgroups: Path, unit: str, file: str, text: str) -> None:
    (cgroups / unit).mkdir(parents=True, exist_ok=True)
    (cgroups / unit / file).write_text(text)


def test_weights_are_found_by_unit(tmp_path: Path) -> None:
    cgroups, empty = tmp_path / "cgroup", tmp_path / "proc"
    weigh(cgroups, "system.slice/db.service", "io.bfq.weight", "default 500\n")
    weigh(cgroups, "system.slice/backup.service", "io.weight", "default 100\n8:0 10\n")
    weigh(cgroups, "user.slice/\x1b[2J", "io.bfq.weight", "default 500\n")
    weigh(cgroups, "system.slice/web.service", "io.bfq.weight", "default 100\n")
    expected = {"io.bfq.weight": ("\\x1b[2J", "db.service"), "io.weight": ("backup.service",)}
    assert find_io_shares(cgroups, empty) == expected
    # The cost model uses the weights without a scheduler.
    weigh(cgroups, ".", "io.cost.qos", "8:0 enable=1 ctrl=user\n")
    assert find_io_shares(cgroups, empty) == {}


def test_priority_is_found_by_unit(proc: Path, tmp_path: Path) -> None:
    with subprocess.Popen(["ionice", "-c", "3", "cat"], stdin=subprocess.PIPE) as child:
        process(proc, child.pid, "backup")
        process(proc, os.getpid(), "web")
        while Path(f"/proc/{child.pid}/comm").read_text() != "cat\n":
            os.sched_yield()
        assert find_io_shares(tmp_path / "cgroup", proc) == {IONICE: ("backup.service",)}
        weigh(tmp_path / "cgroup", ".", "io.cost.qos", "8:0 enable=1 ctrl=user\n")
        assert find_io_shares(tmp_path / "cgroup", proc) == {IONICE: ("backup.service",)}
        child.communicate()
