"""Generate docs/settings.md from the table of settings (``hbatune.settings.table``)."""

import inspect
from collections.abc import Iterator

from hbatune.facts.families import families
from hbatune.facts.family import Depth, Vectors
from hbatune.facts.model import TargetKind
from hbatune.settings.setting import Cause, Setting, accept_any_value
from hbatune.settings.table import IRQ_AFFINITY, QUEUE_DEPTH, SETTINGS, find_setting
from hbatune.text.basic_output import format_sentence

_INTRODUCTION = """\
# Settings

All settings for rules, by type of target. This page is generated from the table of settings
(`hbatune/settings/table.py`): `make docs`.

*Takes* is the range of a rule's value. The *limit* depends on the device: the plan sets the nearest
legal value, which may be above that range, and gives the reason. *Order* is the order of writing on
one target, also for a restore. *Group* names settings that `apply --verify` compares and reverts
together.
"""

_TARGETS = {
    TargetKind.ENDPOINT: ("disks and multipath maps", "the block device"),
    TargetKind.VECTOR: ("interrupt vectors", "`/proc/irq/N`"),
    TargetKind.CONTROLLER: ("NVMe controllers", "the controller"),
    TargetKind.HOST: ("SCSI hosts", "the host"),
}

_CAUSES = {
    Cause.CONNECTED: "a reset of an NVMe controller",
    Cause.LOADED: "a new table of a multipath map",
    Cause.BOUND: "the driver as it takes the adapter over",
}

_FIXED_DEPTHS = {Depth.FIXED: "read-only", Depth.ABSENT: "no SCSI devices"}
_FIXED_VECTORS = {
    Vectors.MANAGED: "managed by the kernel",
    Vectors.MIXED: "data vectors are managed by the kernel",
    Vectors.PINNED: "pinned by the driver",
    Vectors.INTX: "one shared line",
    Vectors.NONE: "no hardware interrupt",
}


def page() -> str:
    """Return the page."""
    parts = [_INTRODUCTION]
    for kind, (heading, device) in _TARGETS.items():
        rows = sorted((s for s in SETTINGS.values() if s.on is kind), key=lambda s: s.order)
        parts.append(f"## On {heading}\n")
        parts.append("| setting | what it does | takes | order |\n| --- | --- | --- | --- |")
        parts += [
            f"| [`{s.name}`](#{s.name}) | {s.summary} | {s.format.allowed} | {s.order} |"
            for s in rows
        ]
        parts += ["\n".join(("", f"### {s.name}\n", *_section(s, device))) for s in rows]
        parts.append("")
    return "\n".join(parts).rstrip("\n") + "\n"


def _section(entry: Setting, device: str) -> Iterator[str]:
    yield f"{format_sentence(entry.summary)}\n"
    yield f"- takes: {entry.format.allowed}"
    if entry.limit is not accept_any_value:
        limit, *details = _limit(entry)
        yield f"- limit of the device: {limit}"
        yield from (f"  - {detail}" for detail in details)
    other = f", or `{entry.other_path}` if that exists" if entry.other_path else ""
    yield f"- file: `{entry.path}` below the directory of {device}{other}"
    yield f"- order of writing: {entry.order}{_hangs(entry)}"
    if entry.group:
        yield f"- group: {entry.group}"
    if entry.resets:
        yield f"- a write may also change: {_names(entry.resets)}"
    if resets := list(_reset_by(entry)):
        yield f"- reset by: {'; '.join(resets)}"
    if entry.lost_by:
        yield f"- lost by: {entry.lost_by}"
    if entry.kept:
        yield "- kept: written again if another setting has changed it"
    if entry.disrupts:
        yield f"- disrupts: {entry.disrupts}; only with `--allow-reset`"
    if entry.at_load:
        yield "- an option of the driver's module: takes effect when the module is loaded next"
    if entry.on is TargetKind.HOST:
        yield f"- drivers that have it: {', '.join(_drivers(entry))}"
    if refused := list(_refused(entry)):
        yield "- drivers that refuse it:"
        yield from (f"  - {drivers}" for drivers in refused)
    yield f"- in the kernel: {entry.source}"


def _limit(entry: Setting) -> list[str]:
    """Return the paragraphs that explain the limit, the docstring of its function."""
    paragraphs = (inspect.getdoc(entry.limit) or "").split("\n\n")
    return [" ".join(paragraph.split()) for paragraph in paragraphs]


def _hangs(entry: Setting) -> str:
    return f", not written if {_names(entry.hangs_on)} could not be set" if entry.hangs_on else ""


def _reset_by(entry: Setting) -> Iterator[str]:
    names = [name for name, candidate in SETTINGS.items() if entry.name in candidate.resets]
    if names:
        yield f"a write to {_names(names)}"
    yield from (text for cause, text in _CAUSES.items() if cause in entry.reset_by)


def _refused(entry: Setting) -> Iterator[str]:
    families_by_reason: dict[str, list[str]] = {}
    for family in families():
        why = None
        if entry.name == QUEUE_DEPTH:
            why = _FIXED_DEPTHS.get(family.depth)
        elif entry.name == IRQ_AFFINITY:
            why = _FIXED_VECTORS.get(family.interrupts.vectors)
        if why is not None:
            families_by_reason.setdefault(why, []).append(f"`{family.name}`")
    yield from (f"{why}: {', '.join(names)}" for why, names in families_by_reason.items())


def _drivers(entry: Setting) -> Iterator[str]:
    for family in families():
        if entry.name in family.coalescing:
            yield f"`{family.name}`"


def _names(names: "list[str] | tuple[str, ...]") -> str:
    return ", ".join(f"`{_name(name)}`" for name in names)


def _name(name: str) -> str:
    return (
        name if name in SETTINGS else f"{name}*" if name.endswith("/") else find_setting(name).path
    )
