"""`hbatune explain`: a planned value with its rules and sources, or one of their names."""

import argparse
from collections.abc import Hashable, Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import asdict, replace

from hbatune.cli import arguments
from hbatune.cli.commands import profiles
from hbatune.errors import UsageError
from hbatune.facts.model import Kind, Missing
from hbatune.facts.names import natural_key
from hbatune.facts.targets import UnknownTargetError, list_targets
from hbatune.operations import differences
from hbatune.operations.situation import Situation, SituationRequest
from hbatune.policy import toml_files
from hbatune.policy.budget import MAX_LUN_DEPTH, VENDOR_DEFAULT, LunLimit, PortShare, is_shared
from hbatune.policy.config import load_configuration
from hbatune.policy.library import installed_library, list_profiles, load_profile
from hbatune.policy.profile import OptionRule, Profile, Rule, Source
from hbatune.policy.vendors import NoProfileError, load_chosen_profile, load_vendors
from hbatune.settings.table import QUEUE_DEPTH, SETTINGS
from hbatune.text import documents, leftovers, plan_tables, units
from hbatune.text.basic_output import format_count
from hbatune.text.documents import PrintedAdvice, PrintedRow, with_sentences
from hbatune.text.tables import Table, load_columns, make_columns
from hbatune.text.terminal import print_heading, print_line, show_json, show_table


class Explained(differences.SettingExplanation, frozen=True):
    """One setting of one target: the matching rules, in order, and the resulting row.

    ``budget`` is the calculation of a queue depth from the site's arrays, ``advice`` are vendor
    recommendations.
    """

    row: PrintedRow | None
    advice: tuple[PrintedAdvice, ...] = ()


class ExplainDocument(Struct, frozen=True):
    """The JSON document of `explain`; ``without_rules`` are the targets that no rule matches.

    If no profile is active or named, it has only the rows by profile, in ``profiles``. ``stacks``
    are the devices on the disks whose settings count in addition to the disks' own, or instead.
    """

    explained: tuple[Explained, ...]
    sources: tuple[Source, ...]
    schema: str = "hbatune.explain/1"
    without_rules: tuple[differences.WithoutRules, ...] = ()
    profiles: dict[str, tuple[PrintedRow, ...]] = {}
    stacks: tuple[documents.DecidingDevice, ...] = ()


class SourceUse(Struct, frozen=True):
    """A rule that cites a source: its file, and the setting for which it does."""

    rule: str
    setting: str
    file: str


class SourceDocument(Struct, frozen=True):
    """The JSON document of `explain SOURCE`.

    ``checks`` are ids of checks, and ``profiles`` names of profiles whose load cites the source.
    """

    source: Source
    rules: tuple[SourceUse, ...]
    checks: tuple[str, ...]
    profiles: tuple[str, ...] = ()
    schema: str = "hbatune.explain-source/1"


class RuleDocument(Struct, frozen=True):
    """The JSON document of `explain RULE`: all rules with this name, and their sources."""

    rules: tuple[Rule, ...]
    options: tuple[OptionRule, ...]
    sources: tuple[Source, ...]
    schema: str = "hbatune.explain-rule/1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `explain`."""
    parser.add_argument("targets", metavar="TARGET", nargs=1)
    parser.add_argument("setting", metavar="SETTING", nargs="?")
    arguments.add_options(parser, "--profile", "--json", "--no-pager", "--snapshot")


def run(args: argparse.Namespace) -> int:
    """Print the matching rules, the limit that applied and the cited documents."""
    # Sources come first: an error in a rule names its source, and no target has such a name.
    if args.targets[0] in installed_library().sources():
        return _show_source(args.targets[0], as_json=args.json)
    if args.setting is not None and args.setting not in SETTINGS:
        problem = f"there is no setting {args.setting!r}, only {', '.join(SETTINGS)}"
        raise UsageError(problem, hint=toml_files.suggest_nearest(args.setting, SETTINGS))
    try:
        return _show_targets(args)
    except UnknownTargetError as error:
        if args.setting is None:
            return _show_name(error, as_json=args.json)
        raise


