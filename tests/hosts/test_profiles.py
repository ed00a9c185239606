"""The shipped profiles differ where their users want something else, on the described machines.

Two profiles are alike on a kind of disk where they plan and promise the same for every disk of that
kind, its controller or host included.
"""

from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest

from hbatune.facts.model import Adapter, Endpoint, Kind, Machine, Medium, Protocol, Storage
from hbatune.plan.make import make_plan
from hbatune.plan.rows import State
from hbatune.policy.library import Library, load_profile
from hbatune.policy.match import build_traits, find_objective
from hbatune.policy.profile import Profile
from hbatune.settings.table import IRQ_AFFINITY, list_attributes
from hbatune.shipped import find_shipped
from tests.hosts.conftest import ALL, Surveyed
from tests.hosts.namespace import gather_in
from tests.hosts.real_hosts import fedora_27
from tests.hosts.tree import Described

Survey = Callable[[str], Surveyed]
Said = frozenset[tuple[str, object]]

SLEEP = "pm_qos_latency_tolerance_us"
PROFILES = ("balanced", "oltp", "latency", "throughput")
PAIRS = frozenset(combinations(PROFILES, 2))
BALANCED_OLTP, BALANCED_LATENCY, OLTP_LATENCY = (
    ("balanced", "oltp"), ("balanced", "latency"), ("oltp", "latency"),
)  # fmt: skip

ALIKE: dict[str, set[tuple[str, str]]] = {
    "HDD": {BALANCED_OLTP},
    "SATA SSD": set(),
    "SAS SSD": set(),
    "NVMe": set(),
    "NVMe HDD": {BALANCED_OLTP},
    "volume": set(),
    "FC LUN": {BALANCED_LATENCY},
    "virtual disk": {BALANCED_OLTP, BALANCED_LATENCY, OLTP_LATENCY},
    "cloud NVMe": {BALANCED_LATENCY},
}
"""The pairs of profiles that are alike on each kind of disk; all others differ."""


def kind_of(disk: Endpoint) -> str | None:
    """Return the kind of a disk outside maps, or None for another kind of disk."""
    if disk.kind is not Kind.DISK or disk.zoned is True:
        return None
    match disk.protocol, disk.medium, disk.storage:
        case Protocol.VIRTIO | Protocol.VIRTUAL, _, _:
            return "virtual disk"
        case Protocol.NVME, _, Storage.VIRTUAL:
            return "cloud NVMe"
        case Protocol.NVME, Medium.HDD, Storage.LOCAL:
            return "NVMe HDD"
        case Protocol.NVME, _, Storage.LOCAL:
            return "NVMe"
        case Protocol.FC, _, _:
            return "FC LUN"
        case Protocol.VOLUME, Medium.SSD, _:
            return "volume"
        case Protocol.SAS, Medium.HDD, Storage.LOCAL:
            return "HDD"
        case Protocol.SAS, Medium.SSD, Storage.LOCAL:
            return "SAS SSD"
        case Protocol.SATA, Medium.SSD, _:
            return "SATA SSD"
    return None


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Profile]:
    library = Library(find_shipped("rules"), site=tmp_path_factory.mktemp("etc"))
    return {name: load_profile(name, library) for name in PROFILES}


def collect_goals(machine: Machine, profile: Profile) -> dict[str, Said]:
    """Return the planned values and the objective of each disk and its adapter, by disk."""
    adapters = {adapter.target: adapter for adapter in machine.adapters}
    controls = {control.target: control.adapter for control in machine.controls}
    rows: dict[str, set[tuple[str, object]]] = {}
    for row in make_plan(machine, profile).rows:
        # Interrupts are an adapter's, whatever is behind it; what is absent is not set.
        if row.setting != IRQ_AFFINITY and row.value is not None:
            of = controls.get(row.target, row.target)
            rows.setdefault(of, set()).add((row.setting, row.value))
    return {
        endpoint.target: frozenset(
            rows.get(endpoint.target, set())
            | rows.get(endpoint.adapter or "", set())
            | {("objective", _goal(profile, endpoint, adapters.get(endpoint.adapter or "")))}
        )
        for endpoint in machine.endpoints
    }


def _goal(profile: Profile, disk: Endpoint, behind: Adapter | None) -> float | None:
    objective = find_objective(profile, build_traits(disk, behind))
    return None if objective is None else objective.p99_ms


@pytest.fixture(scope="module")
def differing(surveyed: Survey, profiles: dict[str, Profile]) -> dict[str, set[tuple[str, str]]]:
    """Return the pairs that differ on any described machine, by kind of disk."""
    differing_pairs: dict[str, set[tuple[str, str]]] = {}
    for name in ALL:
        machine = surveyed(name).machine
        by_profile = {
            profile_name: collect_goals(machine, profile)
            for profile_name, profile in profiles.items()
        }
        for disk in machine.endpoints:
            if kind := kind_of(disk):
                disk_plans = {
                    profile_name: of[disk.target] for profile_name, of in by_profile.items()
                }
                pairs = {pair for pair in PAIRS if disk_plans[pair[0]] != disk_plans[pair[1]]}
                differing_pairs.setdefault(kind, set()).update(pairs)
    return differing_pairs


@pytest.mark.parametrize("kind", ALIKE)
def test_profiles_differ_as_expected(differing: dict[str, set[tuple[str, str]]], kind: str) -> None:
    assert PAIRS - differing[kind] == ALIKE[kind]


def test_every_profile_pair_differs(
    differing: dict[str, set[tuple[str, str]]],
) -> None:
    assert set().union(*differing.values()) == PAIRS


def test_only_latency_disables_nvme_sleep(surveyed: Survey, profiles: dict[str, Profile]) -> None:
    """The other controller is a cloud's, which may say what it wants of its sleep."""
    machine = surveyed("nvme_cloud").machine
    planned = {name: make_plan(machine, profile).rows for name, profile in profiles.items()}
    sleep_rows = {
        name: {row.target: (row.current, row.value) for row in rows if row.setting == SLEEP}
        for name, rows in planned.items()
    }
    assert sleep_rows.pop("latency") == {"nvme1": (100_000, 0)}
    assert not any(sleep_rows.values())


def test_queue_without_wbt_lacks_setting(
    built: Callable[[Described], Path], profiles: dict[str, Profile]
) -> None:
    """Its file is there and refuses to be read, for which no `apply` is to fail."""
    machine = gather_in(built(fedora_27()), list_attributes())
    rows = [
        row for row in make_plan(machine, profiles["latency"]).rows if row.setting == "wbt_lat_usec"
    ]
    states = {row.target: row.state for row in rows}
    assert states == {"nvme0n1": State.OK, "sda": State.ABSENT, "sdb": State.ABSENT}
