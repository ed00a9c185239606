"""`hbatune profiles`: the profiles, or the rules of one with their sources."""

import argparse

from msgspec import Struct, to_builtins

from hbatune.cli.arguments import add_json
from hbatune.policy.chosen import load_chosen_profile, load_configuration
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
from hbatune.text.basic_output import add_pager
from hbatune.text.tables import Table, make_columns
from hbatune.text.terminal import print_heading, print_line, show_json, show_table
from hbatune.text.units import format_percent

SCHEMA = "hbatune.profiles/1"


class ProfilesDocument(Struct, frozen=True):
    """The JSON document of `profiles`."""

    active: str | None
    profiles: tuple[ListedProfile, ...]
    schema: str = SCHEMA


class ProfileDocument(Struct, frozen=True):
    """The JSON document of `profiles NAME`."""

    profile: Profile
    sources: tuple[Source, ...]
    schema: str = SCHEMA


SUMMARY = "the profiles, or the rules of one with their sources"
GROUP = "look"
EXAMPLES = (
    ("hbatune profiles", "the list"),
    ("hbatune profiles oltp", "its rules and their sources"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `profiles`."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="show the rules of this one")
    add_json(parser)
    add_pager(parser)


def run(args: argparse.Namespace) -> int:
    """Print the list of profiles, or one profile."""
    config = load_configuration()
    if args.name is not None:
        return _show_profile(load_chosen_profile(args.name, config), as_json=args.json)
    listed = list_profiles(installed_library())
    if args.json:
        show_json(ProfilesDocument(config.profile, listed))
        return 0
    table = Table(make_columns("id PROFILE | state ACTIVE | value FROM | text FOR"))
    table.rows = [
        [
            profile.name,
            "yes" if profile.name == config.profile else "",
            str(profile.origin),
            profile.title,
        ]
        for profile in listed
    ]
    show_table(table)
    return 0


def _show_profile(profile: Profile, *, as_json: bool) -> int:
    sources_by_id = installed_library().sources()
    rules: tuple[Rule | OptionRule, ...] = (*profile.rules, *profile.options)
    cited = {
        rule.source: sources_by_id[rule.source] for rule in rules if rule.source in sources_by_id
    }
    if as_json:
        show_json(ProfileDocument(profile, tuple(cited.values())))
        return 0
    print_heading(f"{profile.name}: {profile.title}")
    print_line("Of the rules that match an endpoint, the last one decides a setting.")
    print_line()
    table = Table(
        make_columns("id RULE | text WHEN | id SETTING | value VALUE | text BECAUSE | value SOURCE")
    )
    table.rows = [
        [
            rule.name,
            format_conditions(rule.when),
            rule.setting,
            format_effect(rule),
            rule.because,
            rule.source,
        ]
        for rule in profile.rules
    ]
    show_table(table)
    print_line()
    allowed = profile.tolerance
    print_line(
        f"`apply` reverts what costs more than {format_percent(allowed.iops)} of IOPS, "
        f"{format_percent(allowed.mean)} of mean latency or {format_percent(allowed.p99)} of p99."
    )
    print_line()
    if profile.options:
        print_heading("Options of drivers' modules, with --module-options only")
        table = Table(
            make_columns("id RULE | id OPTION | value VALUE | reason BECAUSE | value SOURCE")
        )
        table.rows = [
            [option.name, option.setting, format_effect(option), option.because, option.source]
            for option in profile.options
        ]
        show_table(table)
        print_line()
    print_heading("Sources")
    for source in cited.values():
        print_line(f"{source.id}  {source.title}, {source.section}: {source.says}", hang=2)
    return 0


def format_effect(rule: Rule | OptionRule) -> str:
    """Return the value that a rule specifies."""
    if isinstance(rule.effect, Exactly):
        return str(rule.effect.value)
    if isinstance(rule.effect, AtLeast):
        return f"at least {rule.effect.value}"
    if isinstance(rule.effect, AtMost):
        return f"at most {rule.effect.value}"
    return "left as it is"


def format_conditions(match: Match) -> str:
    """Return the conditions of a rule as text."""
    conditions = {key: _format_values(value) for key, value in to_builtins(match).items()}
    return ", ".join(f"{key} {value}" for key, value in conditions.items() if value) or "always"


def _format_values(value: object) -> str:
    """Return the alternatives of one condition, or an empty string."""
    if isinstance(value, (list, tuple)):
        return " or ".join(str(alternative) for alternative in value)
    if isinstance(value, dict):
        conditions = {key: _format_values(alternative) for key, alternative in value.items()}
        return ", ".join(f"{key} {condition}" for key, condition in conditions.items() if condition)
    return "" if value is None else str(value).lower()