def _show_targets(args: argparse.Namespace) -> int:
    """Print all settings of the named targets, or one."""
    request = SituationRequest(
        profile=args.profile, targets=args.targets, snapshot=args.snapshot, narrow=True
    )
    try:
        explanation = differences.explain_target(request, args.setting)
    except NoProfileError:
        return _show_profiles(request, args)
    situation, sources = explanation.situation, explanation.sources
    leftovers.print_situation(situation)
    explained = tuple(map(_make_entry, explanation.settings))
    bare = explanation.without_rules
    rows = [entry.row for entry in explanation.settings if entry.row is not None]
    if args.json:
        stacks = documents.find_deciding_devices(situation.machine, rows)
        show_json(ExplainDocument(explained, sources, without_rules=bare, stacks=stacks))
        return 0
    index = _Index(situation)
    in_order = sorted(explained, key=lambda entry: natural_key(entry.target))
    folded = list(plan_tables.fold_rows(in_order, index.content_key))
    if args.setting is None and folded:
        _show_overview(folded)
    else:
        for names, entry in folded:
            _show_setting(names, entry, index)
    documents.show_stacks(situation.machine, rows)
    _show_bare(explanation)
    if not explained and not bare:
        print_line(f"{' '.join(args.targets)}: nothing of it can be set")
    else:
        name, load = situation.profile.name, units.format_profile_load(situation.profile.probe)
        print_line(f"`apply` compares at the load of {name}: {load}.")
    profiles.print_sources(sources)
    return 0


def _show_profiles(request: SituationRequest, args: argparse.Namespace) -> int:
    """Print the values of all profiles side by side, since no profile is active."""
    rows_by_profile: dict[str, tuple[PrintedRow, ...]] = {}
    by_setting: dict[tuple[str, str], dict[str, PrintedRow]] = {}
    for name in [listed.name for listed in list_profiles(installed_library())]:
        compared = differences.find_differences(replace(request, profile=name))
        rows = [row for row in compared.rows if args.setting in (None, row.setting)]
        rows_by_profile[name] = tuple(with_sentences(PrintedRow, row) for row in rows)
        for row in rows_by_profile[name]:
            by_setting.setdefault((row.target, row.setting), {})[name] = row
    leftovers.print_situation(compared.situation)
    if args.json:
        show_json(ExplainDocument((), (), profiles=rows_by_profile))
        return 0
    titles = "".join(f" | value {name.upper()}" for name in rows_by_profile)
    table = Table(make_columns(f"id TARGET | id SETTING | value CURRENT{titles}"))
    for key in sorted(by_setting, key=lambda key: natural_key(key[0])):
        entries = by_setting[key]
        current = next(iter(entries.values())).current
        values = [entries[name].value if name in entries else None for name in rows_by_profile]
        table.rows.append([*key, *map(plan_tables.format_value, (current, *values))])
    show_table(table)
    if not table.rows:
        print_line(f"{args.targets[0]}: no profile sets {args.setting or 'any setting of it'}")
    command = f"`hbatune explain {args.targets[0]} --profile {next(iter(rows_by_profile))}`"
    print_line(f"No profile is active. {command} shows the rules and sources of a profile.")
    return 0


def _show_name(error: UnknownTargetError, *, as_json: bool) -> int:
    """Print the profile, the check or the rules with the unknown name, or raise the ``error``."""
    from hbatune.checks.registry import CHECKS

    name, all_profiles = error.name, _load_profiles()
    if name in all_profiles:
        chosen = load_chosen_profile(name, load_configuration())
        return profiles.show_profile(chosen, as_json=as_json)
    checks = {check.id: check.source for check in CHECKS}
    if name in checks:
        return _show_source(checks[name], as_json=as_json)
    names_by_rule = _find_profile_names(all_profiles.values())
    rules = tuple(rule for rule in names_by_rule if rule.name == name)
    if not rules:
        names = [*checks, *all_profiles, *(rule.name for rule in names_by_rule)]
        suggestion = toml_files.suggest_nearest(name, names)
        raise UnknownTargetError(name, (), hint=suggestion or error.hint) from error
    cited = {rule.source for rule in rules}
    sources = tuple(item for item in installed_library().sources().values() if item.id in cited)
    if as_json:
        settings = tuple(rule for rule in rules if isinstance(rule, Rule))
        options = tuple(rule for rule in rules if isinstance(rule, OptionRule))
        show_json(RuleDocument(settings, options, sources))
        return 0
    for rule in rules:
        print_heading(f"{rule.name}: {rule.setting} {profiles.format_effect(rule)}")
        _print_fact("why", rule.because)
        if isinstance(rule, Rule):
            _print_fact("when", profiles.format_conditions(rule.when))
        _print_fact("profiles", ", ".join(names_by_rule[rule]) or "none: a vendor's advice")
        _print_fact("source", rule.source)
        _print_fact("file", rule.file)
    profiles.print_sources(sources)
    return 0


