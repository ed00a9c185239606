"""The rules of `forecast` against two boots of the same adapters, 6.12 and 7.3, both ways.

The values were read in virtual machines with Debian's kernels, before anything was written.
"""

import json
import re
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hbatune.errors import UsageError
from hbatune.facts.model import Endpoint, Kind, Machine, Protocol, TargetKind
from hbatune.plan.kernel_changes import (
    SERIES,
    ChangeKind,
    InstalledModules,
    KernelChange,
    find_series,
    forecast_changes,
    list_modules,
)
from hbatune.plan.rows import Row, State
from tests.hosts.parts import MODULES
from tests.unit.machines import adapter, attributes, control, endpoint, machine

CHECKOUT = Path(__file__).resolve().parents[3]
RELEASES = {"6.1": "6.1.0-56-amd64", "6.12": "6.12.117+deb12-amd64", "7.3": "7.3.4+deb13-amd64"}


@dataclass(frozen=True)
class Boots:
    """A disk's facts on any kernel, and the texts of its files on 6.12 and on 7.3."""

    facts: dict[str, str]
    values: dict[str, tuple[str | None, str | None]]
    fields: dict[str, Any] = field(default_factory=dict)

    def endpoint(self, column: int) -> Endpoint:
        """Return the disk as hbatune sees it under one of the kernels."""
        texts = dict(self.facts)
        for path, pair in self.values.items():
            if (text := pair[column]) is not None:
                texts[path] = text
        names = {path.replace("/", "__"): text for path, text in texts.items()}
        return endpoint(attributes=attributes(**names), **self.fields)


def facts(
    *, hardware: int, rotational: int, scheduler: str, requests: int, optimal: int = 0
) -> dict[str, str]:
    """Return the files that are equal under both kernels."""
    return {
        "queue/max_hw_sectors_kb": str(hardware),
        "queue/rotational": str(rotational),
        "queue/optimal_io_size": str(optimal),
        "queue/scheduler": f"[{scheduler}] kyber",
        "queue/nr_requests": str(requests),
    }


NEW, OLD = "queue/async_depth", "queue/iosched/async_depth"
LARGER = {"queue/max_sectors_kb": ("1280", "4096")}
SAME_READ_AHEAD = {"queue/read_ahead_kb": ("128", "128")}
MOVED = {OLD: ("256", None), NEW: (None, "256")}
ADDED = {NEW: (None, "256")}

DISKS = {
    "virtio-scsi rotational": Boots(
        facts(hardware=32767, rotational=1, scheduler="none", requests=256),
        {**LARGER, "queue/read_ahead_kb": ("128", "8192"), **ADDED},
        {"family": "virtio_scsi"},
    ),
    "virtio-scsi ssd": Boots(
        facts(hardware=32767, rotational=0, scheduler="none", requests=256),
        {**LARGER, **SAME_READ_AHEAD, **ADDED},
        {"family": "virtio_scsi"},
    ),
    "pvscsi": Boots(
        facts(hardware=32767, rotational=1, scheduler="mq-deadline", requests=256),
        {**LARGER, "queue/read_ahead_kb": ("128", "8192"), **MOVED},
        {"family": "vmw_pvscsi"},
    ),
    "megaraid_sas hard disk": Boots(
        facts(hardware=128, rotational=1, scheduler="mq-deadline", requests=256),
        {
            "queue/max_sectors_kb": ("128", "128"),
            "queue/read_ahead_kb": ("128", "256"),
            **MOVED,
        },
        {"family": "megaraid_sas"},
    ),
    "megaraid_sas ssd": Boots(
        facts(hardware=128, rotational=0, scheduler="mq-deadline", requests=256),
        {"queue/max_sectors_kb": ("128", "128"), **SAME_READ_AHEAD, **MOVED},
        {"family": "megaraid_sas"},
    ),
    "nvme": Boots(
        facts(hardware=512, rotational=0, scheduler="none", requests=1023),
        {
            "queue/max_sectors_kb": ("512", "512"),
            **SAME_READ_AHEAD,
            NEW: (None, "1023"),
        },
        {"family": "nvme", "protocol": Protocol.NVME, "target": "nvme0n1"},
    ),
    "scsi_debug": Boots(
        facts(
            hardware=32767, rotational=1, scheduler="mq-deadline", requests=256, optimal=512 << 10
        ),
        {
            **LARGER,
            "queue/read_ahead_kb": ("1024", "1024"),
            **MOVED,
            "mq/0/nr_tags": ("192", "193"),
        },
        {"family": "scsi_debug"},
    ),
}


