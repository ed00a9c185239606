"""Runs of a probe at depths of the LUN itself, each set for as long as it is measured (D2-1)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from hbatune.act import paths
from hbatune.act.apply import Means
from hbatune.act.trial import Experiment
from hbatune.agent.turns import Turn
from hbatune.facts.model import Machine
from hbatune.operations.situation import configuration
from hbatune.probe.in_force import having
from hbatune.probe.model import Skip, Skipped, Subject, Workload
from hbatune.settings.resolve import resolve_endpoint
from hbatune.settings.setting import Fixed

DEPTH = "queue_depth"

Ready = Callable[[Workload], Subject | Skipped]
"""Sets what the workload asks for, and returns the subject as it then is, or why it cannot be."""


@contextmanager
def at_depths(machine: Machine, subject: Subject, asked: Sequence[Workload]) -> Iterator[Ready]:
    """Yield what makes a subject ready for each workload; its own depth comes back at the end.

    LockedError where another hbatune is changing the machine, JournalError and HoldError as an
    experiment raises them.
    """
    if not any(each.queue_depth for each in asked):
        yield lambda workload: subject
        return
    why = _unable(subject)
    if why is not None:
        yield lambda workload: why
        return
    act = configuration().act
    means = Means(paths.JOURNAL, paths.CLAIMS, 1, act.deadline_seconds)
    id = subject.endpoint.id
    with (
        Turn(),
        Experiment(machine, id, DEPTH, "probe", means, holds=paths.HOLDS) as experiment,
    ):
        yield _Depths(subject, experiment).take


class _Depths:
    """One subject whose depth is set where it is not as asked yet."""

    def __init__(self, subject: Subject, experiment: Experiment) -> None:
        self._subject, self._experiment = subject, experiment

    def take(self, workload: Workload) -> Subject | Skipped:
        depth = workload.queue_depth
        if depth is None:
            return self._subject
        target = self._subject.target
        legal = resolve_endpoint(self._subject.endpoint, DEPTH, depth, depth, None)
        if isinstance(legal, Fixed):
            return Skipped(target, Skip.FIXED_DEPTH, legal.limit)
        if legal.value != depth:
            return Skipped(target, Skip.FIXED_DEPTH, legal.limit)
        result = self._experiment.take(depth)
        if result.found != depth:
            return Skipped(target, Skip.FIXED_DEPTH, str(result.outcome))
        return replace(self._subject, settings=having(self._subject.settings, target, DEPTH, depth))


def _unable(subject: Subject) -> Skipped | None:
    """Return why a subject has no depth of its own to set."""
    if DEPTH in {each.setting for each in subject.settings if each.target == subject.target}:
        return None
    return Skipped(subject.target, Skip.FIXED_DEPTH)