def _show_source(id: str, *, as_json: bool) -> int:
    """Print a source, and the loads, the rules of profiles and vendors, and the checks with it."""
    from hbatune.checks.registry import CHECKS

    source, all_profiles = installed_library().sources()[id], _load_profiles().values()
    loads = [profile.name for profile in all_profiles if profile.probe.source == id]
    citing = [rule for rule in _find_profile_names(all_profiles) if rule.source == id]
    uses = tuple(SourceUse(rule.name, rule.setting, rule.file) for rule in citing)
    checks = tuple(check.id for check in CHECKS if check.source == id)
    if as_json:
        show_json(SourceDocument(source, uses, checks, tuple(loads)))
        return 0
    print_heading(f"{source.id}: {source.says}")
    _print_fact("document", f"{source.title}, {source.section}")
    _print_fact("settings", ", ".join(source.settings) or "none: no rule may cite it")
    for use in uses:
        _print_fact("rule", f"{use.rule} ({use.setting}; {use.file})")
    _print_fact("load of", ", ".join(loads) or "no profile")
    _print_fact("checks", ", ".join(checks) or "none")
    return 0


def _load_profiles() -> dict[str, Profile]:
    library = installed_library()
    return {listed.name: load_profile(listed.name, library) for listed in list_profiles(library)}


def _find_profile_names(all_profiles: Iterable[Profile]) -> dict[Rule | OptionRule, list[str]]:
    """Return the names of the profiles with a rule, by rule; a vendor's rule may have none."""
    vendors = load_vendors(installed_library().shipped)
    names_by_rule: dict[Rule | OptionRule, list[str]] = {vendor.rule: [] for vendor in vendors}
    for profile in all_profiles:
        rules: tuple[Rule | OptionRule, ...] = (*profile.rules, *profile.options)
        for rule in rules:
            names_by_rule.setdefault(rule, []).append(profile.name)
    return names_by_rule


def _make_entry(explained: differences.SettingExplanation) -> Explained:
    fields = asdict(explained)
    if explained.row is not None:
        fields["row"] = with_sentences(PrintedRow, explained.row)
    fields["advice"] = tuple(with_sentences(PrintedAdvice, item) for item in explained.advice)
    return Explained(**fields)


def _show_bare(explanation: differences.Explanation) -> None:
    """Print the targets without a matching rule, equal targets once."""
    profile = explanation.situation.profile.name
    bare = explanation.without_rules
    for names, target in plan_tables.fold_rows(bare, lambda item: (item.reason, item.evidence)):
        targets = plan_tables.format_targets(names)
        if target.reason is not None:
            reason = plan_tables.describe_skipped(target.reason, target.evidence)
            print_line(f"{targets}: {reason}", hang=2)
        print_line(f"{targets}: no rule of profile {profile} matches, so nothing is set")
        if not explanation.situation.elsewhere:
            print_line(f"  `hbatune profiles {profile}` shows its rules")
        print_line()


