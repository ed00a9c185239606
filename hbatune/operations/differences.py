"""Compare the settings of targets with a profile, and explain the planned values."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from hbatune.errors import HbatuneError, UsageError
from hbatune.facts.model import Kind, TargetKind
from hbatune.facts.names import group_items
from hbatune.facts.targets import Target, choose_targets, list_targets, make_target
from hbatune.operations.situation import Situation, SituationRequest, read_situation
from hbatune.plan.rows import Plan, Row, State, find_skipped_disks
from hbatune.policy import match, profile, vendors
from hbatune.policy.budget import DepthBudget, compute_budgets
from hbatune.policy.config import Config
from hbatune.settings.table import QUEUE_DEPTH, SETTINGS
from hbatune.text.limit_text import describe_limit

if TYPE_CHECKING:
    from hbatune.plan.advice import Advice
    from hbatune.probe.history import CauseKey, TracedCause


class Differences(Struct, frozen=True):
    """A plan, with the ``rows`` of the module options if they were requested.

    ``causes`` are the latest answers of `why`, each at its setting and value.
    """

    situation: Situation
    plan: Plan
    rows: tuple[Row, ...]
    advice: tuple[Advice, ...] = ()
    causes: Mapping[CauseKey, TracedCause] = {}

    @property
    def has_drift(self) -> bool:
        """Whether any value differs from the profile."""
        return any(row.state is State.DRIFT for row in self.rows)


def find_differences(
    request: SituationRequest, *, module_options: bool = False, measured: Path | None = None
) -> Differences:
    """Compare the chosen targets with the profile, and add the vendors' advice.

    The causes are from the history in the file ``measured``.
    """
    situation = read_situation(request)
    plan = situation.plan()
    rows = plan.rows
    if module_options:
        from hbatune.operations.boot_files import list_option_rows  # rarely needed

        rows += list_option_rows(situation, request.targets)
    causes: Mapping[CauseKey, TracedCause] = {}
    # Most hosts have no history, and a user cannot read it.
    if measured is not None and request.snapshot is None and os.access(measured, os.R_OK):
        from hbatune.probe import history

        with suppress(HbatuneError):  # `history` reports it
            causes = history.find_causes(history.load(measured).records, situation.machine)
    return Differences(situation, plan, rows, situation.advice(plan), causes)


def find_rule_changes(config: Config) -> Differences:
    """Compare the settings by the rules of the last apply with those by this version's rules."""
    shipped = vendors.load_chosen_profile(config.profile, config)
    settings = {rule.setting for rule in shipped.rules}
    situation = read_situation(SituationRequest(config=config, extra_settings=settings))
    old_values = {row.key: row.value for row in situation.plan().drift}
    situation = replace(situation, profile=shipped)
    plan, rows = situation.plan(), []
    for row in plan.rows:
        new = row.value if row.state is State.DRIFT else row.current
        old = old_values.get(row.key, row.current)
        if row.state is State.DRIFT or old != new:
            state = State.OK if old == new else State.DRIFT
            row = replace(row, current=old, value=new, state=state)
        rows.append(row)
    return Differences(situation, replace(plan, rows=tuple(rows)), tuple(rows))


class SettingExplanation(Struct, frozen=True):
    """The rules and the row of one setting of one target; its JSON is ``Explained``."""

    target: str
    id: str
    setting: str
    rules: tuple[profile.Rule, ...]
    row: Row | None
    budget: DepthBudget | None = None
    advice: tuple[Advice, ...] = ()


class WithoutRules(Struct, frozen=True):
    """A target without a matching rule, so nothing is set.

    An unclassified disk has this as its ``reason``, with ``evidence``.
    """

    target: str
    id: str
    adapter: str | None
    reason: str | None = None
    evidence: tuple[str, ...] = ()


class Explanation(Struct, frozen=True):
    """The settings of the chosen targets, and the cited sources."""

    situation: Situation
    settings: tuple[SettingExplanation, ...]
    without_rules: tuple[WithoutRules, ...]
    sources: tuple[profile.Source, ...]


def explain_target(request: SituationRequest, setting: str | None) -> Explanation:
    """Explain one or all settings of the chosen targets; UsageError if none has the setting."""
    situation = read_situation(replace(request, firmware=False))
    explainer = _Explainer(situation)
    settings = (*explainer.explain_targets(setting), *explainer.explain_adapters(setting))
    without_rules: tuple[WithoutRules, ...] = ()
    if setting is None:
        without_rules = explainer.find_without_rules({item.id for item in settings})
    elif not settings:
        names = ", ".join(request.targets)
        problem = f"{setting} is a setting of a {SETTINGS[setting].on}; {names} does not have it"
        raise UsageError(problem, hint="name the adapter, by its PCI address for one")
    cited = {situation.profile.probe.source}.union(*map(_collect_sources, settings))
    all_sources = vendors.find_library(situation.profile).sources().items()
    sources = tuple(source for id, source in all_sources if id in cited)
    return Explanation(situation, settings, without_rules, sources)


