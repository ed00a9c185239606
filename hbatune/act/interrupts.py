"""Record the interrupts that irqbalance must leave unchanged, and the immovable ones.

A script reads the list of interrupts that hbatune has placed. irqbalance runs the script for each
interrupt if it was started with ``--policyscript``. An administrator's bans stay: hbatune does not
change irqbalance's options or use its socket, which would replace all earlier bans.

The kernel shows in no file which interrupts are managed, so only a refused write reveals one that
cannot be moved. hbatune remembers such interrupts until the next boot (the file is on a memory file
system). Otherwise every run would plan them again.
"""

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from hbatune import loader
from hbatune.act import files
from hbatune.act.journal import Journal
from hbatune.act.paths import Paths
from hbatune.facts import model, names
from hbatune.facts.services import Irqbalance, find_irqbalance
from hbatune.plan.rows import Plan, Row, State
from hbatune.settings.table import IRQ_AFFINITY
from hbatune.shipped import find_shipped

_DIGITS = 10


def read_placed(paths: Paths) -> frozenset[int]:
    """Return the interrupts on the list for irqbalance."""
    try:
        words = loader.read_bytes(paths.irqs, 1 << 20).split()
    except (OSError, loader.UnusableFileError):
        return frozenset()
    return frozenset(int(word) for word in words if word.isdigit() and len(word) < _DIGITS)


def ban_interrupts(irqs: Iterable[int], paths: Paths) -> Irqbalance | model.Missing | None:
    """Have irqbalance leave exactly these interrupts unchanged.

    Returns an irqbalance that does not run hbatune's script and may still move them, or Missing if
    it is unknown whether one runs. Raises OSError if the list cannot be written or removed.
    """
    wanted = frozenset(irqs)
    irqbalance = find_irqbalance()
    listens = isinstance(irqbalance, Irqbalance) and irqbalance.asks(paths.irq_policy)
    if wanted != read_placed(paths):
        _write_list(wanted, paths, keep_script=listens)
        if isinstance(irqbalance, Irqbalance) and listens:
            _request_rescan(irqbalance)
    return irqbalance if wanted and not listens else None


def _write_list(irqs: frozenset[int], paths: Paths, *, keep_script: bool) -> None:
    if irqs:
        # The script before the list: a list is useless without the script that reads it.
        script = (find_shipped("templates") / "irqbalance-policy").read_bytes()
        files.replace(paths.irq_policy, script, mode=0o755)
        files.replace(paths.irqs, "".join(f"{irq}\n" for irq in sorted(irqs)).encode())
        return
    files.remove(paths.irqs)
    # A running irqbalance keeps calling the script by its path, so the script stays for it.
    if not keep_script:
        files.remove(paths.irq_policy)


def _request_rescan(irqbalance: Irqbalance) -> None:
    """Have irqbalance classify every interrupt again: irqbalance(1), SIGHUP."""
    has_ended = suppress(ProcessLookupError)
    with has_ended, loader.close_on_exit(os.pidfd_open(irqbalance.pid)) as descriptor:
        # The pid may have been reused before the pidfd was opened. SIGHUP ends most other programs.
        current = find_irqbalance()
        if isinstance(current, Irqbalance) and current.pid == irqbalance.pid:
            signal.pidfd_send_signal(descriptor, signal.SIGHUP)


def remember_immovable(path: Path, plan: Plan, rows: Iterable[Row]) -> None:
    """Remember planned interrupts that proved immovable, so no run plans them again. OSError."""
    planned = {row.key for row in plan.drift}
    remembered = loader.load_or(path, frozenset(), loader.STATE_BOUNDS, frozenset[str])
    immovable = {row.id for row in rows if row.state is State.FIXED and row.key in planned}
    immovable |= remembered
    if immovable != remembered:
        files.replace(path, msgspec.json.encode(sorted(immovable)), mode=files.READABLE_MODE)


def with_records(machine: model.Machine, filed: Journal, path: Path) -> model.Machine:
    """Return the machine with the CPUs of placed vectors, according to the journal.

    The vectors remembered in the file at ``path`` are managed, not inferred to be free.
    """
    remembered = loader.load_or(path, frozenset(), loader.STATE_BOUNDS, frozenset[str])
    placed: dict[str, tuple[int, ...]] = {}
    for entry in filed.entries:
        if entry.setting == IRQ_AFFINITY and entry.value is not None:
            placed[entry.id] = names.find_cpus(str(entry.value)) or ()
    vectors: list[model.Vector] = []
    for vector in machine.vectors:
        known = replace(vector, managed=True, inferred=False) if vector.id in remembered else vector
        vectors.append(replace(known, placed=placed.get(vector.id, ())))
    return replace(machine, vectors=tuple(vectors))
