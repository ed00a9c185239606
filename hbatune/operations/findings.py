"""The input of checks for a host, from its snapshot and the situation that was made of it."""

from collections.abc import Sequence

from hbatune.checks.model import CheckInput
from hbatune.facts.health import Counted, counted, earlier
from hbatune.facts.targets import choose
from hbatune.operations.situation import Situation, advice_for
from hbatune.plan.rows import Plan
from hbatune.policy.load import installed_library
from hbatune.snapshot.model import Snapshot


def counted_in(snapshot: Snapshot) -> Counted:
    """Return the error counters of a snapshot."""
    return counted(snapshot.machine, snapshot.health, snapshot.taken)


def check_input(
    snapshot: Snapshot, situation: Situation | None, targets: Sequence[str]
) -> CheckInput:
    """Return the input of the checks for the targets, or for all; without a situation no profile.

    UsageError for a target that does not exist.
    """
    machine, now = snapshot.machine, counted_in(snapshot)
    chosen = choose(machine, targets)
    plan = situation.plan() if situation else Plan("", ())
    return CheckInput(
        machine=machine,
        health=snapshot.health,
        adapters=chosen.adapters,
        endpoints=chosen.endpoints,
        site=snapshot.policy.site,
        profile=situation.profile if situation else None,
        rows=plan.rows,
        counted=now,
        earlier=earlier(snapshot.looks, now),
        arrays=installed_library().arrays(),
        advice=advice_for(machine, snapshot.policy.site, plan, chosen.ids),
    )
