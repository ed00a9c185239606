"""Print the notes and progress of operations to standard error, and rollbacks as tables."""

import os
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path

from hbatune.facts import model, services
from hbatune.facts.names import natural_key
from hbatune.operations import context
from hbatune.operations.context import Event, Message, Note
from hbatune.operations.situation import Traces
from hbatune.plan.rows import Outcome, Restored
from hbatune.shipped import load_texts
from hbatune.text import plan_tables
from hbatune.text.basic_output import format_count, is_quiet
from hbatune.text.leftovers import print_leftovers
from hbatune.text.plan_tables import fold_rows, format_value, group_equal_rows
from hbatune.text.tables import Table, make_columns
from hbatune.text.terminal import print_line, print_note, show_section
from hbatune.text.units import format_duration

_get_content = attrgetter("setting", "current", "before", "outcome", "errno", "found", "limit")


def show_restored(
    rows: Sequence[Restored], machine: model.Machine, *, lost: bool = False, preview: bool = False
) -> None:
    """Print by adapter the values that a rollback restored; ``lost`` if the journal lost others."""
    for adapter, group in plan_tables.group_by_adapter(rows).items():
        changed = [row for row in group if row.outcome is not Outcome.KEPT]
        if not changed:
            continue
        folded = sorted(fold_rows(changed, _get_content), key=lambda item: natural_key(item[0][0]))
        table = Table(make_columns(_TEXTS["columns"]["preview" if preview else "restored"]))
        for targets, row in group_equal_rows(folded, lambda item: _explain_row(item[1])):
            cells = [row.setting, format_value(row.current), format_value(row.before)]
            cells += [] if preview else [str(row.outcome)]
            reason = "" if preview and row.outcome is None else _explain_row(row)
            table.rows.append([plan_tables.fold_names(targets), *cells, reason])
        show_section(plan_tables.format_adapter(adapter, machine), table)
    if not rows:
        print_line(_fill("values-lost" if lost else "no-values"))
    elif preview:
        print_line(_summarise_preview(rows))
        print_line("Nothing was written.")
    else:
        print_line(_summarise_restored(rows, lost=lost))


def _summarise_preview(rows: Sequence[Restored]) -> str:
    back = sum(row.outcome is None for row in rows)
    refused = sum(row.outcome is not None and not row.done for row in rows)
    could = f"; {refused} could not" if refused else ""
    unchanged = len(rows) - back - refused
    return f"{format_count(back, 'value')} would be restored{could}; {unchanged} unchanged."


def _summarise_restored(rows: Sequence[Restored], *, lost: bool) -> str:
    refused, removed = sum(not row.done for row in rows), sum(row.gone for row in rows)
    ends = "exists because its" if removed == 1 else "exist because their"
    went = f"; {removed} no longer {ends} disk or scheduler was removed" if removed else ""
    went += "; others are lost" if lost else ""
    back = len(rows) - refused - removed
    text = f"{format_count(back, 'value')} restored"
    if refused:
        return f"{text}; {refused} could not be restored{went}."
    all_values = "All " if back > 1 and not lost else ""
    return f"{all_values}{text}{went}."


def _explain_row(row: Restored) -> str:
    reasons = ["removed, with its values"] if row.gone and row.limit is None else []
    if row.errno:
        reasons.append(os.strerror(row.errno))
    if row.limit is not None:
        reasons.append(row.limit)
    if row.found is not None and row.found != row.before:
        reasons.append(f"reads {row.found}")
    if row.limit is not None and not row.done and row.setting in _TEXTS["restore"]:
        reasons.append(_TEXTS["restore"][row.setting])
    return "; ".join(reasons)


def show_note(note: Note) -> None:
    """Print a note: as a message, a table or a line on standard output."""
    match note:
        case Traces():
            print_leftovers(note)
        case context.RollbackResult():
            show_restored(note.rows, note.machine, lost=bool(note.losses))
        case context.EventNote(event=Event.FILE_REMOVED):
            print_line(format_note(note))
        case (
            context.EventNote(event=Event.OPTIONS_WRITTEN | Event.OPTIONS_REMOVED)
            | context.RunsAhead(write=False, cached=False)
            | context.SearchesAhead(emptied=())
            | context.ComparisonsAhead()
        ) if is_quiet():
            pass  # only information
        case _:
            print_note(format_note(note))


