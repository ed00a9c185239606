"""`hbatune explain`: why a setting of a target would be what it is."""

import argparse
from collections.abc import Iterator

from msgspec import Struct

from hbatune.cli.arguments import add_json, add_profile, add_snapshot
from hbatune.cli.commands.profiles import effect, when
from hbatune.cli.text.arithmetic import depth_lines
from hbatune.cli.text.fold import adapter_line, shown, what
from hbatune.cli.text.leftovers import tell, tell_unmatched
from hbatune.cli.text.output import Table, heading, say, show_json
from hbatune.errors import UsageError
from hbatune.facts.model import TargetKind
from hbatune.facts.targets import Target, target_of, targets
from hbatune.operations.situation import Situation, survey
from hbatune.plan.rows import Row
from hbatune.policy.budget import DepthBudget
from hbatune.policy.load import installed_library
from hbatune.policy.match import Matcher, Traits, adapter_traits, traits
from hbatune.policy.model import Rule, Source
from hbatune.settings.table import SETTINGS

SCHEMA = "hbatune.explain/1"


class Explained(Struct, frozen=True):
    """One setting of one target: the rules that match, in order, and the row they lead to.

    ``budget`` is the arithmetic of a depth that the site's own facts set.
    """

    target: str
    id: str
    setting: str
    rules: tuple[Rule, ...]
    row: Row | None
    budget: DepthBudget | None = None


class ExplainDocument(Struct, frozen=True):
    """What `explain` prints as JSON."""

    explained: tuple[Explained, ...]
    sources: tuple[Source, ...]
    schema: str = SCHEMA


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `explain` takes."""
    parser.add_argument(
        "target", metavar="TARGET", help="a disk, an interrupt (irq27), or what means several"
    )
    parser.add_argument("setting", metavar="SETTING", nargs="?", help="one setting, not all")
    add_profile(parser)
    add_json(parser)
    add_snapshot(parser)


def run(args: argparse.Namespace) -> int:
    """Print the rules that match, the limit that applied and what the documents say."""
    if args.setting is not None and args.setting not in SETTINGS:
        raise UsageError(f"there is no setting {args.setting!r}, only {', '.join(SETTINGS)}")
    situation = survey(args.profile, [args.target], snapshot=args.snapshot)
    explained = list(_explain(situation, args.setting))
    if args.setting is not None and not explained:
        kind = SETTINGS[args.setting].on
        raise UsageError(
            f"{args.setting} is set on a {kind}, which {args.target} is not and has not",
            hint="name the adapter, by its PCI address for one",
        )
    known = installed_library().sources()
    cited = {source for each in explained for source in _cited(each)}
    sources = tuple(source for id, source in known.items() if id in cited)
    tell(situation.journal, situation.machine, situation.stuck)
    tell_unmatched(situation.unmatched)
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


def _explain(situation: Situation, setting: str | None) -> Iterator[Explained]:
    """Yield the settings of all that was asked for, or the one setting where it is there."""
    matcher = Matcher(situation.profile)
    # A path is planned with its siblings, whether or not somebody asked for those as well.
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
    """Yield all that was asked for, with what rules can ask of it."""
    adapters = {adapter.target: adapter for adapter in situation.machine.adapters}
    for endpoint in situation.chosen:
        yield target_of(endpoint), traits(endpoint, adapters.get(endpoint.adapter or ""))
    for target in targets(situation.machine).values():
        if target.kind is not TargetKind.ENDPOINT and target.id in (situation.ids or ()):
            yield target, adapter_traits(adapters[target.adapter or ""], target.kind)


def _what(explained: Explained, situation: Situation) -> str:
    """Return in a few words what the target is."""
    for endpoint in situation.chosen:
        if endpoint.id == explained.id:
            return f"{what(endpoint)} {endpoint.vendor} {endpoint.model}, {endpoint.id}"
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
    say(f"  {target.kind:<9} {_what(explained, situation)}")
    say(f"  adapter   {adapter_line(target.adapter, situation.machine)}")
    say(f"  kernel    {setting.source}")
    if setting.lost_by:
        say(f"  lost by   {setting.lost_by}")
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
    for endpoint in situation.chosen if setting.name == "queue_depth" else ():
        if endpoint.id == explained.id:
            for line in depth_lines(explained.budget, endpoint):
                say(f"  {line}")
    if explained.rules:
        table = Table(["", "RULE", "WHEN", "VALUE", "BECAUSE", "SOURCE", "FILE"], wraps="BECAUSE")
        table.rows = [_rule_cells(rule, explained.rules[-1]) for rule in explained.rules]
        table.show()
    else:
        say("  rules     none of the profile's rules is for this setting of this target")
    say()