class _Index:
    """The targets of a situation by id, since there may be thousands."""

    def __init__(self, situation: Situation) -> None:
        self.profile = situation.profile.name
        self.machine = situation.machine
        self.endpoints = {endpoint.id: endpoint for endpoint in situation.chosen.endpoints}
        self.vectors = {vector.id: vector for vector in situation.machine.vectors}
        self.targets = list_targets(situation.machine)

    def content_key(self, explained: Explained) -> Hashable:
        """Return a key that is equal for explanations that differ only in the target's name."""
        row = explained.row
        return (
            explained.setting,
            tuple(map(id, explained.rules)),  # the profile's rule objects, shared by all targets
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
        """Return a short description of a target; for an endpoint, without its id."""
        if (endpoint := self.endpoints.get(target_id)) is not None:
            names = (plan_tables.format_medium(endpoint), endpoint.vendor, endpoint.model)
            described = " ".join(filter(None, names))
            return ", ".join(filter(None, (described, plan_tables.format_selection(endpoint))))
        if (vector := self.vectors.get(target_id)) is not None:
            cpus = plan_tables.format_value(vector.effective)
            return f"{' '.join(vector.names)}, served by CPU {cpus} now"
        return target_id

    def depth(self, explained: Explained) -> Iterator[tuple[str, str]]:
        """Yield labels and texts on a depth: its budget, or the default without a described array.

        Other settings yield nothing.
        """
        endpoint, budget = self.endpoints.get(explained.id), explained.budget
        if explained.setting != QUEUE_DEPTH or endpoint is None:
            return
        if budget is not None:
            yield "array", f"{budget.array}, as the site describes it"
            if budget.port:
                yield "port", _describe_port(budget.port)
            if budget.lun:
                yield "LUN", _describe_lun(budget.lun)
            smallest = f"{budget.depth}: the smallest of these"
            yield "budget", f"{smallest}, and {MAX_LUN_DEPTH} at most (D2-2)"
        elif is_shared(endpoint) and endpoint.kind is not Kind.MAP:
            current = SETTINGS[QUEUE_DEPTH].read(endpoint.attributes)
            depth = "unknown" if isinstance(current, Missing) else current
            text = f"the driver's depth, now {depth}, is kept; vendors of FC cards assumed "
            text += f"{VENDOR_DEFAULT} (D2-1). [[site.array]] in hbatune.toml gives it a budget"
            yield "default", text


def _show_overview(folded: Sequence[tuple[list[str], Explained]]) -> None:
    """Print a line for each setting that a rule matches, and how to see one in full."""
    table, unset = Table(load_columns("explain-overview")), dict[tuple[str, str], list[str]]()
    for names, entry in folded:
        if (row := entry.row) is None:
            reason = entry.rules[-1].because if entry.rules else "no rule matches"
            unset.setdefault((plan_tables.format_targets(names), reason), []).append(entry.setting)
            continue
        cells = (*_format_values(row), row.state, row.source)
        table.rows.append([plan_tables.fold_names(names), entry.setting, *cells])
    show_table(table)
    for (targets, reason), settings in unset.items():
        print_line(f"Not set on {targets}: {', '.join(settings)}: {reason}.", hang=2)
    print_line("`hbatune explain TARGET SETTING` shows one in full, with its rules.")


def _format_values(row: PrintedRow) -> tuple[str, str]:
    """Return the current value, and the value to set or, if hbatune sets none, the rule's."""
    wanted = row.wanted if row.value is None else row.value
    return plan_tables.format_value(row.current), str(wanted)


def _show_setting(names: Sequence[str], explained: Explained, index: _Index) -> None:
    setting, row = SETTINGS[explained.setting], explained.row
    heading = f"{plan_tables.format_targets(names)} {setting.name}"
    if row is None:
        print_heading(f"{heading}: profile {index.profile} does not set it")
    else:
        current, wanted = _format_values(row)
        print_heading(f"{heading}: {current} now; {index.profile} wants {wanted}")
        _print_fact("why", f"{row.why} ({row.source}; rule {row.rule})")
        if row.limit:
            _print_fact("limit", row.limit)
        _print_fact("state", row.state)
    _print_fact("meaning", setting.summary)
    target = index.targets.get(explained.id)
    if target is not None:
        described = index.description(explained.id)
        is_single = len(names) == 1 and explained.id in index.endpoints
        _print_fact(target.kind, f"{described}, {explained.id}" if is_single else described)
    _print_fact("adapter", plan_tables.format_adapter(index.adapter(explained.id), index.machine))
    _print_fact("kernel", setting.source)
    if setting.lost_by:
        _print_fact("lost by", setting.lost_by)
    for label, text in index.depth(explained):
        _print_fact(label, text)
    for advice in explained.advice:
        _print_fact("advice", plan_tables.format_advice(advice))
    if explained.rules:
        table = Table(load_columns("matching-rules"))
        # None of these, if the share of an array's limit decides.
        deciding = explained.row.rule if explained.row else explained.rules[-1].name
        for rule in explained.rules:
            decides = "decides" if rule.name == deciding else ""
            when, effect = profiles.format_conditions(rule.when), profiles.format_effect(rule)
            cells = [decides, rule.name, when, effect]
            table.rows.append([*cells, rule.because, rule.source, rule.file])
        show_table(table)
    else:
        _print_fact("rules", "no rule of the profile matches this setting of this target")
    print_line()


def _print_fact(label: str, text: str) -> None:
    print_line(f"  {label:<9} {text}", hang=12)  # as wide as the label's column


def _describe_port(share: PortShare) -> str:
    text = f"a limit of {share.limit} / {format_count(share.hosts, 'host')}"
    if share.luns > 1:
        text += f" / {format_count(share.luns, 'path')} of this host"
    source = f"{share.known}'s, {share.source}, " if share.known else ""
    return f"{text} = {share.depth} ({source}D2-4, D2-3)"


def _describe_lun(limit: LunLimit) -> str:
    text = f"{limit.base}"
    if limit.per_data_drive:
        text += f" + {limit.per_data_drive} x {format_count(limit.data_drives, 'data drive')}"
        text += f" = {limit.total}"
    if limit.paths > 1:
        text += f" / {format_count(limit.paths, 'path')} in use = {limit.depth}"
    return f"{text} ({f'{limit.known}, D2-5' if limit.known else 'as the site says'})"
