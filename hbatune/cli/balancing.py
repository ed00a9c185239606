"""What `apply` and `rollback` tell irqbalance, and what they tell people about it."""

from collections.abc import Collection, Iterable

from hbatune.act import irqbalance, paths
from hbatune.cli.output import note
from hbatune.facts.model import Machine, Role
from hbatune.rows import Row, State

_PLACED = (State.OK, State.DRIFT)


def ban(machine: Machine, rows: Iterable[Row]) -> None:
    """Have irqbalance leave the vectors of these rows, and those of earlier runs, where they are.

    Says so where it runs and cannot be told.
    """
    ids = {row.id for row in rows if row.setting == "irq_affinity" and row.state in _PLACED}
    data = {vector.irq for vector in machine.vectors if vector.role is Role.DATA}
    planned = {vector.irq for vector in machine.vectors if vector.id in ids}
    _tell(planned | (irqbalance.placed() & data))


def unban(machine: Machine, ids: Collection[str] | None) -> None:
    """Give irqbalance the vectors with these ids back, or all of them."""
    back = {vector.irq for vector in machine.vectors if ids is None or vector.id in ids}
    _tell(frozenset() if ids is None else irqbalance.placed() - back)


def _tell(irqs: Iterable[int]) -> None:
    try:
        deaf = irqbalance.leave(irqs)
    except OSError as error:
        note(f"irqbalance could not be told which interrupts to leave: {error.strerror}")
        return
    if deaf is not None:
        other = f", which is {deaf.policy} now" if deaf.policy else ""
        note(
            f"irqbalance (process {deaf.pid}) runs and may move the interrupts that were placed; "
            f"start it with --policyscript={paths.IRQ_POLICY}{other}, and it leaves just those"
        )
