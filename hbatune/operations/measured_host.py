"""Gather the changes and results of a host for its report."""

from pathlib import Path

from msgspec import Struct

from hbatune.act.journal import Journal, load_with_current_ids
from hbatune.act.paths import Paths
from hbatune.facts.model import Machine
from hbatune.operations.situation import (
    SituationRequest,
    read_situation,
    require_readable,
    unlocked_means,
)
from hbatune.plan.rows import Plan
from hbatune.policy.chosen import load_configuration
from hbatune.policy.library import Yardsticks, installed_library
from hbatune.policy.profile import Profile
from hbatune.probe import history
from hbatune.probe.history import Record
from hbatune.snapshot.file import load_snapshot


class MeasuredHost(Struct, frozen=True, kw_only=True):
    """A machine with its profile and plan, the journal of changes, and the measured results.

    ``profile`` and ``plan`` are None if no profile is active or named, as after a rollback. The
    settings ``not_understood`` are the situation's.
    """

    machine: Machine
    journal: Journal
    records: tuple[Record, ...]
    yardsticks: Yardsticks
    profile: Profile | None = None
    plan: Plan | None = None
    not_understood: tuple[str, ...] = ()


def read_measured_host(
    profile: str | None, *, snapshot: Path | None = None, results: Path | None = None
) -> MeasuredHost:
    """Read this machine, or the host of a snapshot, which contains no results.

    ``results`` is a copy of a host's history, used instead of this machine's.
    """
    paths, yardsticks = Paths(), installed_library().yardsticks()
    records: tuple[Record, ...] = ()
    if results is not None:
        records = history.load_named(results).records
    elif snapshot is None:
        records = history.load(paths.history).records
    if snapshot is None:
        active = load_configuration().profile
    else:
        active = load_snapshot(snapshot).policy.active
    if profile is not None or active is not None:
        situation = read_situation(SituationRequest(profile=profile, snapshot=snapshot))
        return MeasuredHost(
            machine=situation.machine,
            journal=situation.journal,
            records=records,
            yardsticks=yardsticks,
            profile=situation.profile,
            plan=situation.plan(),
            not_understood=situation.not_understood,
        )
    if snapshot is None:
        require_readable(paths)
        machine = unlocked_means(paths).gather((), load_configuration().act)
        journal, _ = load_with_current_ids(paths.journal, machine)
    else:
        machine = load_snapshot(snapshot).machine
        journal = Journal(machine.boot_id)
    return MeasuredHost(machine=machine, journal=journal, records=records, yardsticks=yardsticks)
