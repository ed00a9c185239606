"""Keeps the list of interrupts that irqbalance leaves alone: those that hbatune has placed.

One rule for commands and daemon. An interrupt counts as placed where a row wants it somewhere and
it is there. Excluded or rolled-back interrupts do not count, nor do those that the kernel or the
driver places (state ``fixed``), those that go back to their baseline, those whose write failed, and
those that were left alone.
"""

from collections.abc import Callable, Collection, Iterable

from hbatune.act import interrupts
from hbatune.errors import HbatuneError, remedy
from hbatune.facts.model import Machine, Role
from hbatune.operations.context import Context
from hbatune.operations.notes import FollowsElsewhere, Task, TaskFailed
from hbatune.plan.rows import BASELINE, DONE, Plan, Row, State

_SETTING = "irq_affinity"


class IrqbalanceError(HbatuneError):
    """A list of interrupts cannot be written, such as the one that irqbalance reads."""

    def __init__(
        self,
        error: OSError,
        problem: str = "irqbalance could not be told which interrupts to leave",
    ) -> None:
        super().__init__(f"{problem}: {error.strerror}", hint=remedy(error, error.filename))
        self.__cause__ = error


def reserve(
    context: Context, machine: Machine, rows: Iterable[Row], ids: Collection[str] | None = None
) -> None:
    """Have irqbalance leave alone the interrupts that these rows have placed or are about to place.

    Before the writes, so that it does not move an interrupt that has just been placed. The rows
    decide for the vectors with these ``ids``, or for all; other vectors stay as they are on the
    list. A list that cannot be written, or that the running irqbalance does not read, is a note.
    """
    wanted = _placing(machine, rows, ids, (State.OK, State.DRIFT))
    # A command warns each time that irqbalance does not follow; the daemon only asks after changes.
    _tell(context, wanted, always=context.warns)


def keep_placed(
    context: Context, machine: Machine, rows: Iterable[Row], ids: Collection[str] | None = None
) -> bool:
    """Have irqbalance leave alone the interrupts that these rows, after their writes, have placed.

    Interrupts that were reserved for a write that failed are released. ``ids`` as for ``reserve``.
    Returns whether the list could be written.
    """
    return _tell(context, _placing(machine, rows, ids, (State.OK,)))


def release(context: Context, machine: Machine, ids: Collection[str] | None) -> bool:
    """Release the vectors with these ids to irqbalance, or all of them.

    Returns whether the list could be written.
    """
    return _tell(context, _placing(machine, (), ids, ()), always=True)


def remember_immovable(context: Context, plan: Plan, rows: Iterable[Row]) -> bool:
    """Remember the interrupts that turned out to be immovable; return whether that succeeded."""
    try:
        interrupts.remember_immovable(context.paths.locked, plan, rows)
    except OSError as error:
        problem = "interrupts that cannot be moved are not recorded, and will show as drift again"
        context.reporter.note(TaskFailed(Task.TELL_IRQBALANCE, IrqbalanceError(error, problem)))
        return False
    return True


_Choice = Callable[[frozenset[int]], frozenset[int]]
"""Returns the interrupts to leave alone, given those on the list now."""


def _placing(
    machine: Machine,
    rows: Iterable[Row],
    ids: Collection[str] | None,
    untried: Collection[State],
) -> _Choice:
    """Return the choice that these rows make; those without an outcome count if ``untried``."""
    wanted = {row.id for row in rows if row.setting == _SETTING and _is_placed(row, untried)}

    def choose(placed: frozenset[int]) -> frozenset[int]:
        return frozenset(
            each.irq
            for each in machine.vectors
            # Admin vectors and shared lines are never hbatune's to place.
            if each.role is Role.DATA
            and (each.id in wanted if ids is None or each.id in ids else each.irq in placed)
        )

    return choose


def _is_placed(row: Row, untried: Collection[State]) -> bool:
    # Back at its baseline, an interrupt is irqbalance's again.
    if row.rule == BASELINE:
        return False
    if row.outcome is not None:
        return row.outcome in DONE
    return row.state in untried


def _tell(context: Context, choose: _Choice, *, always: bool = False) -> bool:
    """Have irqbalance leave the chosen interrupts alone, if they have changed or ``always``.

    Each change makes it classify every interrupt again. Returns whether the list could be written;
    a failure is a note.
    """
    try:
        before = interrupts.placed(context.paths)
        wanted = choose(before)
        other = interrupts.leave(wanted, context.paths) if always or wanted != before else None
    except OSError as error:
        context.reporter.note(TaskFailed(Task.TELL_IRQBALANCE, IrqbalanceError(error)))
        return False
    if other is not None:
        context.reporter.note(FollowsElsewhere(other, context.paths.irq_policy))
    return True
