"""Take a snapshot (all facts and the policy of a host), and make the input of its checks."""

import time
from collections.abc import Sequence

from hbatune import __version__
from hbatune.act import interrupts, journal, lock, marks, rollback_record, system
from hbatune.checks.finding import CheckInput
from hbatune.facts.health import Counted, counted, earlier
from hbatune.facts.machine import gather
from hbatune.facts.model import TargetKind
from hbatune.facts.observe import observe
from hbatune.facts.targets import choose
from hbatune.operations.context import Context, InterruptedRuns
from hbatune.operations.situation import (
    Situation,
    advice_for,
    followed_site,
    peek,
    require_readable,
    waiting_for,
)
from hbatune.plan.rows import Plan
from hbatune.policy.chosen import configuration
from hbatune.policy.library import installed_library, load_profile, profiles
from hbatune.policy.vendors import rules_followed
from hbatune.settings.table import attributes
from hbatune.snapshot.file import HostPolicy, Snapshot


def take_snapshot(context: Context) -> Snapshot:
    """Return all facts of this host and its policy; traces of an earlier run are a note.

    Raises UsageError if its policy has errors.
    """
    paths = context.paths
    require_readable(paths, paths.counters)
    config, library = configuration(), installed_library()
    rules = rules_followed(library, config.site)
    all_profiles = tuple(
        load_profile(profile.name, library, rules) for profile in profiles(library)
    )
    deadline = config.act.deadline_seconds
    # Not settled, since that kills writers and is only allowed under the lock.
    stuck = lock.outstanding_claims(paths.claims)
    avoid = {claim.target: waiting_for(claim) for claim in stuck}
    gathered = gather(
        attributes(),
        of={kind: attributes(on=kind) for kind in (TargetKind.CONTROLLER, TargetKind.HOST)},
        deadline=deadline,
        avoid=avoid,
    )
    machine = interrupts.with_immovable(gathered, paths.locked)
    filed = peek(paths.journal, machine)
    record = rollback_record.load(paths)
    context.reporter.note(InterruptedRuns(filed, record, machine, tuple(stuck)))
    return Snapshot(
        machine=machine,
        health=observe(machine, deadline=deadline, avoid=avoid),
        policy=HostPolicy(
            active=config.profile,
            profiles=all_profiles,
            site=followed_site(config, machine),
            rolled_back=journal.current_records(filed, record, machine).ids,
            reverted=filed.reverted,
            rendered=tuple(
                (*key, text) for key, text in system.read_module_options(paths.modprobe).items()
            ),
        ),
        hbatune=__version__,
        taken=int(time.time()),
        looks=marks.load_counted(paths.counters),
    )


def counted_in(snapshot: Snapshot) -> Counted:
    """Return the error counters of a snapshot."""
    return counted(snapshot.machine, snapshot.health, snapshot.taken)


def check_input(
    snapshot: Snapshot, situation: Situation | None, targets: Sequence[str]
) -> CheckInput:
    """Return the input of the checks for the targets, or for all.

    Without a situation it has no profile. Raises UsageError for a target that does not exist.
    """
    machine, counters = snapshot.machine, counted_in(snapshot)
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
        counted=counters,
        earlier=earlier(snapshot.looks, counters),
        arrays=installed_library().arrays(),
        advice=advice_for(machine, snapshot.policy.site, plan, chosen.ids),
    )
