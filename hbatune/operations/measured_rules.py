"""Writes what searches found to be better as rules of the site, with the measurement as source."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from hbatune.act import files
from hbatune.errors import HbatuneError, UsageError
from hbatune.operations.context import Context
from hbatune.operations.notes import Task, TaskFailed
from hbatune.operations.situation import Situation
from hbatune.policy.measured import (
    MeasuredRule,
    file_name,
    is_measured,
    kind_of_disk,
    rules_text,
)
from hbatune.policy.model import Match
from hbatune.probe.history import ValueChange
from hbatune.search.disk import DiskSearchResult
from hbatune.settings.table import QUEUE_DEPTH


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
    there = next(each for each in (folder, *folder.parents) if each.is_dir())
    if not os.access(there, os.W_OK):
        raise UsageError(f"{folder} cannot be written: {there} takes no files")


def write_rules(
    context: Context, situation: Situation, disks: Sequence[DiskSearchResult], folder: Path
) -> MeasuredRules:
    """Write the rules for what is better into the folder; a failure is a note."""
    endpoints = {each.id: each for each in situation.machine.endpoints}
    by_kind: dict[Match, list[DiskSearchResult]] = {}
    for each in disks:
        if each.counts:
            by_kind.setdefault(kind_of_disk(endpoints[each.id]), []).append(each)
    written: list[WrittenRules] = []
    differing: list[str] = []
    saved = True
    for when, alike in by_kind.items():
        answers = {tuple((one.setting, one.after) for one in each.better) for each in alike}
        first = alike[0]
        if len(answers) > 1:
            differing += [each.target for each in alike]
        elif first.better:
            path = folder / file_name(when)
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
