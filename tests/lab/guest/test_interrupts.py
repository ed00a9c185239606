"""Interrupts and coalescing on real drivers: moved and put back, or said to be nobody's."""

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hbatune.act.chain import Chain, Step
from hbatune.plan.rows import Outcome
from tests.kernel.chains import write_chain
from tests.lab.guest.coalescing import asking_for
from tests.lab.guest.command import Done, hbatune
from tests.lab.guest.irqbalance import irqbalance
from tests.lab.guest.kit import reading, scsi_disks

KERNELS = ("6.1",)
IRQS = Path("/proc/irq")
CGROUPS = Path("/sys/fs/cgroup")
DATA = re.compile(
    r"nvme\d+q[1-9]\d*|virtio\d+-request|virtio\d+-req\.\d+|vmw_pvscsi|ahci.*|megasas.*|ioc\d+"
)
MOVES = 1000
"""Rounds of an interrupt over the CPUs."""
ADMIN = re.compile(r"nvme\d+q0|virtio\d+-(config|control|event)")


def affinities() -> dict[str, str]:
    """Return the affinity of every interrupt there is."""
    return {
        f"irq{folder.name}": (folder / "smp_affinity_list").read_text().strip()
        for folder in IRQS.iterdir()
        if folder.is_dir()
    }


def names(target: str) -> list[str]:
    """Return the names of an interrupt's handlers."""
    return [
        folder.name for folder in (IRQS / target.removeprefix("irq")).iterdir() if folder.is_dir()
    ]


def refuses(target: str) -> bool:
    """Whether the kernel refuses even the affinity that an interrupt has already."""
    path = IRQS / target.removeprefix("irq") / "smp_affinity_list"
    try:
        path.write_text(path.read_text())
    except OSError:
        return True
    return False


@pytest.fixture(scope="module")
def before() -> dict[str, str]:
    return affinities()


@pytest.fixture(scope="module")
def applied(before: dict[str, str]) -> Iterator[Done]:
    """One apply for all that only look."""
    yield hbatune("apply", "--profile", "oltp", "--no-probe", "--json")
    hbatune("rollback")


def test_only_data_vectors_have_rows(applied: Done) -> None:
    assert applied.code == 0, applied.err
    rows = applied.rows(setting="irq_affinity")
    assert rows
    for row in rows:
        assert any(DATA.fullmatch(name) for name in names(row["target"])), row
    planned = {row["target"] for row in rows}
    for target in affinities():
        if names(target) and all(ADMIN.fullmatch(name) for name in names(target)):
            assert target not in planned


def test_free_vectors_move_managed_stay(applied: Done) -> None:
    rows = applied.rows(setting="irq_affinity")
    current = affinities()
    free = [row for row in rows if row["state"] in ("ok", "drift")]
    assert free
    for row in free:
        assert row["outcome"] == ("written" if row["state"] == "drift" else "kept"), row
        assert current[row["target"]] == row["value"], row
    managed = [row for row in rows if row["state"] == "fixed"]
    assert managed
    for row in managed:
        assert row["outcome"] is None
        assert refuses(row["target"]), row
    assert {row["state"] for row in rows} <= {"ok", "drift", "fixed"}
    assert len({row["value"] for row in free}) == min(len(free), os.cpu_count() or 1)


def test_inferred_rows_are_marked(applied: Done) -> None:
    """Where no file is read-only, only a write would tell."""
    tells = any(
        not (folder / "smp_affinity_list").stat().st_mode & 0o222
        for folder in IRQS.iterdir()
        if folder.is_dir()
    )
    for row in applied.rows(setting="irq_affinity", state="fixed"):
        assert ("inferred from driver" in row["limit"]) is not tells


def test_applied_vectors_show_no_drift(applied: Done) -> None:
    assert not hbatune("diff", "--json").rows(setting="irq_affinity", state="drift")


def test_pending_move_counts_as_written() -> None:
    """Under I/O one file in a few hundred is read in the midst of a move, and says what was."""
    [irq] = [path.parent for path in IRQS.glob("*/vmw_pvscsi")]
    file = irq / "smp_affinity_list"
    first = file.read_text().strip()
    places = [first, *(cpus for cpus in ("0", "1", "0-1") if cpus != first)]
    outcomes: Counter[Outcome] = Counter()
    with reading(scsi_disks("vmw_pvscsi")):
        for current, wanted in pairwise([*places * MOVES, first]):
            step = Step("irq_affinity", wanted, current)
            [result] = write_chain(Chain(irq.name, irq.name, None, None, str(irq), (step,)))
            outcomes[result.outcome] += 1
    assert outcomes == {Outcome.WRITTEN: MOVES * len(places)}
    assert file.read_text().strip() == first


