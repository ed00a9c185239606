"""`hbatune explain`: the rules, limits and documents behind a planned value. Writes nothing."""

import argparse
from collections.abc import Iterator

from msgspec import Struct

from hbatune.cli.arguments import add_json, add_profile, add_snapshot
from hbatune.cli.commands.profiles import effect, when
from hbatune.cli.text.leftovers import tell, tell_not_understood, tell_unmatched
from hbatune.cli.text.output import Table, heading, say, show_json
from hbatune.cli.text.rows import adapter_line, medium_text, shown
from hbatune.errors import UsageError
from hbatune.facts.model import Attribute, Endpoint, Kind, Protocol, TargetKind
from hbatune.facts.targets import Target, target_of, targets
from hbatune.operations.situation import Situation, survey
from hbatune.plan.rows import Row
from hbatune.policy.budget import MOST, VENDOR_DEFAULT, DepthBudget, LunLimit, PortShare
from hbatune.policy.load import installed_library
from hbatune.policy.match import Matcher, Traits, adapter_traits, traits
from hbatune.policy.model import Rule, Source
from hbatune.settings.table import SETTINGS

SCHEMA = "hbatune.explain/1"
_DEPTH = "device/queue_depth"


class Explained(Struct, frozen=True):
    """One setting of one target: the rules that match, in order, and the row they lead to.

    ``budget`` is the arithmetic of a queue depth that follows from the site's arrays.
    """

    target: str
    id: str
    setting: str
    rules: tuple[Rule, ...]
    row: Row | None
    budget: DepthBudget | None = None


class ExplainDocument(Struct, frozen=True):
    """The JSON document of `explain`."""

    explained: tuple[Explained, ...]
    sources: tuple[Source, ...]
    schema: str = SCHEMA


