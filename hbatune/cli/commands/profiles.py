"""`hbatune profiles`: list profiles, show one, or show the changes by the next apply."""

import argparse
from collections.abc import Sequence

from msgspec import Struct, to_builtins

from hbatune.cli.arguments import add_options
from hbatune.errors import UsageError
from hbatune.policy.config import load_configuration
from hbatune.policy.library import installed_library, list_profiles
from hbatune.policy.profile import (
    AtLeast,
    AtMost,
    Exactly,
    ListedProfile,
    Match,
    OptionRule,
    Profile,
    Rule,
    Source,
)
from hbatune.policy.vendors import load_chosen_profile
from hbatune.text.tables import Table, load_columns
from hbatune.text.terminal import print_heading, print_line, show_json, show_section, show_table
from hbatune.text.units import format_percent, format_profile_load


class ProfilesDocument(Struct, frozen=True):
    """The JSON document of `profiles`."""

    active: str | None
    profiles: tuple[ListedProfile, ...]
    schema: str = "hbatune.profiles/1"


class ProfileDocument(Struct, frozen=True):
    """The JSON document of `profiles NAME`."""

    profile: Profile
    sources: tuple[Source, ...]
    schema: str = "hbatune.profiles/1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `profiles`."""
    parser.add_argument("name", metavar="NAME", nargs="?")
    add_options(parser, "--changes", "--json", "--no-pager")


def run(args: argparse.Namespace) -> int:
    """Print the list of profiles, one profile, or the changes by the next apply."""
    config = load_configuration()
    if args.changes:
        if args.name is not None:
            raise UsageError("--changes is about the active profile, so it has no NAME")
        if config.profile is None and not args.json:
            print_line("No profile is active, so an upgrade changes no setting.")
            return 0
        from hbatune.cli.commands.diff import print_differences
        from hbatune.operations.differences import find_rule_changes

        changes = find_rule_changes(config)
        if not (args.json or changes.has_drift):
            print_line(f"This version's rules change no setting of profile {config.profile} here.")
            return 0
        return print_differences(changes, as_json=args.json, unfold=False)
    if args.name is not None:
        return show_profile(load_chosen_profile(args.name, config), as_json=args.json)
    listed = list_profiles(installed_library())
    if args.json:
        show_json(ProfilesDocument(config.profile, listed))
        return 0
    table = Table(load_columns("profiles"))
    for profile in listed:
        active = "yes" if profile.name == config.profile else ""
        table.rows.append([profile.name, active, str(profile.origin), profile.title])
    show_table(table)
    print_line()
    sources = ", ".join(installed_library().sources())
    print_line(f"`hbatune explain SOURCE` prints one of these sources: {sources}.", hang=2)
    return 0


def show_profile(profile: Profile, *, as_json: bool) -> int:
    """Print a profile with its rules, and return 0."""
    sources_by_id = installed_library().sources()
    rules: tuple[Rule | OptionRule, ...] = (*profile.rules, *profile.options)
    cited = dict.fromkeys((profile.probe.source, *(rule.source for rule in rules)))
    sources = tuple(filter(None, map(sources_by_id.get, cited)))
    if as_json:
        show_json(ProfileDocument(profile, sources))
        return 0
    print_heading(f"{profile.name}: {profile.title}")
    print_line("The last rule that matches an endpoint decides a setting.")
    print_line()
    table = Table(load_columns("profile-rules"))
    for rule in profile.rules:
        cells = [rule.name, format_conditions(rule.when), rule.setting, format_effect(rule)]
        table.rows.append([*cells, rule.because, rule.source])
    show_table(table)
    print_line()
    allowed = profile.tolerance
    print_line(f"Load: {format_profile_load(profile.probe)}. `apply` compares at this load.")
    print_line(
        f"`apply` reverts what costs more than {format_percent(allowed.iops)} of IOPS, "
        f"{format_percent(allowed.mean)} of mean latency or {format_percent(allowed.p99)} of p99."
    )
    print_line()
    table = Table(load_columns("profile-options"))
    for option in profile.options:
        cells = [option.name, option.setting, format_effect(option)]
        table.rows.append([*cells, option.because, option.source])
    show_section("Options of drivers' modules, with --module-options only", table)
    print_sources(sources)
    return 0


def print_sources(sources: Sequence[Source]) -> None:
    """Print the document and the statement of each source, if there is any."""
    if sources:
        print_heading("Sources")
    for source in sources:
        print_line(f"{source.id}  {source.title}, {source.section}: {source.says}", hang=2)


def format_effect(rule: Rule | OptionRule) -> str:
    """Return the value that a rule specifies."""
    match rule.effect:
        case Exactly(value):
            return str(value)
        case AtLeast(value):
            return f"at least {value}"
        case AtMost(value):
            return f"at most {value}"
    return "left unchanged"


def format_conditions(match: Match) -> str:
    """Return the conditions of a rule as text."""
    return _format_values(to_builtins(match)) or "always"


def _format_values(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return " or ".join(map(str, value))
    if isinstance(value, dict):
        conditions = []
        for key, alternative in value.items():
            if condition := _format_values(alternative):
                conditions.append(f"{key} {condition}")
        return ", ".join(conditions)
    return "" if value is None else str(value).lower()
