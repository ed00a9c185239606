"""Write the better values of searches as local rules, with the measurement as source.

Each file in ``rules.d`` is for one type of disk: a model behind adapters of one family. A new
measurement of the same type replaces the old file. A file with another first line is not changed.
"""

import hashlib
import os
import re
import time
from collections.abc import Iterable, Sequence
from functools import partial
from glob import escape
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from hbatune.act import files
from hbatune.errors import HbatuneError, UsageError
from hbatune.facts.model import Endpoint
from hbatune.facts.names import group_items
from hbatune.operations.context import Context, Task
from hbatune.operations.situation import Situation
from hbatune.policy.profile import Match
from hbatune.policy.rules import SITE_SOURCE
from hbatune.probe.history import ValueChange
from hbatune.search.tournament import DiskSearchResult
from hbatune.settings.table import QUEUE_DEPTH, Value
from hbatune.shipped import fill_message

FIRST_LINE = "# Written by `hbatune autotune --write`, which writes it again."


class MeasuredRule(Struct, frozen=True):
    """A value that was measured to be better than the current one, and the reason."""

    setting: str
    value: Value
    because: str


def make_disk_criteria(endpoint: Endpoint) -> Match:
    """Return the condition for similar disks: family, protocol, medium, vendor and model."""
    return Match(
        family=(endpoint.family,),
        protocol=(endpoint.protocol,),
        medium=(endpoint.medium,),
        kind=(endpoint.kind,),
        storage=(endpoint.storage,),
        # Escaped, since a name may contain the characters of a glob.
        vendor=(escape(endpoint.vendor),) if endpoint.vendor else (),
        model=(escape(endpoint.model),) if endpoint.model else (),
    )


def make_rule_file_name(criteria: Match) -> str:
    """Return the name of the file for a type of disk, unique for each type."""
    parts = (*criteria.family, *criteria.vendor, *criteria.model)
    readable = re.sub(r"[^A-Za-z0-9]+", "-", " ".join(parts)).strip("-").lower()[:64]
    number = hashlib.sha256(msgspec.json.encode(criteria)).hexdigest()[:8]
    return f"autotune-{readable}-{number}.toml"


def format_rules(criteria: Match, rules: Iterable[MeasuredRule], source: str) -> str:
    """Return the text of the file; ``source`` has the date and the device of the measurement."""
    import tomlkit  # heavy, and only needed to write a file

    condition = tomlkit.inline_table()
    condition.update(msgspec.to_builtins(criteria))
    tables = []
    for rule in rules:
        fields = {"name": f"autotune-{rule.setting}", **asdict(rule)}
        tables.append({**fields, "source": f"{SITE_SOURCE}: {source}", "when": condition})
    return f"{FIRST_LINE}\n\n{tomlkit.dumps({'rule': tables})}"


class WrittenRules(Struct, frozen=True):
    """A file of rules for a type of disk, and the measured disk."""

    target: str
    file: str
    settings: tuple[str, ...]


class MeasuredRules(Struct, frozen=True):
    """The written files of rules.

    ``differing`` are disks of one type with different answers, for which there is no rule.
    ``saved`` is whether all files could be written.
    """

    written: tuple[WrittenRules, ...] = ()
    differing: tuple[str, ...] = ()
    saved: bool = True


def require_writable(folder: Path) -> None:
    """Raise UsageError if no rules can be written, before minutes of probes and not after."""
    parent_folder = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
    if not os.access(parent_folder, os.W_OK):
        raise UsageError(f"{folder} cannot be written: {parent_folder} takes no files")


def write_rules(
    context: Context, situation: Situation, disks: Sequence[DiskSearchResult], folder: Path
) -> MeasuredRules:
    """Write the rules for better values into the directory; a failure is a note."""
    endpoints = {endpoint.id: endpoint for endpoint in situation.machine.endpoints}
    counted = [disk for disk in disks if disk.counts]
    by_kind = group_items(counted, lambda disk: make_disk_criteria(endpoints[disk.id]))
    written: list[WrittenRules] = []
    differing: list[str] = []
    saved = True
    for criteria, group in by_kind.items():
        answers = set()
        for disk in group:
            answers.add(tuple((change.setting, change.after) for change in disk.better))
        first = group[0]
        if len(answers) > 1:
            differing += [disk.target for disk in group]
        elif first.better:
            path, rules = folder / make_rule_file_name(criteria), []
            for change in first.better:
                assert change.after is not None
                explain = _explain_depth if change.setting == QUEUE_DEPTH else _explain_tournament
                because = explain(situation, first, change)
                rules.append(MeasuredRule(change.setting, change.after, because))
            text = format_rules(criteria, rules, _describe_source(context, situation, first))
            if context.attempt(Task.WRITE_RULES, partial(_save_rules, path, text)):
                settings = tuple(rule.setting for rule in rules)
                written.append(WrittenRules(first.target, str(path), settings))
            else:
                saved = False
    return MeasuredRules(tuple(written), tuple(differing), saved)


def _save_rules(path: Path, text: str) -> None:
    """Write a file of rules, durably, but never overwrite a file that a user wrote."""
    try:
        first_line = FIRST_LINE.encode()
        if path.is_symlink() or (path.exists() and not path.read_bytes().startswith(first_line)):
            raise HbatuneError(f"{path} is not as hbatune wrote it, and is left")
        files.replace(path, text.encode(), mode=0o644, folder_mode=0o755)
    except OSError as error:
        raise HbatuneError(f"{path} cannot be written: {error.strerror}") from error


def _explain_depth(situation: Situation, disk: DiskSearchResult, change: ValueChange) -> str:
    assert disk.depth is not None
    assert disk.depth.answer is not None
    answer, goal = disk.depth.answer, disk.objective_us
    within = "" if goal is None else f" within the {goal / 1000:g} ms of {situation.profile.name}"
    facts = {"answer": answer, "within": within, "before": change.before}
    return fill_message("measured", "depth", p99_ms=answer.p99_us.value / 1000, **facts)


def _explain_tournament(situation: Situation, disk: DiskSearchResult, change: ValueChange) -> str:
    tournament = disk.settings
    if tournament is None or change.setting not in tournament.in_force:
        tournament = disk.schedulers
    assert tournament is not None
    answer = tournament.answer
    ratios = [answer.ratio or 1.0, answer.low or 1.0, answer.high or 1.0]
    metric = "IOPS"
    if tournament.interference:
        # The score is the inverse of the p99, so its highest ratio is the lowest p99.
        metric, ratios = "p99 of a reader with a bulk writer", [1 / ratio for ratio in ratios]
    ratios[1:] = sorted(ratios[1:])
    effect, low, high = (f"{ratio - 1:+.0%}".replace("%", " %") for ratio in ratios)
    facts = {"metric": metric, "depth": tournament.depth, "before": change.before}
    return fill_message("measured", "tournament", effect=effect, low=low, high=high, **facts)


def _describe_source(context: Context, situation: Situation, disk: DiskSearchResult) -> str:
    day = time.strftime("%Y-%m-%d", time.localtime(context.clock()))
    facts = [f"autotune of {disk.target} on {day}", f"kernel {situation.machine.kernel}"]
    for adapter in () if disk.result is None else disk.result.served:
        parts = [part for part in (adapter.driver, adapter.driver_version) if isinstance(part, str)]
        facts.append(f"driver {' '.join(parts) or 'unknown'}")
        if isinstance(adapter.firmware, str):
            facts.append(f"firmware {adapter.firmware}")
    return ", ".join(facts)