# Read with the code: a message during a rollback must not depend on reading one more file.
_TEXTS = load_texts("notes.toml")

_SHOWN_WORDS = 12
"""The number of shown words of a command: udevadm gets a path for each disk."""


def format_note(note: Message) -> str:
    """Return a note as one sentence or two."""
    match note:
        case context.TaskFailed(task, error):
            template: str = _TEXTS["Task"].get(task.name, "{message}; {hint}")
            return template.format(message=error.message, hint=error.hint)
        case context.EventNote(event, subject, errno):
            reason = "" if errno is None else os.strerror(errno)
            return str(_TEXTS["Event"][event.name].format(subject=subject, reason=reason))
        case context.CommandFailed():
            return _describe_command(note)
        case context.FollowsElsewhere(irqbalance, script):
            return _describe_irqbalance(irqbalance, script)
        case context.HistoryFull(removed):
            were = "result was" if removed == 1 else "results were"
            return f"the history is full: its {removed} oldest {were} removed"
        case context.InitramfsStale(modules, command, of_root):
            how = f"`{command}`" if command else "as your distribution does it"
            name = "initramfs-root" if of_root else "initramfs"
            return _fill(name, modules=", ".join(modules), how=how)
        case context.RunsAhead():
            return _describe_runs(note)
        case context.SearchesAhead():
            limit = ""
            if note.limit is not None:
                limit = f", and no longer than {format_duration(note.limit)}"
            disks, time = format_count(note.disks, "disk"), format_duration(note.seconds)
            writes = _describe_writes(note)
            return _fill("search", disks=disks, time=time, limit=limit, writes=writes)
        case context.SearchLonger(target, seconds):
            return _fill("search-longer", target=target, time=format_duration(seconds))
        case context.ComparisonsAhead():
            endpoints = format_count(note.endpoints, "endpoint")
            name = "comparison-again" if note.again else "comparison"
            return _fill(name, note=note, endpoints=endpoints)


def _fill(name: str, **facts: object) -> str:
    return str(_TEXTS["messages"][name].format(**facts))


def _describe_command(note: context.CommandFailed) -> str:
    tool = note.ran
    remedy = ""
    if not tool.finished:
        remedy = f"; {_TEXTS['remedies'].get(tool.command[0], 'run hbatune again')}"
    if note.reloading:
        return f"udev could not reload its rules: {tool.said}{remedy}"
    command = " ".join(tool.command[:_SHOWN_WORDS])
    if len(tool.command) > _SHOWN_WORDS:
        command += " …"
    return f"`{command}` failed: {tool.said}{remedy}"


def _describe_irqbalance(irqbalance: services.Irqbalance | model.Missing, script: Path) -> str:
    if isinstance(irqbalance, model.Missing):
        reason = irqbalance.text or irqbalance.reason
        return _fill("irqbalance-unknown", reason=reason, script=script)
    policy = f", which is {irqbalance.policy} now" if irqbalance.policy else ""
    return _fill("irqbalance", pid=irqbalance.pid, script=script, policy=policy)


def _describe_runs(note: context.RunsAhead) -> str:
    runs = format_count(note.runs, "run")
    if note.again:
        runs = f"IOPS fell: {runs} again"
    time = f"which {'takes' if note.runs == 1 else 'take'} about {note.seconds:.0f} s"
    if note.file_size is not None:
        text = f"{runs} on a file of {note.file_size / (1 << 20):.0f} MiB, {time} with filling it"
        warning = "; a cache of the adapter or array answers, unless the file exceeds it (--size)"
        return text + warning if note.cached else text
    effect = "they WRITE, and destroy the data there" if note.write else "they only read"
    return f"{runs}, {time}; {effect}"


def _describe_writes(note: context.SearchesAhead) -> str:
    if note.emptied:
        return f"it WRITES to {', '.join(note.emptied)}, and destroys the data there"
    if note.folder is not None:
        return f"it writes to a file in {note.folder} and to no disk otherwise"
    return "it only reads"
