"""Write the results of searches as rules of the site, with the measurement as source.

A site's rules from measurements, as a file of ``rules.d``: its name and its text. Pure.

Such a file is for one kind of disk: a model behind the adapters of one family. A new measurement
of the same kind takes the place of the old file, and one whose first line is another is left alone.

Writes what searches found to be better as rules of the site, with the measurement as source.
"""

import hashlib
import os
import re
import time
from collections.abc import Iterable, Sequence
from glob import escape
from pathlib import Path

import msgspec
from msgspec import Struct

from hbatune.act import files
from hbatune.errors import HbatuneError, UsageError
from hbatune.facts.model import Endpoint
from hbatune.operations.context import Context, Task, TaskFailed
from hbatune.operations.situation import Situation
from hbatune.policy.profile import Match
from hbatune.policy.rules import SITE
from hbatune.probe.history import ValueChange
from hbatune.search.tournament import DiskSearchResult
from hbatune.settings.table import QUEUE_DEPTH, Value

FIRST_LINE = "# Written by `hbatune autotune --write`, which writes it again."
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9]+")
_LONGEST = 64


class MeasuredRule(Struct, frozen=True):
    """A value that was measured to be better than the one in force, and why."""

    setting: str
    value: Value
    because: str


def kind_of_disk(endpoint: Endpoint) -> Match:
    """Return the condition for disks like this one: family, protocol, medium, vendor and model."""
    return Match(
        family=(endpoint.family,),
        protocol=(endpoint.protocol,),
        medium=(endpoint.medium,),
        kind=(endpoint.kind,),
        storage=(endpoint.storage,),
        # As names, not as the globs that they could be taken for.
        vendor=(escape(endpoint.vendor),) if endpoint.vendor else (),
        model=(escape(endpoint.model),) if endpoint.model else (),
    )


def rule_file_name(when: Match) -> str:
    """Return the name of the file for a kind of disk: the same for the same kind, and no other."""
    words = (*when.family, *when.vendor, *when.model)
    readable = _NOT_IN_NAMES.sub("-", " ".join(words)).strip("-").lower()[:_LONGEST]
    number = hashlib.sha256(msgspec.json.encode(when)).hexdigest()[:8]
    return f"autotune-{readable}-{number}.toml"


def rules_text(when: Match, rules: Iterable[MeasuredRule], source: str) -> str:
    """Return the file; ``source`` says when and on what it was measured."""
    import tomlkit  # heavy, and needed only where a file is written

    document = tomlkit.document()
    tables = tomlkit.aot()
    for rule in rules:
        table = tomlkit.table()
        table["name"] = f"autotune-{rule.setting}"
        table["setting"] = rule.setting
        table["value"] = rule.value
        table["because"] = rule.because
        table["source"] = f"{SITE}: {source}"
        condition = tomlkit.inline_table()
        condition.update(msgspec.to_builtins(when))
        table["when"] = condition
        tables.append(table)
    document["rule"] = tables
    return f"{FIRST_LINE}\n\n{tomlkit.dumps(document)}"


def is_measured(text: bytes) -> bool:
    """Whether a file is one that ``rules_text`` has made."""
    return text.startswith(FIRST_LINE.encode())


class WrittenRules(Struct, frozen=True):
    """A file of rules for a kind of disk, and the disk that was measured."""

    target: str
    file: str
    settings: tuple[str, ...]


class MeasuredRules(Struct, frozen=True):
    """The files of rules that were written.

    ``differing`` are disks of one kind with different answers, for which there is no rule.
    ``saved`` is whether all files could be written.
    """

    written: tuple[WrittenRules, ...] = ()
    differing: tuple[str, ...] = ()
    saved: bool = True


class RulesNotWrittenError(HbatuneError):
    """A file of rules could not be written."""


def require_writable(folder: Path) -> None:
    """Raise UsageError where no rules can be written: before minutes of probes, not after."""
    there = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
    if not os.access(there, os.W_OK):
        raise UsageError(f"{folder} cannot be written: {there} takes no files")