class _Explainer:
    """The chosen targets of a situation, and a plan of everything."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._matcher = match.Matcher(situation.profile)
        # A path is planned with its siblings, even if only one of them was requested.
        self._plan = replace(situation, chosen=choose_targets(situation.machine, ())).plan()
        self._rows = {row.key: row for row in self._plan.rows}
        self._adapters = situation.machine.adapters_by_target
        self._heads = {disk.map for disk in situation.machine.endpoints if disk.kind is Kind.DISK}
        self._targets: list[tuple[Target, match.Traits]] = []
        for endpoint in situation.chosen.endpoints:
            adapter = self._adapters.get(endpoint.adapter or "")
            self._targets.append((make_target(endpoint), match.build_traits(endpoint, adapter)))
        for target in list_targets(situation.machine).values():
            if target.kind is not TargetKind.ENDPOINT and target.id in (situation.chosen.ids or ()):
                adapter = self._adapters[target.adapter or ""]
                self._targets.append((target, match.build_adapter_traits(adapter, target.kind)))

    def explain_targets(self, setting: str | None) -> Iterator[SettingExplanation]:
        """Yield explanations of each target's settings."""
        advice = group_items(self._situation.advice(self._plan), attrgetter("id", "setting"))
        names_by_id: dict[str, list[str]] = {}
        # These need no rule of the profile: a budget, a restore of the baseline, or advice.
        for id, name in (*self._rows, *advice):
            names_by_id.setdefault(id, []).append(name)
        arrays = vendors.find_library(self._situation.profile).arrays()
        budgets = compute_budgets(self._situation.machine, self._situation.site, arrays)
        for target, traits in self._targets:
            matched = self._matcher.matched(traits)
            names = [*(rule.setting for rule in matched), *names_by_id.get(target.id, ())]
            if setting is not None:
                names = [setting] if SETTINGS[setting].on is target.kind else []
            if target.name in self._heads:  # the drive below has the others
                names = [name for name in names if (target.id, name) in self._rows]
            for name in dict.fromkeys(names):
                yield SettingExplanation(
                    target=target.name,
                    id=target.id,
                    setting=name,
                    rules=_select_rules(matched, name),
                    row=self._rows.get((target.id, name)),
                    budget=budgets.get(target.id) if name == QUEUE_DEPTH else None,
                    advice=tuple(advice.get((target.id, name), ())),
                )

    def explain_adapters(self, setting: str | None) -> Iterator[SettingExplanation]:
        """Yield settings that a rule specifies for requested adapters without such a parameter."""
        requested_ids = self._situation.chosen.ids or frozenset()
        for (id, name), row in self._rows.items():
            if id in self._adapters and id in requested_ids and setting in (None, name):
                traits = match.build_adapter_traits(self._adapters[id], TargetKind.CONTROLLER)
                rules = _select_rules(self._matcher.matched(traits), name)
                yield SettingExplanation(target=id, id=id, setting=name, rules=rules, row=row)

    def find_without_rules(self, explained_ids: Collection[str]) -> tuple[WithoutRules, ...]:
        """Return the targets without an explained setting."""
        endpoints = self._situation.machine.endpoints
        unclassified = {disk.id: disk for disk in find_skipped_disks(endpoints)}
        without_rules = []
        for target, _ in self._targets:
            if target.id in explained_ids or target.name in self._heads:
                continue
            item = WithoutRules(target.name, target.id, target.adapter)
            if (disk := unclassified.get(target.id)) is not None:
                item = replace(item, reason=describe_limit(disk.reason), evidence=disk.evidence)
            without_rules.append(item)
        return tuple(without_rules)


def _select_rules(rules: Iterable[profile.Rule], setting: str) -> tuple[profile.Rule, ...]:
    return tuple(rule for rule in rules if rule.setting == setting)


def _collect_sources(explained: SettingExplanation) -> Iterator[str]:
    for rule in explained.rules:
        yield rule.source
    for advice in explained.advice:
        yield advice.source
    if explained.row:
        yield explained.row.source
    if explained.budget:
        yield from ("D2-2", "D2-3", "D2-4", "D2-5")
        yield explained.budget.source
