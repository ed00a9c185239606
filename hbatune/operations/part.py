"""Looks at a part of the machine: the disks of an event, with what earlier looks have found."""

from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from hbatune.act.apply import baseline_files
from hbatune.act.claims import Claim
from hbatune.act.paths import Paths
from hbatune.facts.ids import is_former
from hbatune.facts.model import Machine
from hbatune.facts.part import KnownMachine, gather_part
from hbatune.operations.last_look import LastLook
from hbatune.operations.situation import Situation, avoided, made_situation, wanted_settings
from hbatune.policy import budget
from hbatune.policy.config import Config
from hbatune.policy.model import Profile
from hbatune.workers import WorkerPool


def look_at_part(
    config: Config,
    profile: Profile,
    names: Collection[str],
    last: LastLook,
    *,
    stuck: Iterable[Claim],
    worker_pool: WorkerPool | None = None,
    paths: Paths,
) -> Situation | None:
    """Read the disks with these kernel names, and return the situation of them alone.

    ``names`` may be those of SCSI hosts as well. LUNs that share the budget of an array go along.
    None where the ``last`` looks do not suffice for that. The part itself is not remembered.
    """
    known, waiting = last.machine, tuple(stuck)
    if known is None:
        return None
    last.journal.refresh(lambda: known.machine)
    # With what their writes may reset, whose baselines are then not read once more.
    attributes = baseline_files(wanted_settings(profile, config.site, last.journal.settings))
    found = _part(known, names, config, attributes, waiting, worker_pool)
    if found is not None and config.site.array and any(map(budget.is_shared, found.endpoints)):
        shared = (each.target for each in known.machine.endpoints if budget.is_shared(each))
        every = dict.fromkeys((*names, *shared))
        found = _part(known, every, config, attributes, waiting, worker_pool)
    if found is None:
        return None
    ids = [each.id for each in found.endpoints]
    situation = made_situation(config, profile, found, (), waiting, paths, last.journal.part(ids))
    if any(map(is_former, (*situation.rollbacks.ids, *situation.rollbacks.lifted))):
        return None  # only the whole machine tells what these mean
    rest, matcher = last.requests_without(ids), last.matcher(profile)
    return replace(situation, rest=rest, matcher=matcher)


def _part(
    known: KnownMachine,
    names: Iterable[str],
    config: Config,
    attributes: Sequence[str],
    waiting: Iterable[Claim],
    worker_pool: WorkerPool | None,
) -> Machine | None:
    return gather_part(
        known,
        names,
        attributes,
        deadline=config.act.deadline_seconds,
        avoid=avoided(waiting),
        worker_pool=worker_pool,
    )