def test_nvme_coalescing_is_read(applied: Done) -> None:
    rows = [row for row in applied.rows(setting="coalescing") if row["state"] != "absent"]
    assert {row["target"] for row in rows} == {"nvme0", "nvme1", "nvme2"}
    assert {(row["current"], row["wanted"]) for row in rows} == {(0, 0)}


def test_adapter_without_lever_is_absent(applied: Done) -> None:
    for driver in ("sym53c8xx", "mptsas", "ahci", "vmw_pvscsi"):
        for function in Path(f"/sys/bus/pci/drivers/{driver}").glob("0000:*"):
            assert applied.row(function.name, "coalescing")["state"] == "absent"


def test_coalescing_exempt_vectors_are_fixed() -> None:
    """QEMU exempts the admin queue's vector, and lets nobody change which are."""
    with asking_for('"none"', setting="coalescing_exempt"):
        done = hbatune("apply", "--profile", "balanced", "--no-probe", "--json", "nvme0")
    assert done.code == 0, done.err
    [row] = done.rows(setting="coalescing_exempt")
    assert (row["state"], row["outcome"], row["current"]) == ("fixed", None, "0")
    assert hbatune("rollback").code == 0


def test_refused_coalescing_is_fixed() -> None:
    with asking_for('"8/200"'):
        done = hbatune("apply", "--profile", "balanced", "--no-probe", "--json", "nvme0")
    assert done.code == 0, done.err
    [row] = done.rows(setting="coalescing")
    assert (row["state"], row["outcome"], row["current"]) == ("fixed", None, 0)
    assert "cannot be changed" in row["limit"]
    assert hbatune("rollback").code == 0


def test_controller_refusal_reports_status() -> None:
    directory = str(Path("/sys/class/nvme/nvme0").resolve())
    [result] = write_chain(
        Chain("nvme0", "nvme0", None, None, directory, (Step("coalescing", "8/200", 0),))
    )
    assert (result.outcome, result.errno, result.found) == (Outcome.REFUSED, None, 0)
    assert "0x10e" in str(result.said)


@pytest.fixture
def confined() -> Iterator[None]:
    """A kernel that was told to keep interrupts on CPU 0, as far as its command line says so."""
    file = Path("/run/cmdline")
    file.write_text(f"{Path('/proc/cmdline').read_text().strip()} irqaffinity=0\n")
    subprocess.run(["mount", "--bind", str(file), "/proc/cmdline"], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "/proc/cmdline"], check=True)


def test_irqaffinity_limits_vector_cpus(before: dict[str, str], confined: None) -> None:
    done = hbatune("apply", "--profile", "oltp", "--no-probe", "--json")
    assert done.code == 0, done.err
    rows = [row for row in done.rows(setting="irq_affinity") if row["state"] in ("ok", "drift")]
    current = affinities()
    assert rows
    for row in rows:
        assert row["value"] == current[row["target"]] == "0", row
        assert "irqaffinity= excludes CPUs 1" in row["limit"]
    assert hbatune("rollback").code == 0
    assert affinities() == before


def test_irqbalance_banned_cpus_are_avoided(before: dict[str, str]) -> None:
    with irqbalance("--interval=3600", banned="0"):
        done = hbatune("diff", "--profile", "oltp", "--json")
    rows = [row for row in done.rows(setting="irq_affinity") if row["state"] in ("ok", "drift")]
    assert rows
    for row in rows:
        assert row["value"] != "0", row
        assert "irqbalance's ban excludes CPUs 0" in row["limit"]


