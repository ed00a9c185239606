"""`hbatune config`: the configuration with the origin of each value, or all of its errors."""

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, json, to_builtins
from msgspec.structs import replace

from hbatune.cli.arguments import add_options
from hbatune.cli.commands.profiles import format_effect
from hbatune.errors import ExitCode, UsageError
from hbatune.facts.devices import resolve_name
from hbatune.facts.machine import gather_machine
from hbatune.policy.config import Config, Site, UnmatchedName, load_configuration, read_config_file
from hbatune.policy.library import Library, installed_library
from hbatune.policy.match import list_unmatched_names, resolve_site_links
from hbatune.policy.profile import Origin, Profile
from hbatune.policy.toml_files import TomlFile, quote_value, suggest_nearest
from hbatune.policy.vendors import list_configuration_errors, load_chosen_profile
from hbatune.probe.workloads import list_workload_errors
from hbatune.text.basic_output import format_count
from hbatune.text.leftovers import print_unmatched
from hbatune.text.tables import Table, make_columns
from hbatune.text.terminal import print_heading, print_line, show_json, show_section


class Located(Struct, frozen=True, kw_only=True):
    """A place in a configuration file; null if the value is a default, or if it is unknown."""

    file: str | None = None
    line: int | None = None

    @property
    def place(self) -> str:
        """The file and line for people."""
        return f"{self.file or 'default'}{'' if self.line is None else f':{self.line}'}"


class ConfigKey(Located, frozen=True, kw_only=True):
    """One key of hbatune.toml; a default has no place."""

    name: str
    value: Any
    default: Any


class ConfigRule(Located, frozen=True, kw_only=True):
    """One local rule of the active profile."""

    name: str
    setting: str
    value: str


class Mistake(Located, frozen=True, kw_only=True):
    """One error of the configuration."""

    reason: str
    remedy: str | None


class ConfigDocument(Struct, frozen=True, kw_only=True):
    """The JSON document of `config`; ``files`` are in order, and a later one wins.

    ``unmatched`` are the names in [site] that match nothing on this machine.
    """

    schema: str = "hbatune.config/1"
    profile: str | None = None
    keys: tuple[ConfigKey, ...] = ()
    rules: tuple[ConfigRule, ...] = ()
    files: tuple[str, ...] = ()
    mistakes: tuple[Mistake, ...] = ()
    unmatched: tuple[UnmatchedName, ...] = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `config`."""
    parser.add_argument("action", choices=("show", "check"))
    parser.add_argument("key", metavar="KEY", nargs="?")
    add_options(parser, "--all", "--json", "--no-pager")


def run(args: argparse.Namespace) -> int:
    """Print the values of the configuration, or its errors."""
    library = installed_library()
    if args.action == "check":
        if args.key is not None:
            raise UsageError("config check has no KEY: it checks all files")
        return _check(library, as_json=args.json)
    document = _read_document(library)
    if args.key is not None:
        keys = {key.name: key for key in document.keys}
        if args.key not in keys:
            hint = suggest_nearest(args.key, keys) or "`hbatune config show --all` lists the keys"
            raise UsageError(f"unknown key {quote_value(args.key)}", hint=hint)
        key = keys[args.key]
        if not args.json:
            print_line(f"{key.name} = {_format_value(key.value)} ({key.place})")
            return ExitCode.DONE
        document = replace(document, keys=(key,))
    if args.json:
        show_json(document)
    else:
        _show(document, all_keys=args.all)
    return ExitCode.DONE


def _check(library: Library, *, as_json: bool) -> int:
    mistakes = []
    errors = [*list_configuration_errors(library), *list_workload_errors(library)]
    for error in sorted(errors, key=lambda error: (str(error.file), error.line or 0)):
        file, remedy = str(error.file or library.site), error.remedy
        mistakes.append(Mistake(file=file, line=error.line, reason=error.reason, remedy=remedy))
    unmatched: tuple[UnmatchedName, ...] = ()
    if not mistakes and (config := load_configuration()).site != Site():
        machine = gather_machine((), deadline=config.act.deadline_seconds)
        site = resolve_site_links(machine, config.site, resolve_name)
        unmatched = list_unmatched_names(machine, site)
    if as_json:
        show_json(ConfigDocument(mistakes=tuple(mistakes), unmatched=unmatched))
    elif not mistakes:
        print_line(f"The configuration in {library.site} is valid.")
    else:
        print_heading(f"The configuration has {format_count(len(mistakes), 'error')}.")
        for mistake in mistakes:
            print_line(f"{mistake.place}: {mistake.reason}", hang=2)
            if mistake.remedy is not None:
                print_line(f"  {mistake.remedy}", hang=2)
    print_unmatched(unmatched)
    if mistakes:
        return ExitCode.USAGE
    return ExitCode.FOUND if unmatched else ExitCode.DONE


def _read_document(library: Library) -> ConfigDocument:
    config, file = load_configuration(), read_config_file(library)
    # Local rules are part of every profile.
    profile = load_chosen_profile(None if config.profile else "balanced", config)
    paths = [str(file.path)] if file.text else []
    return ConfigDocument(
        profile=config.profile,
        keys=tuple(_list_keys(config, Config(), file, file.data)),
        rules=tuple(_list_rules(library, profile)),
        files=(*paths, *(profile.files if config.profile else ())),
    )


def _list_keys(
    values: Struct, defaults: Struct, file: TomlFile, table: Mapping[str, Any], *steps: str
) -> Iterator[ConfigKey]:
    """Yield the keys of a table, and of the tables in it."""
    for field in values.__struct_fields__:
        value, default, path = getattr(values, field), getattr(defaults, field), (*steps, field)
        if isinstance(value, Struct):
            yield from _list_keys(value, default, file, table.get(field, {}), *path)
            continue
        key = ConfigKey(name=".".join(path), value=to_builtins(value), default=to_builtins(default))
        if field in table:
            key = replace(key, file=str(file.path), line=file.line(path))
        yield key


def _list_rules(library: Library, profile: Profile) -> Iterator[ConfigRule]:
    """Yield the local rules of a profile with their lines."""
    numbers = Counter[str]()
    for rule in profile.rules:
        if rule.origin is Origin.SITE:
            line = library.read_site(Path(rule.file)).line(("rule", numbers[rule.file]))
            numbers[rule.file] += 1
            name, setting, value = rule.name, rule.setting, format_effect(rule)
            yield ConfigRule(name=name, setting=setting, value=value, file=rule.file, line=line)


def _show(document: ConfigDocument, *, all_keys: bool) -> None:
    number = sum(key.file is not None for key in document.keys)
    active = f"Active profile: {document.profile}" if document.profile else "No profile is active"
    changes = f"{format_count(number, 'key')}, {format_count(len(document.rules), 'local rule')}"
    print_heading(f"{active}. Set here: {changes}.")
    print_line()
    table = Table(make_columns("id KEY | value VALUE | value DEFAULT | id FROM"))
    for key in document.keys:
        if all_keys or key.file is not None:
            table.rows.append([key.name, *map(_format_value, (key.value, key.default)), key.place])
    show_section("Values", table)
    table = Table(make_columns("id RULE | id SETTING | value VALUE | id FROM"))
    for rule in document.rules:
        table.rows.append([rule.name, rule.setting, rule.value, rule.place])
    show_section("Local rules", table)
    if document.files:
        print_heading("Files in order: the last matching rule decides")
    for path in document.files:
        print_line(f"  {path}", hang=4)


def _format_value(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "none" if value in (None, (), {}) else json.encode(value).decode()
