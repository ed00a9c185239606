"""The probes around an `apply`: said ahead, shown on the way."""

from collections.abc import Sequence

from hbatune.cli.text.documents import ProbePair
from hbatune.cli.text.output import note
from hbatune.cli.text.progress import progress
from hbatune.operations.situation import Situation
from hbatune.plan.rows import Plan
from hbatune.policy.config import ProbeConfig
from hbatune.probe import run
from hbatune.probe.budget import APPLY, fit
from hbatune.probe.model import Outcome, Result, Subject, Workload, pair
from hbatune.probe.select import Selection
from hbatune.probe.workloads import short_form


class Probing:
    """One endpoint for each adapter, medium and model that the plan touches, probed twice.

    Both together take a minute at most: runs get shorter, and what still does not fit is said. A
    site that wants longer runs gets so much more.
    """

    def __init__(self, situation: Situation, plan: Plan, *, declined: bool, shared: bool) -> None:
        targets = touched(situation, plan)
        self._declined = declined or not targets
        self._selection = (
            Selection((), ())
            if self._declined
            else run.choose(situation.machine, targets, shared=shared)
        )
        longer = max(1.0, situation.config.probe.seconds / ProbeConfig().seconds)
        self._budget = fit(self._selection.subjects, workload(situation), 2, APPLY * longer)

    def before(self) -> list[Outcome]:
        """Probe the chosen endpoints, and say ahead how long both probes take."""
        subjects, left_out = self._budget.subjects, self._budget.left_out
        if subjects:
            seconds = self._budget.seconds
            note(f"probing {len(subjects)} endpoints twice, which takes about {seconds:.0f} s")
        if left_out:
            names = ", ".join(subject.target for subject in left_out)
            note(f"no time to probe {names} as well; `hbatune probe` does")
        return [*self._measure("before", subjects), *self._selection.skipped]

    def after(self, before: Sequence[Outcome]) -> list[ProbePair]:
        """Probe once more what has figures, and return each probe with the one before."""
        measured = {outcome.target for outcome in before if isinstance(outcome, Result)}
        subjects = [each for each in self._budget.subjects if each.target in measured]
        return paired(before, self._measure("after", subjects))

    def _measure(self, when: str, subjects: Sequence[Subject]) -> list[Outcome]:
        if not subjects:
            return []
        with progress(f"probing {when}", len(subjects)) as advance:
            return run.probe(
                subjects,
                self._budget.workload,
                lambda done, total, name: advance(name),
                look=when == "before",
            )


def touched(situation: Situation, plan: Plan) -> set[str]:
    """Return the endpoints that the plan changes; what is set on an adapter changes all of its."""
    endpoints = {endpoint.target for endpoint in situation.machine.endpoints}
    rows = ((row.target if row.target in endpoints else row.adapter) for row in plan.drift)
    return {target for target in rows if target is not None}


def paired(before: Sequence[Outcome], after: Sequence[Outcome]) -> list[ProbePair]:
    """Return each probe before with the one after, where there was one."""
    return [ProbePair(first, second) for first, second in pair(before, after)]


def workload(situation: Situation) -> Workload:
    """Return the profile's probe, as long as the configuration says."""
    return short_form(situation.profile.probe, float(situation.config.probe.seconds))