def write_rules(
    context: Context, situation: Situation, disks: Sequence[DiskSearchResult], folder: Path
) -> MeasuredRules:
    """Write the rules for what is better into the folder; a failure is a note."""
    endpoints = {endpoint.id: endpoint for endpoint in situation.machine.endpoints}
    by_kind: dict[Match, list[DiskSearchResult]] = {}
    for disk in disks:
        if disk.counts:
            by_kind.setdefault(kind_of_disk(endpoints[disk.id]), []).append(disk)
    written: list[WrittenRules] = []
    differing: list[str] = []
    saved = True
    for when, alike in by_kind.items():
        answers = {tuple((one.setting, one.after) for one in each.better) for each in alike}
        first = alike[0]
        if len(answers) > 1:
            differing += [each.target for each in alike]
        elif first.better:
            path = folder / rule_file_name(when)
            rules = [_rule(situation, first, each) for each in first.better]
            try:
                _save(path, rules_text(when, rules, _source(context, situation, first)))
            except RulesNotWrittenError as error:
                context.reporter.note(TaskFailed(Task.WRITE_RULES, error))
                saved = False
            else:
                settings = tuple(one.setting for one in first.better)
                written.append(WrittenRules(first.target, str(path), settings))
    return MeasuredRules(tuple(written), tuple(differing), saved)


def _save(path: Path, text: str) -> None:
    """Write a file of rules, durably, but never over one that a person wrote."""
    try:
        if path.is_symlink() or (path.exists() and not is_measured(path.read_bytes())):
            raise RulesNotWrittenError(f"{path} is not as hbatune wrote it, and is left")
        files.replace(path, text.encode(), mode=0o644, folder_mode=0o755)
    except OSError as error:
        raise RulesNotWrittenError(f"{path} cannot be written: {error.strerror}") from error


def _rule(situation: Situation, disk: DiskSearchResult, found: ValueChange) -> MeasuredRule:
    """Return the rule for a value that is better, with the figures that say so."""
    assert found.after is not None
    if found.setting == QUEUE_DEPTH:
        because = _because_of_depth(situation, disk, found)
    else:
        because = _because_of_tournament(disk, found)
    return MeasuredRule(found.setting, found.after, because)


def _because_of_depth(situation: Situation, disk: DiskSearchResult, found: ValueChange) -> str:
    assert disk.depth is not None
    assert disk.depth.answer is not None
    answer, goal = disk.depth.answer, disk.objective_us
    within = "" if goal is None else f" within the {goal / 1000:g} ms of {situation.profile.name}"
    return (
        f"the best of {answer.probes} probes{within}: {answer.iops.value:.0f} IOPS "
        f"({answer.iops.low:.0f} to {answer.iops.high:.0f}) at a p99 of "
        f"{answer.p99_us.value / 1000:.2f} ms; {found.before} was in force"
    )


def _because_of_tournament(disk: DiskSearchResult, change: ValueChange) -> str:
    both = (disk.settings, disk.schedulers)
    found = next(each for each in both if each is not None and change.setting in each.settings)
    answer = found.answer
    ratios = [each or 1.0 for each in (answer.ratio, answer.low, answer.high)]
    what = "IOPS"
    if found.interference:
        # The score is one over p99, so that its highest ratio is the lowest p99.
        what, ratios = "p99 of a reader beside a bulk writer", [1 / each for each in ratios]
    shown, *ends = (
        f"{ratio - 1:+.0%}".replace("%", " %") for ratio in (ratios[0], *sorted(ratios[1:]))
    )
    return (
        f"{shown} {what} ({' to '.join(ends)}) at depth {found.depth}, against {change.before}, "
        "which was in force"
    )


def _source(context: Context, situation: Situation, disk: DiskSearchResult) -> str:
    """Return when and on what it was measured: date, kernel, driver and firmware."""
    day = time.strftime("%Y-%m-%d", time.localtime(context.clock()))
    words = [f"autotune of {disk.target} on {day}", f"kernel {situation.machine.kernel}"]
    for each in () if disk.result is None else disk.result.served:
        parts = [part for part in (each.driver, each.driver_version) if isinstance(part, str)]
        words.append(f"driver {' '.join(parts) or 'unknown'}")
        if isinstance(each.firmware, str):
            words.append(f"firmware {each.firmware}")
    return ", ".join(words)
