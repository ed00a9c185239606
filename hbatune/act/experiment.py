"""One setting of one target taken through several values for a measurement, and back.

Like a trial it goes through chains, claims and the journal: the baseline is durable before the
first write, the run stands in the journal until the value is back, and nobody "repairs" it
meanwhile. Killed at any instant, a rollback restores.
"""

import errno
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from hbatune.act import carried_over, journal
from hbatune.act.apply import Means, baselines, chain_of, execute
from hbatune.act.chain import Chain, Step, WriteResult
from hbatune.act.executor import Key, Report
from hbatune.act.hold import Held
from hbatune.act.journal import Entry, Journal, Run
from hbatune.act.rollback import RESTORED, leading_to
from hbatune.facts.model import Machine
from hbatune.facts.targets import targets
from hbatune.plan.rows import Outcome
from hbatune.settings.table import Value
from hbatune.workers import Process, this_process


class Experiment:
    """The ``setting`` of the target ``id`` while a ``command`` tries values of it.

    JournalError where the journal cannot be written, HoldError where the target cannot be held:
    then nothing has been changed.
    """

    def __init__(
        self, machine: Machine, id: str, setting: str, command: str, means: Means, *, holds: Path
    ) -> None:
        self._machine = machine
        self._target = targets(machine)[id]
        self._setting = setting
        self._command = command
        # One that is stopped still puts back what it has changed.
        self._means = msgspec.structs.replace(
            means, stop=lambda: False, progress=lambda chain: None
        )
        self._held = Held(holds, (id,))
        self._filed = Journal(machine.boot_id)
        self._before: dict[str, Value] = {}
        self._stuck: dict[Key, Process] = {}
        self._known: frozenset[Key] = frozenset()

    def __enter__(self) -> Self:
        found = self._now()
        self._before = {entry.setting: entry.before for entry in found}
        filed, _ = carried_over.load(self._means.journal, self._machine)
        self._known = frozenset(entry.key for entry in filed.entries)
        run = Run(self._command, None, this_process(), time.time())
        self._filed = filed.begun(run, found)
        self._held.take()
        try:
            journal.save(self._means.journal, self._filed)
        except journal.JournalError:
            self._held.release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            report = self._back()
            kept = [entry for each in self._filed.entries if (entry := self._kept(each, report))]
            journal.save(self._means.journal, self._filed.ended(kept))
        finally:
            self._held.release()

    def take(self, value: Value) -> WriteResult:
        """Bring the setting to this value, and return what came of it."""
        if self._setting not in self._before:  # nobody could put it back
            return WriteResult(self._setting, Outcome.REFUSED, errno.ENODATA)
        report = execute([self._chain(value)], self._means)
        self._stuck |= report.stuck
        return report.results[self._target.id, self._setting]

    def _chain(self, value: Value) -> Chain:
        return chain_of(self._target, [Step(self._setting, value, None)])

    def _now(self) -> list[Entry]:
        return baselines([self._chain(0)], {}, self._means)

    def _back(self) -> Report:
        """Bring back what differs, unless a write is still waiting in the kernel."""
        if self._stuck:
            return Report(stuck=self._stuck)
        now = {entry.setting: entry.before for entry in self._now()}
        way = leading_to(self._target, self._before, now, self._target.attributes)
        report = execute([way.chain], self._means) if way.chain else Report()
        for name, why in way.refused.items():
            report.results[self._target.id, name] = WriteResult(name, Outcome.REFUSED, said=why)
        return report

    def _kept(self, entry: Entry, report: Report) -> Entry | None:
        """Return the journal's entry as it stays, None for what is back at what it was."""
        if entry.key in report.stuck:
            return msgspec.structs.replace(entry, doubt=report.stuck[entry.key])
        result = report.results.get(entry.key)
        back = not report.stuck and (result is None or result.outcome in RESTORED)
        return None if back and entry.key not in self._known else entry