def boot(series: str, *endpoints: Endpoint, **fields: Any) -> Machine:
    """Return a machine that runs the kernel of a series."""
    return machine(*endpoints, kernel=RELEASES[series], **fields)


def as_pairs(changes: tuple[KernelChange, ...]) -> dict[str, tuple[Any, Any]]:
    """Return the values before and after, by attribute."""
    return {change.attribute: (change.now, change.then) for change in changes}


@pytest.mark.parametrize("name", DISKS)
@pytest.mark.parametrize("forward", [True, False])
def test_rules_predict_boots(name: str, *, forward: bool) -> None:
    disk = DISKS[name]
    expected: dict[str, tuple[int | None, int | None]] = {}
    for path, texts in disk.values.items():
        values = tuple(None if text is None else int(text) for text in texts)
        now, then = values if forward else reversed(values)
        if now != then:
            expected[path] = (now, then)
    series, other = ("6.12", "7.3") if forward else ("7.3", "6.12")
    host = boot(series, disk.endpoint(0 if forward else 1), adapters=())
    assert as_pairs(forecast_changes(host, other)) == expected


def test_chosen_values_do_not_move() -> None:
    disk = DISKS["pvscsi"]
    chosen = {**disk.values, "queue/max_sectors_kb": ("512", ""), "queue/read_ahead_kb": ("16", "")}
    host = boot("6.12", replace_values(disk, chosen), adapters=())
    changes = as_pairs(forecast_changes(host, "7.3"))
    assert changes.keys() == {OLD, NEW}


def replace_values(disk: Boots, values: dict[str, tuple[str | None, str | None]]) -> Endpoint:
    """Return the disk under 6.12 with other values."""
    return Boots(disk.facts, values, disk.fields).endpoint(0)


def test_read_ahead_follows_chosen_request_size() -> None:
    """The kernel derives it from the size in force, which a rule sets again at the next boot."""
    disk = DISKS["pvscsi"]
    chosen = {**disk.values, "queue/max_sectors_kb": ("512", "")}
    host = boot("6.12", replace_values(disk, chosen), adapters=())
    changes = as_pairs(forecast_changes(host, "7.3"))
    assert changes["queue/read_ahead_kb"] == (128, 1024)


def test_missing_fact_is_unknown() -> None:
    disk = DISKS["pvscsi"].endpoint(0)
    texts = {path: text for path, text in disk.attributes.items() if "optimal" not in path}
    changes = forecast_changes(boot("6.12", replace(disk, attributes=texts), adapters=()), "7.3")
    assert [change.kind for change in changes] == [ChangeKind.UNKNOWN]


def test_same_series_changes_nothing() -> None:
    assert forecast_changes(boot("7.3", DISKS["pvscsi"].endpoint(1)), "7.3") == ()


def test_controller_gains_timeouts() -> None:
    nvme = control(target="nvme0", kind=TargetKind.CONTROLLER)
    host = boot("6.12", DISKS["nvme"].endpoint(0), adapters=(), controls=(nvme,))
    changes = [change for change in forecast_changes(host, "7.3") if change.target == "nvme0"]
    assert as_pairs(tuple(changes)) == {
        "io_timeout": (None, 30000),
        "admin_timeout": (None, 60000),
    }


def test_options_come_and_go() -> None:
    hba, fc = adapter(driver="mpi3mr"), adapter(driver="qla2xxx", target="0000:02:00.0")
    host = boot("6.12", DISKS["nvme"].endpoint(1), adapters=(hba, fc))
    rendered = (("qla2xxx", "ql2xetsenable", "1"), ("mpi3mr", "poll_queues", "4"))
    changes = forecast_changes(host, "7.3", rendered=rendered)
    options = {
        (change.attribute, change.kind): (change.now, change.then)
        for change in changes
        if "." in change.attribute
    }
    assert options == {
        ("mpi3mr.threaded_isr_poll", ChangeKind.OPTION): (None, "present"),
        ("qla2xxx.ql2xetsenable", ChangeKind.OPTION): ("present", None),
        ("qla2xxx.ql2xiidmaenable", ChangeKind.OPTION): ("present", None),
        ("qla2xxx.ql2xetsenable", ChangeKind.RENDERED): ("1", None),
    }


