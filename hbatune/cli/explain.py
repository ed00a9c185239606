"""`hbatune explain`: why a setting of a target would be what it is."""

import argparse
from collections.abc import Iterator

from msgspec import Struct

from hbatune.cli.arithmetic import depth_lines
from hbatune.cli.fold import adapter_line, shown, what
from hbatune.cli.leftovers import tell
from hbatune.cli.output import Table, heading, say, show_json
from hbatune.cli.profiles import effect, when
from hbatune.cli.situation import Situation, add_json, add_profile, survey
from hbatune.errors import UsageError
from hbatune.facts.model import Endpoint
from hbatune.plan import Row
from hbatune.policy.budget import Budget
from hbatune.policy.load import installed_library
from hbatune.policy.match import Matcher
from hbatune.policy.model import Rule, Source
from hbatune.settings.table import SETTINGS

SCHEMA = "hbatune.explain/1"


class Explained(Struct, frozen=True):
    """One setting of one endpoint: the rules that match, in order, and the row they lead to.

    ``budget`` is the arithmetic of a depth that the site's own facts set.
    """

    target: str
    id: str
    setting: str
    rules: tuple[Rule, ...]
    row: Row | None
    budget: Budget | None = None


class ExplainDocument(Struct, frozen=True):
    """What `explain` prints as JSON."""

    explained: tuple[Explained, ...]
    sources: tuple[Source, ...]
    schema: str = SCHEMA


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `explain` takes."""
    parser.add_argument("target", metavar="TARGET", help="a disk, or what means several")
    parser.add_argument("setting", metavar="SETTING", nargs="?", help="one setting, not all")
    add_profile(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the rules that match, the limit that applied and what the documents say."""
    if args.setting is not None and args.setting not in SETTINGS:
        raise UsageError(f"there is no setting {args.setting!r}, only {', '.join(SETTINGS)}")
    situation = survey(args.profile, [args.target])
    explained = _explained(situation, args.setting)
    known = installed_library().sources()
    cited = {source for each in explained for source in _cited(each)}
    sources = tuple(source for id, source in known.items() if id in cited)
    tell(situation.journal, situation.machine, situation.stuck)
    if args.json:
        show_json(ExplainDocument(tuple(explained), sources))
        return 0
    endpoints = {endpoint.id: endpoint for endpoint in situation.chosen}
    for each in explained:
        _show(each, endpoints[each.id], situation)
    if sources:
        heading("What the documents say")
        for source in sources:
            say(f"{source.id}  {source.title}, {source.section}: {source.says}")
    return 0


def _explained(situation: Situation, setting: str | None) -> list[Explained]:
    adapters = {adapter.target: adapter for adapter in situation.machine.adapters}
    # A path is planned with its siblings, whether or not somebody asked for those as well.
    rows = {(row.id, row.setting): row for row in situation.whole().plan().rows}
    matcher, budgets = Matcher(situation.profile), situation.budgets
    explained = []
    for endpoint in situation.chosen:
        matched = matcher.matching(endpoint, adapters.get(endpoint.adapter or ""))
        names = [setting] if setting else list(dict.fromkeys(rule.setting for rule in matched))
        explained += [
            Explained(
                target=endpoint.target,
                id=endpoint.id,
                setting=name,
                rules=tuple(rule for rule in matched if rule.setting == name),
                row=rows.get((endpoint.id, name)),
                budget=budgets.get(endpoint.id) if name == "queue_depth" else None,
            )
            for name in names
        ]
    return explained


def _cited(explained: Explained) -> Iterator[str]:
    yield from (rule.source for rule in explained.rules)
    if explained.row:
        yield explained.row.source
    if explained.budget:
        yield from ("D2-2", "D2-3", "D2-4", "D2-5")


def _rule_cells(rule: Rule, last: Rule) -> list[str]:
    decides = "decides" if rule is last else ""
    told = [rule.name, when(rule.when), effect(rule), rule.because, rule.source, rule.file]
    return [decides, *told]


def _show(explained: Explained, endpoint: Endpoint, situation: Situation) -> None:
    setting = SETTINGS[explained.setting]
    heading(f"{endpoint.target} {setting.name}: {setting.summary}")
    say(f"  endpoint  {what(endpoint)} {endpoint.vendor} {endpoint.model}, {endpoint.id}")
    say(f"  adapter   {adapter_line(endpoint.adapter, situation.machine)}")
    say(f"  kernel    {setting.source}")
    row = explained.row
    if row is None:
        say(f"  outcome   profile {situation.profile.name} leaves it as it is")
    else:
        say(f"  now       {shown(row.current)}")
        say(f"  wanted    {row.wanted}")
        if row.limit:
            say(f"  limit     {row.limit}")
        say(f"  value     {shown(row.value)}")
        say(f"  state     {row.state}")
        say(f"  why       {row.why} ({row.source}; rule {row.rule})")
    for line in depth_lines(explained.budget, endpoint) if setting.name == "queue_depth" else ():
        say(f"  {line}")
    if explained.rules:
        table = Table(["", "RULE", "WHEN", "VALUE", "BECAUSE", "SOURCE", "FILE"])
        table.rows = [_rule_cells(rule, explained.rules[-1]) for rule in explained.rules]
        table.show()
    else:
        say("  rules     none of the profile's rules is for this setting of this endpoint")
    say()
