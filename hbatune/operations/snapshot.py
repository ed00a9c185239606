"""A snapshot: all facts and the policy of a host, taken here, or the situation on another host."""

import time
from collections.abc import Iterable

from hbatune import __version__
from hbatune.act import claims, interrupts, journal, modprobe, rollback_record, seen
from hbatune.act.journal import Journal
from hbatune.act.rollback_record import Record, RollbackRecords
from hbatune.facts.machine import gather
from hbatune.facts.model import TargetKind
from hbatune.facts.observe import observe
from hbatune.facts.targets import choose
from hbatune.operations.context import Context
from hbatune.operations.notes import Leftovers
from hbatune.operations.situation import (
    Situation,
    followed_site,
    peek,
    require_readable,
    waiting_for,
)
from hbatune.policy.chosen import chosen_profile, configuration
from hbatune.policy.config import Config
from hbatune.policy.load import installed_library, load_profile, profiles
from hbatune.policy.vendors import rules_followed
from hbatune.settings.table import attributes
from hbatune.snapshot.model import HostPolicy, Snapshot


def recorded(snapshot: Snapshot, profile_name: str | None, targets: Iterable[str]) -> Situation:
    """Return the situation in a snapshot, with the host's own policy.

    A profile that the host did not have is this machine's.
    """
    from hbatune.snapshot.unknown import not_understood, understood  # to take one needs neither

    machine, policy = snapshot.machine, snapshot.policy
    config = Config(profile=policy.active, site=policy.site)
    own = {profile.name: profile for profile in policy.profiles}
    wanted = profile_name or policy.active
    whole = own[wanted] if wanted in own else chosen_profile(wanted, config)
    profile = understood(whole)
    chosen = choose(machine, targets)
    filed = Journal(machine.boot_id, reverted=policy.reverted)
    record = RollbackRecords((Record("", policy.rolled_back),))
    rendered = {(module, option): text for module, option, text in policy.rendered}
    site = config.site  # its links were followed as the snapshot was taken
    return Situation(
        *(config, profile, machine, chosen.endpoints, chosen.ids, filed, record, ()),
        *(rendered, site),
        not_understood=not_understood(whole),
        elsewhere=True,
    )


def take_snapshot(context: Context) -> Snapshot:
    """Return all facts of this host and its policy; traces of an earlier run are a note.

    Raises UsageError where its policy has mistakes.
    """
    paths = context.paths
    require_readable(paths, paths.counters)
    config, library = configuration(), installed_library()
    rules = rules_followed(library, config.site)
    known = tuple(load_profile(each.name, library, rules) for each in profiles(library))
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
    record = rollback_record.load(paths)
    context.reporter.note(Leftovers(filed, record, machine, tuple(stuck)))
    return Snapshot(
        machine=machine,
        health=observe(machine, deadline=deadline, avoid=avoid),
        policy=HostPolicy(
            active=config.profile,
            profiles=known,
            site=followed_site(config, machine),
            rolled_back=journal.current_records(filed, record, machine).ids,
            reverted=filed.reverted,
            rendered=tuple((*key, text) for key, text in modprobe.read(paths.modprobe).items()),
        ),
        hbatune=__version__,
        taken=int(time.time()),
        looks=seen.load_counted(paths.counters),
    )