@pytest.mark.parametrize(("series", "other"), [*permutations(SERIES, 2)])
def test_options_match_debians_modules(series: str, other: str) -> None:
    """scsi_debug has no hardware: its options describe its simulated disks."""
    packages = json.loads(MODULES.read_text())
    options: dict[str, set[str]] = {}
    for package, modules in packages.items():
        release = package.partition("-")[2].removeprefix("image-").removeprefix("modules-")
        options[find_series(release)] = {
            f"{module}.{option}"
            for module, facts in modules.items()
            for option in facts["parameters"]
            if module != "scsi_debug"
        }
    drivers = {module for modules in packages.values() for module in modules}
    hbas = tuple(adapter(driver=driver, target=driver) for driver in sorted(drivers))
    changes = as_pairs(forecast_changes(boot(series, adapters=hbas), other))
    expected: dict[str, tuple[Any, Any]] = {}
    expected |= dict.fromkeys(options[other] - options[series], (None, "present"))
    expected |= dict.fromkeys(options[series] - options[other], ("present", None))
    assert {name: pair for name, pair in changes.items() if "." in name} == expected


def test_installed_modules_decide() -> None:
    hba = adapter(driver="mpi3mr")
    host = boot("6.12", DISKS["nvme"].endpoint(1), adapters=(hba,))
    without_option = InstalledModules("7.3.9", {"mpi3mr": frozenset({"poll_queues"})})
    names = {change.attribute for change in forecast_changes(host, "7.3", installed=without_option)}
    assert "mpi3mr.threaded_isr_poll" not in names
    changes = forecast_changes(host, "7.3", installed=InstalledModules("7.3.9", {}))
    [driver] = [change for change in changes if change.attribute == "driver"]
    assert (driver.now, driver.then, driver.kind) == ("mpi3mr", None, ChangeKind.DRIVER)


@pytest.mark.parametrize(
    ("series", "other", "driver"), [("6.12", "7.3", "cxlflash"), ("7.3", "6.1", "leapraid")]
)
def test_missing_driver_is_known_without_installed_kernel(
    series: str, other: str, driver: str
) -> None:
    hbas = [adapter(driver=name, target=name) for name in ("cxlflash", "leapraid", "mpi3mr")]
    host = boot(series, adapters=tuple(hbas))
    changes = [change for change in forecast_changes(host, other) if change.attribute == "driver"]
    assert [(change.target, change.now, change.then) for change in changes] == [
        (driver, driver, None)
    ]
    installed = InstalledModules("7.3.9", dict.fromkeys(list_modules(host), frozenset()))
    kinds = [change.kind for change in forecast_changes(host, other, installed=installed)]
    assert ChangeKind.DRIVER not in kinds, "the modules of an installed kernel decide"


def test_merges_of_tri_mode_drives_change() -> None:
    texts = {**facts(hardware=1024, rotational=0, scheduler="none", requests=64)}
    texts |= {"queue/nomerges": "2"}
    names = {path.replace("/", "__"): text for path, text in texts.items()}
    drive = endpoint(protocol=Protocol.NVME, attributes=attributes(**names))
    changes = as_pairs(forecast_changes(boot("6.1", drive, adapters=()), "6.12"))
    assert changes["queue/nomerges"] == (2, 0)


def test_map_of_bios_loses_queue_files() -> None:
    texts = facts(hardware=512, rotational=0, scheduler="none", requests=128)
    texts["queue/scheduler"] = "none"
    names = {path.replace("/", "__"): text for path, text in texts.items()}
    head = endpoint(target="nvme0n1", kind=Kind.MAP, tags=0, attributes=attributes(**names))
    changes = as_pairs(forecast_changes(boot("6.1", head, adapters=()), "6.12"))
    assert changes == {
        "queue/scheduler": ("none", None),
        "queue/nr_requests": (128, None),
        "queue/rq_affinity": (0, None),
    }
    page = (CHECKOUT / "docs" / "kernels.md").read_text()
    [row] = re.findall(r"\| (.*) of maps without requests \| exist on 6\.1", page)
    assert re.findall(r"`(.*?)`", row) == [path.removeprefix("queue/") for path in changes]


def test_refused_profile_value_is_reported() -> None:
    row = Row(
        target="nvme0n1",
        id="eui.1",
        adapter=None,
        setting="iopolicy",
        current="numa",
        wanted="queue-depth",
        value="queue-depth",
        state=State.DRIFT,
        limit=None,
        why="",
        source="V",
        rule="ontap-iopolicy",
    )
    host = boot("6.12", DISKS["nvme"].endpoint(0), adapters=())
    kinds = {change.kind for change in forecast_changes(host, "6.1", rows=(row,))}
    assert ChangeKind.REFUSED in kinds


@pytest.mark.parametrize("release", ["6.18.44", "7.30.1", "linux", ""])
def test_uncovered_kernel_is_refused(release: str) -> None:
    with pytest.raises(UsageError, match=r"6\.1, 6\.12, 7\.3"):
        find_series(release)