def place_and_restore(before: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Apply and roll back; return the rows of free vectors, which had their values meanwhile."""
    done = hbatune("apply", "--profile", "oltp", "--no-probe", "--json")
    assert done.code == 0, done.err
    current = affinities()
    rows = {row["target"]: row for row in done.rows(setting="irq_affinity")}
    free = {irq: row for irq, row in rows.items() if not row["limit"].startswith("set by the")}
    for irq, text in current.items():
        is_placed = irq in free and free[irq]["value"] is not None
        assert text == (free[irq]["value"] if is_placed else before[irq]), irq
    assert hbatune("rollback").code == 0
    assert affinities() == before
    assert free
    return free


@pytest.fixture
def partition() -> Iterator[None]:
    """An isolated partition that has CPU 1, without the file that newer kernels list it in."""
    group, enabled = CGROUPS / "trading", CGROUPS / "cgroup.subtree_control"
    others = enabled.read_text().split()
    enabled.write_text("+cpuset")
    group.mkdir()
    try:
        (group / "cpuset.cpus").write_text("1")
        (group / "cpuset.cpus.partition").write_text("isolated")
        assert (group / "cpuset.cpus.partition").read_text() == "isolated\n"
        assert not (CGROUPS / "cpuset.cpus.isolated").exists()
        yield
    finally:
        (group / "cpuset.cpus.partition").write_text("member")
        group.rmdir()
        if "cpuset" not in others:
            enabled.write_text("-cpuset")


def test_isolated_partition_gets_no_vector(before: dict[str, str], partition: None) -> None:
    for row in place_and_restore(before).values():
        assert row["value"] == "0", row
        assert "cpuset.cpus.partition excludes CPUs 1" in row["limit"]


@pytest.fixture
def narrowed_default() -> Iterator[None]:
    """A default for new interrupts that an administrator has narrowed to CPU 0."""
    file = IRQS / "default_smp_affinity"
    text = file.read_text()
    file.write_text("1")
    try:
        yield
    finally:
        file.write_text(text)


def test_narrowed_default_limits_vector_cpus(
    before: dict[str, str], narrowed_default: None
) -> None:
    for row in place_and_restore(before).values():
        assert row["value"] == "0", row
        assert "/proc/irq/default_smp_affinity excludes CPUs 1" in row["limit"]


@pytest.fixture
def pinned(before: dict[str, str]) -> Iterator[dict[str, str]]:
    """All free data vectors pinned to CPU 1 by hand, and the affinities with them."""
    rows = hbatune("diff", "--profile", "oltp", "--json").rows(setting="irq_affinity")
    free = [row["target"] for row in rows if row["state"] in ("ok", "drift")]
    pin = dict.fromkeys(free, "1")
    write_affinities(pin)
    try:
        yield {**before, **pin}
    finally:
        write_affinities({irq: before[irq] for irq in pin})


def write_affinities(texts: dict[str, str]) -> None:
    """Write the affinity of each interrupt; it moves at its next one."""
    for irq, text in texts.items():
        (IRQS / irq.removeprefix("irq") / "smp_affinity_list").write_text(text)


def test_pinned_vectors_stay_in_their_masks(pinned: dict[str, str]) -> None:
    for row in place_and_restore(pinned).values():
        assert (row["state"], row["value"]) == ("ok", "1"), row
        assert "its smp_affinity was narrowed to CPUs 1" in row["limit"]


def test_vectors_pinned_outside_default_stay(
    pinned: dict[str, str], narrowed_default: None
) -> None:
    for row in place_and_restore(pinned).values():
        assert (row["state"], row["value"]) == ("fixed", None), row
        assert row["limit"].startswith("no CPU is left for interrupts: ")


def test_offline_cpu_moves_only_its_vectors(before: dict[str, str]) -> None:
    def place() -> dict[str, str]:
        done = hbatune("apply", "--profile", "oltp", "--no-probe", "--json")
        assert done.code == 0, done.err
        rows = done.rows(setting="irq_affinity")
        return {row["target"]: row["value"] for row in rows if row["value"] is not None}

    placed = place()
    assert set(placed.values()) == {"0", "1"}
    online = Path("/sys/devices/system/cpu/cpu1/online")
    online.write_text("0")
    try:
        assert place() == dict.fromkeys(placed, "0")
    finally:
        online.write_text("1")
    assert sorted(place().values()) == sorted(placed.values())
    assert hbatune("rollback").code == 0
    assert affinities() == before


def test_rollback_restores_every_vector(before: dict[str, str]) -> None:
    done = hbatune("apply", "--profile", "oltp", "--no-probe", "--json")
    assert done.code == 0, done.err
    assert affinities() != before
    back = hbatune("rollback")
    assert back.code == 0, back.out + back.err
    assert affinities() == before
