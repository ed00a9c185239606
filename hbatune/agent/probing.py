"""A short probe of new endpoints: once, while the host is idle, and within a time budget."""

import time
from collections.abc import Collection

from hbatune.act import lock, paths
from hbatune.agent import orders
from hbatune.errors import HbatuneError, LockedError
from hbatune.facts import attributes, processors
from hbatune.facts.machine import gather_machine
from hbatune.policy.config import Config
from hbatune.policy.profile import Profile
from hbatune.probe import history, run
from hbatune.probe.result import ProbeResult
from hbatune.probe.selection import choose_representatives
from hbatune.probe.workloads import shorten_workload
from hbatune.settings.table import list_attributes


def probe_endpoints(
    ids: Collection[str], config: Config, profile: Profile, seconds: float
) -> bytes:
    """Probe one endpoint of each type within ``seconds``, for the history.

    The probe holds the lock, so nothing is set during it. It does not run while a command has
    reserved targets, since the command may be measuring. Returns the encoded result
    (``orders.decode_probe``). Raises nothing.
    """
    probed = orders.NewEndpointProbe()
    try:
        with lock.Lock(paths.LOCK, spare=paths.LOCK_SPARE):
            # A run that has reserved targets measures: a second load would distort both results.
            if not lock.read_held_ids(paths.HOLDS):
                probed = _probe_endpoints(ids, config, profile, seconds)
    except LockedError:
        pass  # no error: a command is running, and a probe requires an idle host
    except HbatuneError as error:
        probed = orders.NewEndpointProbe(error=error.message)
    return orders.encode(probed)


def _probe_endpoints(
    ids: Collection[str], config: Config, profile: Profile, seconds: float
) -> orders.NewEndpointProbe:
    disk_files = (*list_attributes(), attributes.BLOCK_SIZE_FILE)
    gathered = gather_machine(disk_files, deadline=config.act.deadline_seconds)
    machine = processors.with_probing(gathered, isolated=config.probe.isolated)
    targets = {endpoint.target for endpoint in machine.endpoints if endpoint.id in set(ids)}
    subjects = choose_representatives(machine, targets, shared=config.daemon.probe_shared).subjects
    workload = shorten_workload(profile.probe, float(config.probe.seconds))
    budget = run.fit_time(subjects, workload, 1, seconds)
    outcomes = run.probe_subjects(budget.subjects, budget.workload)
    epoch, records = time.time(), []
    for result in outcomes:
        if isinstance(result, ProbeResult):
            records.append(history.make_record(machine, profile.name, "daemon", result, epoch))
    try:
        history.append(paths.HISTORY, records)
    except HbatuneError as error:
        unwritten = orders.UnwrittenFile(str(paths.HISTORY), error.message)
        return orders.NewEndpointProbe(0, budget.seconds, error.message, (unwritten,))
    return orders.NewEndpointProbe(len(records), budget.seconds)
