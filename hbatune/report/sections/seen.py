"""What a report is made from."""

from msgspec import Struct

from hbatune.act.journal import Journal
from hbatune.facts.model import Machine
from hbatune.plan.rows import Plan
from hbatune.policy.model import Profile
from hbatune.policy.references import Yardsticks
from hbatune.probe.history import Record
from hbatune.probe.model import Result
from hbatune.probe.past import Entry, past
from hbatune.probe.select import touched
from hbatune.probe.standing import Standing, standing
from hbatune.report.sweeps import Sweep, sweeps


class Seen(Struct, frozen=True):
    """A machine, what a profile wants of it, what was changed on it and what was measured there.

    ``profile`` and ``plan`` are None where no profile is active and none was named. ``recorded``
    says whether it was seen through a snapshot, which holds no values of before.
    """

    machine: Machine
    profile: Profile | None
    plan: Plan | None
    journal: Journal
    records: tuple[Record, ...]
    yardsticks: Yardsticks
    recorded: bool = False

    @property
    def sweeps(self) -> list[Sweep]:
        """The newest sweeps, the newest first."""
        return sweeps(self.records)

    @property
    def apply(self) -> str:
        """The command that applies the profile, or the first one that comes to mind."""
        return f"hbatune apply --profile {'oltp' if self.profile is None else self.profile.name}"

    @property
    def disk(self) -> str:
        """A disk to name where a command needs one."""
        return next((each.target for each in self.machine.endpoints if not each.map), "sda")

    def standing(self, result: Result) -> Standing | None:
        """Return how a result stands on this machine, None where its disk is gone."""
        subjects = touched(self.machine, {result.target})
        subject = next((each for each in subjects if each.endpoint.id == result.id), None)
        if subject is None:
            return None
        return standing(result, subject, self.profile, self.yardsticks)

    def stale(self, *records: Record) -> list[Entry]:
        """Return those of the records that do not stand any more."""
        return [entry for entry in past(records, self.machine) if entry.stale]
