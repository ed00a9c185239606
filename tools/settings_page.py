"""docs/settings.md: every setting, written out from the one table (``hbatune.settings.table``)."""

import inspect
from collections.abc import Iterator

from hbatune.facts.families import families
from hbatune.facts.model import TargetKind
from hbatune.settings.setting import Cause, Setting, unlimited
from hbatune.settings.table import SETTINGS, setting

_INTRODUCTION = """\
# Settings

Everything that a rule can set, by what it is set on. This page is generated from the table of
settings (`hbatune/settings/table.py`): `make docs`.

*Takes* is the range that the kernel takes on any device, and what a rule may ask for. The *limit*
is what the device at hand allows of it: the plan sets the nearest legal value and says why.
*Order* is the order of writing on one target, also when values are put back. *Group* names
settings that `apply --verify` judges, and puts back, together.
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


def page() -> str:
    """Return the page."""
    parts = [_INTRODUCTION]
    for kind, (heading, where) in _TARGETS.items():
        found = sorted((s for s in SETTINGS.values() if s.on is kind), key=lambda s: s.order)
        parts.append(f"## On {heading}\n")
        parts.append("| setting | what it does | takes | order |\n| --- | --- | --- | --- |")
        parts += [
            f"| [`{s.name}`](#{s.name}) | {s.summary} | {s.allowed()} | {s.order} |" for s in found
        ]
        parts += ["\n".join(("", f"### {s.name}\n", *_section(s, where))) for s in found]
        parts.append("")
    return "\n".join(parts).rstrip("\n") + "\n"


def _section(it: Setting, where: str) -> Iterator[str]:
    yield f"What it does: {it.summary}.\n"
    yield f"- takes: {it.allowed()}"
    if it.limit is not unlimited:
        yield f"- limit of the device: {_limit(it)}"
    yield f"- file: `{it.path}` below the directory of {where}"
    yield f"- order of writing: {it.order}{_hangs(it)}"
    if it.group:
        yield f"- group: {it.group}"
    if it.resets:
        yield f"- a write may also change: {_names(it.resets)}"
    if resets := list(_reset_by(it)):
        yield f"- reset by: {'; '.join(resets)}"
    if it.lost_by:
        yield f"- lost by: {it.lost_by}"
    if it.kept:
        yield "- kept: written again where another setting has changed it"
    if it.disrupts:
        yield f"- disrupts: {it.disrupts}; only with `--allow-reset`"
    if it.at_load:
        yield "- an option of the driver's module: takes effect when the module is loaded next"
    if it.on is TargetKind.HOST:
        yield f"- drivers that have it: {', '.join(_drivers(it))}"
    if refused := list(_refused(it)):
        yield f"- drivers that refuse it: {'; '.join(refused)}"
    yield f"- in the kernel: {it.source}"


def _limit(it: Setting) -> str:
    lines = (inspect.getdoc(it.limit) or "").split("\n\n")
    return " ".join(" ".join(lines).split())


def _hangs(it: Setting) -> str:
    return f", not written where {_names(it.hangs_on)} could not be set" if it.hangs_on else ""


def _reset_by(it: Setting) -> Iterator[str]:
    others = [name for name, other in SETTINGS.items() if it.name in other.resets]
    if others:
        yield f"a write to {_names(others)}"
    yield from (text for cause, text in _CAUSES.items() if cause in it.reset_by)


def _refused(it: Setting) -> Iterator[str]:
    found: dict[str, list[str]] = {}
    for family in families():
        if (why := it.refused_by(family)) is not None:
            found.setdefault(why, []).append(f"`{family.name}`")
    yield from (f"{', '.join(names)} ({why})" for why, names in found.items())


def _drivers(it: Setting) -> Iterator[str]:
    for family in families():
        if any(lever.name == it.name for lever in family.coalescing):
            yield f"`{family.name}`"


def _names(names: "list[str] | tuple[str, ...]") -> str:
    return ", ".join(f"`{_name(name)}`" for name in names)


def _name(name: str) -> str:
    return name if name in SETTINGS else f"{name}*" if name.endswith("/") else setting(name).path
