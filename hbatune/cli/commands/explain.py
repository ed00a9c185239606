"""`hbatune explain`: the rules, limits and documents behind a planned value. Writes nothing."""

import argparse
from collections.abc import Hashable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hbatune.cli.arguments import add_json, add_profile, add_snapshot
from hbatune.cli.commands.profiles import effect, when
from hbatune.errors import UsageError
from hbatune.facts.model import Attribute, Endpoint, Kind, TargetKind
from hbatune.facts.names import natural_key
from hbatune.facts.targets import Target, target_of, targets
from hbatune.operations.situation import Situation, survey
from hbatune.plan.advice import Advice
from hbatune.plan.rows import Row, left_alone
from hbatune.policy.budget import (
    MOST,
    VENDOR_DEFAULT,
    DepthBudget,
    LunLimit,
    PortShare,
    is_shared,
)
from hbatune.policy.library import installed_library
from hbatune.policy.match import (
    Matcher,
    NearRule,
    Traits,
    adapter_traits,
    near_rules,
    traits,
)
from hbatune.policy.profile import Match, Rule, Source
from hbatune.policy.toml_files import nearest
from hbatune.settings.table import SETTINGS
from hbatune.text.basic_output import add_pager, quantity
from hbatune.text.leftovers import tell, tell_not_understood, tell_unmatched
from hbatune.text.plan_tables import (
    adapter_line,
    advice_line,
    fold,
    left_alone_text,
    medium_text,
    shown,
    targets_text,
)
from hbatune.text.tables import Table, identity, prose, state, value
from hbatune.text.terminal import heading, say, show_json, show_table

SCHEMA = "hbatune.explain/1"
_DEPTH = "device/queue_depth"
_TEXT = 12
"""Spaces before the text of a line that begins with its label."""

_RULES = (
    state(""),
    identity("RULE"),
    prose("WHEN"),
    value("VALUE"),
    prose("BECAUSE"),
    value("SOURCE"),
    value("FILE"),
)


class Explained(Struct, frozen=True):
    """One setting of one target: the rules that match, in order, and the row they lead to.

    ``budget`` is the arithmetic of a queue depth that follows from the site's arrays, ``advice``
    what vendors ask for.
    """

    target: str
    id: str
    setting: str
    rules: tuple[Rule, ...]
    row: Row | None
    budget: DepthBudget | None = None
    advice: tuple[Advice, ...] = ()


class WithoutRules(Struct, frozen=True):
    """A target that no rule matches and nothing is set on, with the rules that come nearest.

    A disk of which it is not known what it is has that as its ``reason``, and ``evidence`` of it.
    """

    target: str
    id: str
    adapter: str | None
    near: tuple[NearRule, ...]
    reason: str | None = None
    evidence: tuple[str, ...] = ()


class ExplainDocument(Struct, frozen=True):
    """The JSON document of `explain`; ``without_rules`` are the targets that no rule matches."""

    explained: tuple[Explained, ...]
    sources: tuple[Source, ...]
    schema: str = SCHEMA
    without_rules: tuple[WithoutRules, ...] = ()


