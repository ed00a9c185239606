"""Tells irqbalance which interrupts hbatune has placed, beside whatever else it was told.

The numbers stand in a list that a script answers from, which irqbalance asks about each interrupt
where it was started with ``--policyscript``. What an administrator banned stays banned: neither
irqbalance's options nor its socket, which would replace all earlier bans, are touched.
"""

import os
import signal
from collections.abc import Iterable

from hbatune.act import files, paths
from hbatune.facts.irqbalance import Irqbalance, running
from hbatune.shipped import shipped


def placed() -> frozenset[int]:
    """Return the interrupts that irqbalance is told to leave."""
    try:
        words = paths.IRQS.read_text().split()
    except FileNotFoundError:
        return frozenset()
    return frozenset(int(word) for word in words if word.isdecimal())


def leave(irqs: Iterable[int]) -> Irqbalance | None:
    """Have irqbalance leave exactly these interrupts alone, none of them where there are none.

    Returns the irqbalance that runs and does not ask our script, so that it may move them still.
    OSError where the list cannot be written.
    """
    wanted = frozenset(irqs)
    there = running()
    listens = there is not None and there.asks(paths.IRQ_POLICY)
    if wanted != placed():
        _write(wanted, keep_script=listens)
        if listens:
            assert there is not None
            _rescan(there)
    return there if wanted and not listens else None


def _write(irqs: frozenset[int], *, keep_script: bool) -> None:
    if irqs:
        script = (shipped("templates") / "irqbalance-policy").read_bytes()
        files.replace(paths.IRQ_POLICY, script, mode=0o755)
        text = "".join(f"{irq}\n" for irq in sorted(irqs))
        files.replace(paths.IRQS, text.encode())
        return
    files.remove(paths.IRQS)
    if not keep_script:
        files.remove(paths.IRQ_POLICY)


def _rescan(there: Irqbalance) -> None:
    """Have irqbalance ask again about every interrupt: irqbalance(1), SIGHUP."""
    try:
        descriptor = os.pidfd_open(there.pid)
    except ProcessLookupError:
        return
    try:
        still = running()
        if still is not None and still.pid == there.pid:
            signal.pidfd_send_signal(descriptor, signal.SIGHUP)
    finally:
        os.close(descriptor)
