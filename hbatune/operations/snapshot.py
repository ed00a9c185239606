"""Takes a snapshot of this machine: its facts and its policy. It writes nothing."""

import time

from hbatune import __version__
from hbatune.act import claims, interrupts, journal, modprobe, seen
from hbatune.facts.machine import gather
from hbatune.facts.model import TargetKind
from hbatune.facts.observe import observe
from hbatune.operations.context import Context
from hbatune.operations.notes import Leftovers
from hbatune.operations.situation import (
    configuration,
    followed_site,
    peek,
    require_readable,
    waiting_for,
)
from hbatune.policy.load import installed_library, load_profile, profiles
from hbatune.settings.table import attributes
from hbatune.snapshot.model import HostPolicy, Snapshot


def take(context: Context) -> Snapshot:
    """Return all facts of this host and its policy; traces of an earlier run are a note.

    Raises UsageError where its policy has mistakes.
    """
    paths = context.paths
    require_readable(paths, paths.counters)
    config, library = configuration(), installed_library()
    known = tuple(load_profile(each.name, library) for each in profiles(library))
    deadline = config.act.deadline_seconds
    # Not settled: that kills writers, and is only allowed under the lock.
    stuck = claims.outstanding(paths.claims)
    avoid = {claim.target: waiting_for(claim) for claim in stuck}
    gathered = gather(
        attributes(),
        of={kind: attributes(on=kind) for kind in (TargetKind.CONTROLLER, TargetKind.HOST)},
        deadline=deadline,
        avoid=avoid,
    )
    machine = interrupts.with_immovable(gathered, paths.locked)
    filed = peek(paths.journal, machine)
    context.reporter.note(Leftovers(filed, machine, tuple(stuck)))
    return Snapshot(
        machine=machine,
        health=observe(machine, deadline=deadline, avoid=avoid),
        policy=HostPolicy(
            active=config.profile,
            profiles=known,
            site=followed_site(config, machine),
            rolled_back=journal.rollback_record(filed, machine).ids,
            reverted=filed.reverted,
            rendered=tuple((*key, text) for key, text in modprobe.read(paths.modprobe).items()),
        ),
        hbatune=__version__,
        taken=int(time.time()),
        looks=seen.load_counted(paths.counters),
    )
