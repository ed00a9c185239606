"""What `apply` and `rollback` tell irqbalance, and what they tell people about it."""

from collections.abc import Collection, Iterable

from hbatune.act import interrupts, paths
from hbatune.cli.text.output import note
from hbatune.facts.model import Machine
from hbatune.plan.rows import Row


def ban(machine: Machine, rows: Iterable[Row], ids: Collection[str] | None = None) -> None:
    """Have irqbalance leave exactly what these rows place (``irqbalance.to_leave``).

    Says so where it runs and cannot be told.
    """
    _tell(interrupts.to_leave(machine, rows, ids))


def unban_refused(
    machine: Machine, rows: Iterable[Row], ids: Collection[str] | None = None
) -> None:
    """Give irqbalance back the vectors of ``ban`` whose write, by these rows, did not take."""
    if interrupts.to_leave(machine, rows, ids) != interrupts.placed():
        ban(machine, rows, ids)


def unban(machine: Machine, ids: Collection[str] | None) -> None:
    """Give irqbalance the vectors with these ids back, or all of them."""
    _tell(interrupts.to_leave(machine, (), ids))


def _tell(irqs: Iterable[int]) -> None:
    try:
        deaf = interrupts.leave(irqs)
    except OSError as error:
        note(f"irqbalance could not be told which interrupts to leave: {error.strerror}")
        return
    if deaf is not None:
        other = f", which is {deaf.policy} now" if deaf.policy else ""
        note(
            f"irqbalance (process {deaf.pid}) runs and may move the interrupts that were placed; "
            f"start it with --policyscript={paths.IRQ_POLICY}{other}, and it leaves just those"
        )