SUMMARY = "why a setting of a target is planned as it is"
GROUP = "look"
EXAMPLES = (
    ("hbatune explain sda nr_requests", "one setting of a disk"),
    ("hbatune explain nvme0n1 --profile latency", "all of another profile"),
    ("hbatune explain 0000:01:00.0 irq_affinity", "an adapter's interrupts"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `explain`."""
    parser.add_argument(
        "target", metavar="TARGET", help="a disk, an interrupt (irq27), or what means several"
    )
    parser.add_argument("setting", metavar="SETTING", nargs="?", help="one setting, not all")
    add_profile(parser)
    add_json(parser)
    add_pager(parser)
    add_snapshot(parser)


def run(args: argparse.Namespace) -> int:
    """Print the matching rules, the limit that applied and the documents cited."""
    if args.setting is not None and args.setting not in SETTINGS:
        raise UsageError(
            f"there is no setting {args.setting!r}, only {', '.join(SETTINGS)}",
            hint=nearest(args.setting, SETTINGS),
        )
    situation = survey(args.profile, [args.target], snapshot=args.snapshot, narrow=True)
    explained = list(_explain(situation, args.setting))
    bare = [] if args.setting is not None else list(_without_rules(situation, explained))
    if args.setting is not None and not explained:
        kind = SETTINGS[args.setting].on
        raise UsageError(
            f"{args.setting} is a setting of a {kind}, and {args.target} has none",
            hint="name the adapter, by its PCI address for one",
        )
    known = installed_library().sources()
    cited = {source for each in explained for source in _cited(each)}
    sources = tuple(source for id, source in known.items() if id in cited)
    tell(situation.journal, situation.rollbacks, situation.machine, situation.stuck)
    tell_unmatched(situation.unmatched)
    tell_not_understood(situation.not_understood)
    if args.json:
        show_json(ExplainDocument(tuple(explained), sources, without_rules=tuple(bare)))
        return 0
    index = _Index(situation)
    in_order = sorted(explained, key=lambda one: natural_key(one.target))
    for names, each in fold(in_order, index.alike):
        _show(names, each, index)
    _show_bare(bare, situation)
    if not explained and not bare:
        say(f"{args.target}: nothing of it can be set")
    if sources:
        heading("What the documents say")
        for source in sources:
            say(f"{source.id}  {source.title}, {source.section}: {source.says}", hang=2)
    return 0


def depth_facts(budget: DepthBudget | None, endpoint: Endpoint) -> Iterator[tuple[str, str]]:
    """Yield labels and texts on a depth budget, or on the default where no array is described."""
    if budget is not None:
        yield "array", f"{budget.array}, as the site describes it"
        if budget.port:
            yield "port", _port(budget.port)
        if budget.lun:
            yield "LUN", _lun(budget.lun)
        yield "budget", f"{budget.depth}: the smallest of these, and {MOST} at most (D2-2)"
    elif is_shared(endpoint) and endpoint.kind is not Kind.MAP:
        now = endpoint.attributes.get(_DEPTH)
        own = now.text if isinstance(now, Attribute) else "unknown"
        yield (
            "default",
            f"the driver's own depth, {own} now, stands; vendors of FC cards went by "
            f"{VENDOR_DEFAULT} (D2-1). [[site.array]] in hbatune.toml gives it a budget",
        )


def _explain(situation: Situation, setting: str | None) -> Iterator[Explained]:
    """Yield the settings of all targets asked for, or the one setting where it exists."""
    matcher = Matcher(situation.profile)
    # A path is planned with its siblings, also where only one of them was asked for.
    plan = situation.whole().plan()
    rows = {(row.id, row.setting): row for row in plan.rows}
    advised: dict[str, dict[str, list[Advice]]] = {}
    for each in situation.advice(plan):
        advised.setdefault(each.id, {}).setdefault(each.setting, []).append(each)
    budgets = situation.budgets
    planned: dict[str, list[str]] = {}
    for id, name in rows:
        planned.setdefault(id, []).append(name)
    for target, asked in _targets(situation):
        matched = matcher.decide(asked)[0]
        # Without a rule of the profile, too: for a budget, or to go back to the baseline.
        own = (*planned.get(target.id, ()), *advised.get(target.id, ()))
        names = list(dict.fromkeys((*(rule.setting for rule in matched), *own)))
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
                advice=tuple(advised.get(target.id, {}).get(name, ())),
            )
    yield from _explain_adapters(situation, setting, rows, matcher)


def _explain_adapters(
    situation: Situation,
    setting: str | None,
    rows: Mapping[tuple[str, str], Row],
    matcher: Matcher,
) -> Iterator[Explained]:
    """Yield the settings that a rule wants of adapters asked for that have no lever for them."""
    asked = situation.ids or frozenset()
    adapters = {
        adapter.target: adapter for adapter in situation.machine.adapters if adapter.target in asked
    }
    for (id, name), row in rows.items():
        if id in adapters and setting in (None, name):
            matched = matcher.decide(adapter_traits(adapters[id], TargetKind.CONTROLLER))[0]
            rules = tuple(rule for rule in matched if rule.setting == name)
            yield Explained(target=id, id=id, setting=name, rules=rules, row=row)


def _cited(explained: Explained) -> Iterator[str]:
    yield from (rule.source for rule in explained.rules)
    if explained.row:
        yield explained.row.source
    if explained.budget:
        yield from ("D2-2", "D2-3", "D2-4", "D2-5")
        yield explained.budget.source
    yield from (each.source for each in explained.advice)


def _targets(situation: Situation) -> Iterator[tuple[Target, Traits]]:
    """Yield the targets asked for, with the traits that rules match."""
    adapters = {adapter.target: adapter for adapter in situation.machine.adapters}
    for endpoint in situation.chosen:
        yield target_of(endpoint), traits(endpoint, adapters.get(endpoint.adapter or ""))
    for target in targets(situation.machine).values():
        if target.kind is not TargetKind.ENDPOINT and target.id in (situation.ids or ()):
            yield target, adapter_traits(adapters[target.adapter or ""], target.kind)


def _without_rules(situation: Situation, explained: Sequence[Explained]) -> Iterator[WithoutRules]:
    """Yield the targets asked for of which nothing is explained."""
    ids = {each.id for each in explained}
    unknown = {each.id: each for each in left_alone(situation.machine.endpoints)}
    for target, asked in _targets(situation):
        if target.id not in ids:
            near = near_rules(situation.profile.rules, asked)
            left = unknown.get(target.id)
            why = (None, ()) if left is None else (left.reason, left.evidence)
            yield WithoutRules(target.name, target.id, target.adapter, near, *why)


def _show_bare(bare: Sequence[WithoutRules], situation: Situation) -> None:
    """Print the targets that no rule matches, and the nearest rules once for equal targets."""
    known = {target.id: asked for target, asked in _targets(situation)}
    profile = situation.profile.name
    for names, each in fold(bare, lambda one: (one.near, known[one.id], one.evidence)):
        if each.reason is not None:
            say(f"{targets_text(names)}: {left_alone_text(each.reason, each.evidence)}", hang=2)
        say(f"{targets_text(names)}: no rule of profile {profile} matches, so nothing is set")
        if not each.near:
            say("  nearest   the profile has no rule for anything of this kind")
        for near in each.near:
            # The conditions that do not hold, in the words for all conditions of a rule.
            asks = when(Match(**{name: getattr(near.rule.when, name) for name in near.unmet}))
            here = ", ".join(_trait(known[each.id], name) for name in near.unmet)
            say(f"  nearest   {near.rule.name} ({near.rule.setting}) is for {asks}; here: {here}")
        say()


def _trait(it: Traits, condition: str) -> str:
    """Return what a target is, in the words of a rule's condition."""
    if condition == "link":
        return f"link gen {shown(it.gen)}, width {shown(it.width)}"
    return f"{condition} {str(getattr(it, condition)).lower() or 'unknown'}"


class _Index:
    """The targets of a situation by id: there may be thousands."""

    def __init__(self, situation: Situation) -> None:
        self.profile = situation.profile.name
        self.machine = situation.machine
        self.endpoints = {each.id: each for each in situation.chosen}
        self.vectors = {vector.id: vector for vector in situation.machine.vectors}
        self.targets = targets(situation.machine)

    def alike(self, explained: Explained) -> Hashable:
        """Return a key that is equal for what reads the same but for the name of the target."""
        row = explained.row
        return (
            explained.setting,
            tuple(map(id, explained.rules)),  # the profile's own, for all targets
            None if row is None else replace(row, target="", id=""),
            self.adapter(explained.id),
            self.description(explained.id) if explained.id in self.endpoints else explained.id,
            tuple(self.depth(explained)),
        )

    def adapter(self, target_id: str) -> str | None:
        """Return the adapter of a target, or itself."""
        target = self.targets.get(target_id)
        return target_id if target is None else target.adapter

    def description(self, target_id: str) -> str:
        """Return a short description of a target, an endpoint's without its id."""
        if target_id in self.endpoints:
            it = self.endpoints[target_id]
            return f"{medium_text(it)} {it.vendor} {it.model}"
        if target_id in self.vectors:
            vector = self.vectors[target_id]
            return f"{' '.join(vector.names)}, served by CPU {shown(vector.effective)} now"
        return target_id

    def depth(self, explained: Explained) -> Iterator[tuple[str, str]]:
        """Yield labels and texts on the depth of an endpoint, where that is explained."""
        if explained.setting == "queue_depth" and explained.id in self.endpoints:
            yield from depth_facts(explained.budget, self.endpoints[explained.id])


def _rule_cells(rule: Rule, last: Rule) -> list[str]:
    decides = "decides" if rule is last else ""
    told = [rule.name, when(rule.when), effect(rule), rule.because, rule.source, rule.file]
    return [decides, *told]


def _show(names: Sequence[str], explained: Explained, index: _Index) -> None:
    setting = SETTINGS[explained.setting]
    heading(f"{targets_text(names)} {setting.name}: {setting.summary}")
    target = index.targets.get(explained.id)
    if target is not None:
        described = index.description(explained.id)
        one = len(names) == 1 and explained.id in index.endpoints
        _fact(target.kind, f"{described}, {explained.id}" if one else described)
    _fact("adapter", adapter_line(index.adapter(explained.id), index.machine))
    _fact("kernel", setting.source)
    if setting.lost_by:
        _fact("lost by", setting.lost_by)
    row = explained.row
    if row is None:
        _fact("outcome", f"profile {index.profile} does not set it")
    else:
        _fact("current", shown(row.current))
        _fact("wanted", str(row.wanted))
        if row.limit:
            _fact("limit", row.limit)
        _fact("value", shown(row.value))
        _fact("state", row.state)
        _fact("why", f"{row.why} ({row.source}; rule {row.rule})")
    for label, text in index.depth(explained):
        _fact(label, text)
    for advice in explained.advice:
        _fact("advice", advice_line(advice))
    if explained.rules:
        last = explained.rules[-1]
        show_table(Table(_RULES, [_rule_cells(rule, last) for rule in explained.rules]))
    else:
        _fact("rules", "no rule of the profile matches this setting of this target")
    say()


def _fact(label: str, text: str) -> None:
    say(f"  {label:<9} {text}", hang=_TEXT)


def _port(share: PortShare) -> str:
    told = f"a limit of {share.limit} / {quantity(share.hosts, 'host')}"
    if share.luns > 1:
        told += f" / {quantity(share.luns, 'path')} of this host"
    source = f"{share.known}'s, {share.source}, " if share.known else ""
    return f"{told} = {share.depth} ({source}D2-4, D2-3)"


def _lun(limit: LunLimit) -> str:
    told = f"{limit.base}"
    if limit.per_data_drive:
        told += f" + {limit.per_data_drive} x {quantity(limit.data_drives, 'data drive')}"
        told += f" = {limit.total}"
    if limit.paths > 1:
        told += f" / {quantity(limit.paths, 'path')} in use = {limit.depth}"
    return f"{told} ({f'{limit.known}, D2-5' if limit.known else 'as the site says'})"
