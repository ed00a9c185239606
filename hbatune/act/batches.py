"""Runs chains where one target's write concerns another: maps and their paths, a target's LUNs."""

from collections.abc import Iterable, Iterator
from pathlib import PurePath

from msgspec.structs import replace

from hbatune.act import claims
from hbatune.act.chain import Chain, ChainWriter
from hbatune.act.executor import USUAL, Executor, Report, most_workers
from hbatune.act.means import Means
from hbatune.plan.rows import DONE, Outcome
from hbatune.settings.table import setting
from hbatune.workers import Pool


def execute(chains: Iterable[Chain], means: Means) -> Report:
    """Run the chains in the pool, and remove the claims of workers that have ended.

    A multipath map must at no moment send larger requests than its paths take, so its request size
    is lowered before theirs and raised after theirs. Depths of several LUNs of one target are
    looked at again.
    """
    chains = list(chains)
    writer = ChainWriter(means.claims, means.deadline, means.guard)
    size, deadline = most_workers(means.workers), means.deadline
    report = Report()
    with Pool[Chain, bytes](
        writer, size=size, deadline=deadline, worker_pool=means.worker_pool
    ) as pool:
        for batch in _batches(chains):
            executor = Executor(
                pool, workers=means.workers, stop=means.stop, progress=means.progress
            )
            done = executor.run(batch)
            report.results.update(done.results)
            report.stuck.update(done.stuck)
        if again := _second_looks(chains, report):
            done = Executor(pool, workers=means.workers, stop=means.stop).run(again)
            found = {key: each for key, each in done.results.items() if each.outcome not in _SEEN}
            report.results.update(found)
            report.stuck.update(done.stuck)
    if means.worker_pool is not None:
        # What comes after has less to do at once, and need not wait for the end of so many.
        means.worker_pool.shrink(USUAL)
    # Workers killed at their deadline may have ended since; only those still in the kernel keep
    # theirs.
    claims.clear(means.claims)
    return report


_SEEN = frozenset({Outcome.KEPT, Outcome.CANCELLED})
"""Outcomes of a second look that leave the first as it was: nothing was to be done, or tried."""


def _second_looks(chains: Iterable[Chain], report: Report) -> list[Chain]:
    """Return chains that set the depths of a target again where they differ by now.

    A command that ends while one LUN's depth is lowered may raise the depths of all LUNs of its
    target by one, those included that were read back already (drivers/scsi/scsi_error.c:
    scsi_handle_queue_ramp_up).
    """
    targets: dict[PurePath, list[Chain]] = {}
    for chain in chains:
        for step in chain.steps:
            done = report.results[chain.id, step.setting].outcome in DONE
            if done and setting(step.setting).ramps:
                again = replace(chain, steps=(replace(step, expected=None),))
                # Of …/target0:0:0/0:0:0:1/block/sda, the directory of the target.
                targets.setdefault(PurePath(chain.sysfs).parents[2], []).append(again)
    return [chain for luns in targets.values() if len(luns) > 1 for chain in luns]


def _batches(chains: Iterable[Chain]) -> Iterator[list[Chain]]:
    lowered, others, raised = list[Chain](), list[Chain](), list[Chain]()
    for chain in chains:
        size = next((step for step in chain.steps if step.setting == "max_sectors_kb"), None)
        # Only maps have no adapter; the paths are written in between.
        if size is None or chain.adapter is not None:
            others.append(chain)
        elif isinstance(size.expected, int) and isinstance(size.value, int):
            (lowered if size.value < size.expected else raised).append(chain)
        else:
            # The direction is unknown: early is safe, since a map may always send less than its
            # paths take.
            lowered.append(chain)
    return (batch for batch in (lowered, others, raised) if batch)
