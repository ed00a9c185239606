"""Take a snapshot (all facts and the policy of a host), and make the input of its checks."""

import time
from collections.abc import Sequence

from hbatune import __version__
from hbatune.act import interrupts, journal, marks, rollback_record, system
from hbatune.checks.finding import CheckInput
from hbatune.facts.devices import resolve_link
from hbatune.facts.health import ErrorCounters, collect_counters, find_earlier_counters
from hbatune.facts.machine import gather_machine
from hbatune.facts.model import TargetKind
from hbatune.facts.observe import observe_health
from hbatune.facts.targets import choose_targets
from hbatune.operations.context import Context, InterruptedRuns
from hbatune.operations.situation import (
    Situation,
    list_advice,
    map_stuck_disks,
    require_readable,
    unlocked_means,
)
from hbatune.plan.kernel_changes import CONTROLLER_FILES, FORECAST_FILES
from hbatune.plan.rows import Plan
from hbatune.policy.chosen import load_configuration
from hbatune.policy.library import installed_library, list_profiles, load_profile
from hbatune.policy.match import resolve_site_links
from hbatune.policy.vendors import load_followed_rules
from hbatune.settings.table import list_attributes
from hbatune.snapshot.file import HostPolicy, Snapshot


def take_snapshot(context: Context) -> Snapshot:
    """Return all facts of this host and its policy; traces of an earlier run are a note.

    Raises UsageError if its policy has errors.
    """
    paths = context.paths
    require_readable(paths, paths.counters)
    config, library = load_configuration(), installed_library()
    rules = load_followed_rules(library, config.site)
    all_profiles = tuple(
        load_profile(profile.name, library, rules) for profile in list_profiles(library)
    )
    deadline = config.act.deadline_seconds
    stuck = unlocked_means(paths).stuck
    avoid = map_stuck_disks(stuck)
    gathered = gather_machine(
        (*list_attributes(), *FORECAST_FILES),
        of={
            TargetKind.CONTROLLER: (
                *list_attributes(on=TargetKind.CONTROLLER),
                *CONTROLLER_FILES,
            ),
            TargetKind.HOST: list_attributes(on=TargetKind.HOST),
        },
        deadline=deadline,
        avoid=avoid,
    )
    machine = interrupts.with_immovable(gathered, paths.locked)
    filed, _ = journal.load_with_current_ids(paths.journal, machine)
    record = rollback_record.load(paths)
    context.note(InterruptedRuns(filed, record, machine, stuck))
    options = system.read_module_options(paths.modprobe)
    return Snapshot(
        machine=machine,
        health=observe_health(machine, deadline=deadline, avoid=avoid),
        policy=HostPolicy(
            active=config.profile,
            profiles=all_profiles,
            site=resolve_site_links(machine, config.site, resolve_link),
            rolled_back=journal.update_record_ids(filed, record, machine).ids,
            reverted=filed.reverted,
            rendered=tuple((*key, text) for key, text in options.items()),
        ),
        hbatune=__version__,
        taken=int(time.time()),
        looks=marks.load_counted(paths.counters),
    )


def get_error_counters(snapshot: Snapshot) -> ErrorCounters:
    """Return the error counters of a snapshot."""
    return collect_counters(snapshot.machine, snapshot.health, snapshot.taken)


def make_check_input(
    snapshot: Snapshot, situation: Situation | None, targets: Sequence[str]
) -> CheckInput:
    """Return the input of the checks for the targets, or for all.

    Without a situation it has no profile. Raises UsageError for a target that does not exist.
    """
    machine, counters = snapshot.machine, get_error_counters(snapshot)
    chosen = choose_targets(machine, targets)
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
        earlier=find_earlier_counters(snapshot.looks, counters),
        arrays=installed_library().arrays(),
        advice=list_advice(machine, snapshot.policy.site, plan, chosen.ids),
    )
