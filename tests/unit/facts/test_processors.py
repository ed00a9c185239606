"""The settings that keep CPUs free of interrupts, as a kernel and TuneD show them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hbatune.facts import processors, services, tuned
from hbatune.facts.devices import list_names
from hbatune.facts.model import CpuRestriction
from hbatune.facts.processors import read_processors
from tests.unit.proc import USER, proc_of, process

find_services = services.find_services
Put = Callable[[str, str], None]


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Return a function that writes a file of a machine with four CPUs."""

    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    write("cpu/online", "0-3\n")
    write("cgroup/cgroup.subtree_control", "cpuset cpu memory\n")
    proc = proc_of(tmp_path / "proc")
    for name, path in (
        ("_CPU", "cpu"),
        ("_CGROUPS", "cgroup"),
        ("_COMMAND_LINE", "cmdline"),
        ("_DEFAULT_AFFINITY", "default"),
    ):
        monkeypatch.setattr(processors, name, str(tmp_path / path))
    monkeypatch.setattr(services, "TUNED_PROFILE", tmp_path / "active_profile")
    monkeypatch.setattr(tuned, "_CONFIGURATION", tmp_path / "tuned-main.conf")
    monkeypatch.setattr(tuned, "_FOLDERS", (tmp_path,))
    monkeypatch.setattr(services, "find_services", lambda names: find_services(names, proc))
    return write


def test_plain_machine_has_no_restriction(put: Put) -> None:
    cpus = read_processors()
    assert (cpus.online, cpus.restrictions, cpus.balancing) == ((0, 1, 2, 3), {}, False)


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ("isolcpus=managed_irq,2-3", (0, 1)),
        ("isolcpus=nohz,domain,managed_irq,1", (0, 2, 3)),
        ("isolcpus=managed_irq,domain,3 quiet", (0, 1, 2)),
        ("isolcpus=managed_irq,2-x", ()),
        ("isolcpus=domain,2-3", None),
        ("isolcpus=2-3", None),
        ("quiet -- isolcpus=managed_irq,2-3", None),
    ],
)
def test_managed_irq_cpus_are_restricted(
    put: Put, options: str, allowed: tuple[int, ...] | None
) -> None:
    put("cmdline", f"ro {options}\n")
    assert read_processors().restrictions.get(CpuRestriction.MANAGED_IRQ) == allowed


@pytest.mark.parametrize(
    ("mask", "allowed"),
    [("f\n", (0, 1, 2, 3)), ("00000000,00000003\n", (0, 1)), ("what\n", ()), ("10\n", ())],
)
def test_default_affinity_is_read(put: Put, mask: str, allowed: tuple[int, ...]) -> None:
    put("default", mask)
    assert read_processors().restrictions == {CpuRestriction.DEFAULT: allowed}


def partition(put: Put, group: str, state: str, cpus: str) -> None:
    put(f"cgroup/{group}/cpuset.cpus.partition", f"{state}\n")
    put(f"cgroup/{group}/cpuset.cpus.effective", f"{cpus}\n")


def test_listed_partitions_are_restricted(put: Put) -> None:
    put("cgroup/cpuset.cpus.isolated", "3\n")
    partition(put, "trading", "isolated", "1-2")  # not read: the list is enough
    assert read_processors().restrictions == {CpuRestriction.PARTITION: (0, 1, 2)}
    put("cgroup/cpuset.cpus.isolated", "\n")
    assert read_processors().restrictions == {}


def test_older_kernel_partitions_are_found(put: Put) -> None:
    partition(put, "system.slice", "member", "0-3")
    partition(put, "broken", "isolated invalid (Parent is not a partition root)", "0")
    partition(put, "shared", "root", "1-2")
    partition(put, "shared/inner", "isolated", "2")
    partition(put, "trading", "isolated", "3")
    put("cgroup/shared/cgroup.subtree_control", "cpuset\n")
    assert read_processors().restrictions == {CpuRestriction.PARTITION: (0, 1)}


def test_ordinary_groups_are_not_searched(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    for group in ("kubepods.slice", "trading"):
        put(f"cgroup/{group}/cgroup.subtree_control", "cpuset\n")
        partition(put, group, "member", "0-3")
        partition(put, f"{group}/pod", "member", "0-3")
    listed: list[str] = []

    def record(path: str) -> list[str]:
        listed.append(path)
        return list_names(path)

    monkeypatch.setattr(processors, "list_names", record)
    read_processors()
    assert listed == [processors._CGROUPS]
    put("cgroup/cgroup.subtree_control", "cpu memory\n")
    read_processors()
    assert listed == [processors._CGROUPS], "no group has a cpuset"


@pytest.mark.parametrize(
    ("uids", "allowed"), [(("0",) * 4, {CpuRestriction.TUNED: (0, 1)}), ((USER,) * 4, {})]
)
def test_running_tuned_restricts_cpus(
    put: Put, tmp_path: Path, uids: tuple[str, ...], allowed: dict[CpuRestriction, tuple[int, ...]]
) -> None:
    put("active_profile", "desk\n")
    put("desk/tuned.conf", "[variables]\nisolated_cores=2-3\n")
    assert read_processors().restrictions == {}
    process(tmp_path / "proc", 700, "tuned", uids=uids)
    assert read_processors().restrictions == allowed


@pytest.mark.parametrize(
    ("sockets", "allowed"), [(("0,3", "1-2", "1-2", "0,3"), (0, 1)), (("0,3", "1-2", "1-2"), ())]
)
def test_tuned_counts_cpus_by_socket(
    put: Put, sockets: tuple[str, ...], allowed: tuple[int, ...]
) -> None:
    """If the socket of a CPU is unknown, so are the isolated CPUs."""
    put("active_profile", "desk\n")
    put("desk/tuned.conf", "[variables]\nisolated_cores=${f:calc_isolated_cores:1}\n")
    put("tuned-main.conf", "daemon = 0\n")
    for cpu, socket in enumerate(sockets):
        put(f"cpu/cpu{cpu}/topology/package_cpus_list", f"{socket}\n")
    assert read_processors().restrictions == {CpuRestriction.TUNED: allowed}


def test_one_shot_tuned_restricts_cpus(put: Put) -> None:
    """It has ended after it set the host, so no process shows it."""
    put("active_profile", "desk\n")
    put("desk/tuned.conf", "[variables]\nisolated_cores=2-3\n")
    put("tuned-main.conf", "daemon = 0\n")
    assert read_processors().restrictions == {CpuRestriction.TUNED: (0, 1)}


def test_only_proven_irqbalance_balances(put: Put, tmp_path: Path) -> None:
    process(tmp_path / "proc", 800, "irqbalance", cgroup="0::/\n")
    assert not read_processors().balancing
    process(tmp_path / "proc", 801, "irqbalance")
    assert read_processors().balancing