SUMMARY = "why a setting of a target is planned as it is"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `explain`."""
    parser.add_argument(
        "target", metavar="TARGET", help="a disk, an interrupt (irq27), or what means several"
    )
    parser.add_argument("setting", metavar="SETTING", nargs="?", help="one setting, not all")
    add_profile(parser)
    add_json(parser)
    add_snapshot(parser)


def run(args: argparse.Namespace) -> int:
    """Print the matching rules, the limit that applied and the documents cited."""
    if args.setting is not None and args.setting not in SETTINGS:
        raise UsageError(f"there is no setting {args.setting!r}, only {', '.join(SETTINGS)}")
    situation = survey(args.profile, [args.target], snapshot=args.snapshot)
    explained = list(_explain(situation, args.setting))
    if args.setting is not None and not explained:
        kind = SETTINGS[args.setting].on
        raise UsageError(
            f"{args.setting} is a setting of a {kind}, and {args.target} has none",
            hint="name the adapter, by its PCI address for one",
        )
    known = installed_library().sources()
    cited = {source for each in explained for source in _cited(each)}
    sources = tuple(source for id, source in known.items() if id in cited)
    tell(situation.journal, situation.machine, situation.stuck)
    tell_unmatched(situation.unmatched)
    tell_not_understood(situation.not_understood)
    if args.json:
        show_json(ExplainDocument(tuple(explained), sources))
        return 0
    for each in explained:
        _show(each, situation)
    if sources:
        heading("What the documents say")
        for source in sources:
            say(f"{source.id}  {source.title}, {source.section}: {source.says}")
    return 0


def depth_lines(budget: DepthBudget | None, endpoint: Endpoint) -> Iterator[str]:
    """Yield the lines on a depth budget, or on the default where the site describes no array."""
    if budget is not None:
        yield f"array     {budget.array}, as the site describes it"
        if budget.port:
            yield f"port      {_port(budget.port)}"
        if budget.lun:
            yield f"LUN       {_lun(budget.lun)}"
        yield f"budget    {budget.depth}: the smallest of these, and {MOST} at most (D2-2)"
    elif endpoint.protocol in (Protocol.FC, Protocol.ISCSI) and endpoint.kind is not Kind.MAP:
        now = endpoint.attributes.get(_DEPTH)
        own = now.text if isinstance(now, Attribute) else "unknown"
        yield f"default   the driver's own depth, {own} now, stands; vendors of FC cards went by"
        yield f"          {VENDOR_DEFAULT} (D2-1). [[site.array]] in hbatune.toml gives it a budget"


def _explain(situation: Situation, setting: str | None) -> Iterator[Explained]:
    """Yield the settings of all targets asked for, or the one setting where it exists."""
    matcher = Matcher(situation.profile)
    # A path is planned with its siblings, also where only one of them was asked for.
    rows = {(row.id, row.setting): row for row in situation.whole().plan().rows}
    budgets = situation.budgets
    for target, asked in _targets(situation):
        matched = matcher.decide(asked)[0]
        names = list(dict.fromkeys(rule.setting for rule in matched))
        if setting is not None:
            names = [setting] if SETTINGS[setting].on is target.kind else []
        for name in names:
            yield Explained(
                target=target.name,
                id=target.id,
                setting=name,
                rules=tuple(rule for rule in matched if rule.setting == name),
                row=rows.get((target.id, name)),
                budget=budgets.get(target.id) if name == "queue_depth" else None,
            )


def _cited(explained: Explained) -> Iterator[str]:
    yield from (rule.source for rule in explained.rules)
    if explained.row:
        yield explained.row.source
    if explained.budget:
        yield from ("D2-2", "D2-3", "D2-4", "D2-5")


def _targets(situation: Situation) -> Iterator[tuple[Target, Traits]]:
    """Yield the targets asked for, with the traits that rules match."""
    adapters = {adapter.target: adapter for adapter in situation.machine.adapters}
    for endpoint in situation.chosen:
        yield target_of(endpoint), traits(endpoint, adapters.get(endpoint.adapter or ""))
    for target in targets(situation.machine).values():
        if target.kind is not TargetKind.ENDPOINT and target.id in (situation.ids or ()):
            yield target, adapter_traits(adapters[target.adapter or ""], target.kind)


def _description(explained: Explained, situation: Situation) -> str:
    """Return a short description of the target."""
    for endpoint in situation.chosen:
        if endpoint.id == explained.id:
            return f"{medium_text(endpoint)} {endpoint.vendor} {endpoint.model}, {endpoint.id}"
    for vector in situation.machine.vectors:
        if vector.id == explained.id:
            return f"{' '.join(vector.names)}, served by CPU {shown(vector.effective)} now"
    return explained.id


def _rule_cells(rule: Rule, last: Rule) -> list[str]:
    decides = "decides" if rule is last else ""
    told = [rule.name, when(rule.when), effect(rule), rule.because, rule.source, rule.file]
    return [decides, *told]


def _show(explained: Explained, situation: Situation) -> None:
    setting = SETTINGS[explained.setting]
    heading(f"{explained.target} {setting.name}: {setting.summary}")
    target = targets(situation.machine)[explained.id]
    say(f"  {target.kind:<9} {_description(explained, situation)}")
    say(f"  adapter   {adapter_line(target.adapter, situation.machine)}")
    say(f"  kernel    {setting.source}")
    if setting.lost_by:
        say(f"  lost by   {setting.lost_by}")
    row = explained.row
    if row is None:
        say(f"  outcome   profile {situation.profile.name} does not set it")
    else:
        say(f"  current   {shown(row.current)}")
        say(f"  wanted    {row.wanted}")
        if row.limit:
            say(f"  limit     {row.limit}")
        say(f"  value     {shown(row.value)}")
        say(f"  state     {row.state}")
        say(f"  why       {row.why} ({row.source}; rule {row.rule})")
    for endpoint in situation.chosen if setting.name == "queue_depth" else ():
        if endpoint.id == explained.id:
            for line in depth_lines(explained.budget, endpoint):
                say(f"  {line}")
    if explained.rules:
        table = Table(["", "RULE", "WHEN", "VALUE", "BECAUSE", "SOURCE", "FILE"], wraps="BECAUSE")
        table.rows = [_rule_cells(rule, explained.rules[-1]) for rule in explained.rules]
        table.show()
    else:
        say("  rules     no rule of the profile matches this setting of this target")
    say()


def _port(share: PortShare) -> str:
    told = f"a limit of {share.limit} / {_count(share.hosts, 'host')}"
    if share.luns > 1:
        told += f" / {_count(share.luns, 'path')} of this host"
    return f"{told} = {share.depth} (D2-4, D2-3)"


def _lun(limit: LunLimit) -> str:
    told = f"{limit.base}"
    if limit.per_data_drive:
        told += f" + {limit.per_data_drive} x {_count(limit.data_drives, 'data drive')}"
        told += f" = {limit.total}"
    if limit.paths > 1:
        told += f" / {_count(limit.paths, 'path')} in use = {limit.depth}"
    return f"{told} ({f'{limit.known}, D2-5' if limit.known else 'as the site says'})"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
