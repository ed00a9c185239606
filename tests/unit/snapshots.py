"""Snapshots for tests."""

from hbatune.facts.model import Machine
from hbatune.policy.config import Site
from hbatune.policy.profile import Profile
from hbatune.snapshot.file import HostPolicy, Snapshot
from tests.unit.check_inputs import health


def snapshot(
    machine: Machine,
    *profiles: Profile,
    active: str | None = None,
    site: Site | None = None,
    rolled_back: tuple[str, ...] = (),
) -> Snapshot:
    """Return a snapshot of a machine that is well, with these profiles of its own."""
    policy = HostPolicy(active, profiles, site or Site(), rolled_back)
    return Snapshot(machine, health(machine), policy, hbatune="0.1.0", taken=1_800_000_000)
