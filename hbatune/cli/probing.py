"""The probes around an `apply`: said ahead, shown on the way."""

from collections.abc import Sequence

import msgspec

from hbatune.cli.documents import ProbePair
from hbatune.cli.output import note
from hbatune.cli.progress import progress
from hbatune.cli.situation import Situation
from hbatune.plan import Plan
from hbatune.probe import run
from hbatune.probe.model import Outcome, Pattern, Workload, pair
from hbatune.probe.select import Selection


class Probing:
    """One endpoint for each adapter, medium and model that the plan touches, probed twice."""

    def __init__(self, situation: Situation, plan: Plan, *, declined: bool, shared: bool) -> None:
        targets = {row.target for row in plan.drift}
        self._declined = declined or not targets
        self._workload = workload(situation)
        self._selection = (
            Selection((), ())
            if self._declined
            else run.choose(situation.machine, targets, shared=shared)
        )

    def measure(self, when: str) -> list[Outcome]:
        """Probe the chosen endpoints, and say ahead how long that takes."""
        subjects = self._selection.subjects
        if not subjects:
            return list(self._selection.skipped)
        if when == "before":
            seconds = 2 * run.estimate(len(subjects), self._workload)
            note(f"probing {len(subjects)} endpoints twice, which takes about {seconds:.0f} s")
        with progress(f"probing {when}", len(subjects)) as advance:
            measured = run.probe(
                subjects, self._workload, lambda done, total, target: advance(target)
            )
        return [*measured, *self._selection.skipped]

    def pairs(self, before: Sequence[Outcome], after: Sequence[Outcome]) -> list[ProbePair]:
        """Return each probe before with the one after."""
        return [ProbePair(first, second) for first, second in pair(before, after)]


def workload(situation: Situation) -> Workload:
    """Return the profile's probe, as long as the configuration says."""
    spec, seconds = situation.profile.probe, situation.config.probe.seconds
    return msgspec.structs.replace(
        Workload(),
        pattern=Pattern(spec.pattern),
        block_size=spec.block_bytes,
        depth=spec.depth,
        runtime=float(seconds),
    )
