"""Select the vendors' advice: separate rules, by vendor and model, that a site enables.

Vendors of arrays, clouds and software on the disks publish recommendations for hosts. Such a rule
is never part of a shipped profile. With ``vendors = "advise"`` it is shown with the profile's rows.
With ``"follow"`` it comes after the profile's rules and before the local rules. A rule with a
``use`` is never followed, because only the site knows the use of its disks. To apply it, write a
local rule.
"""

from collections.abc import Collection
from functools import cache, partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from hbatune.errors import UsageError
from hbatune.policy import config as configuration
from hbatune.policy import library as libraries
from hbatune.policy import schema
from hbatune.policy.config import Config, Site, Vendors, make_site_error
from hbatune.policy.library import Library, installed_library, load_profile, load_sources
from hbatune.policy.profile import Exactly, Name, Origin, Profile, Rule, Text, VendorRule
from hbatune.policy.rules import Doubts, check_part, check_rules
from hbatune.policy.toml_files import PolicyError, quote_value, read_toml, suggest_nearest
from hbatune.settings.table import QUEUE_DEPTH


class _Table(schema.RuleTable, frozen=True, forbid_unknown_fields=True):
    use: Name | None = None
    note: Text | None = None


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    vendor: Text
    rule: tuple[_Table, ...]


@cache  # shipped files change only together with the code
def load_vendors(shipped: Path) -> tuple[VendorRule, ...]:
    """Return every vendor's rules, by file. Raise ``PolicyError`` if a file is invalid."""
    sources = load_sources(shipped)
    vendor_rules = []
    for path in sorted((shipped / "vendors").glob("*.toml")):
        file = read_toml(path)
        content = schema.decode_file(file, _File)
        rules = check_rules(file, content.rule, Origin.VENDOR, sources)
        for number, (rule, table) in enumerate(zip(rules, content.rule, strict=True)):
            # A paper does not know the number of hosts that share the array: it may only raise.
            if rule.setting == QUEUE_DEPTH and isinstance(rule.effect, Exactly):
                problem = "a vendor's rule only raises queue_depth: use `at_least` or `leave`"
                raise schema.make_error(file, ("rule", number), problem)
            vendor_rules.append(VendorRule(rule, content.vendor, table.use, table.note))
    return tuple(vendor_rules)


def list_uses(rules: Collection[VendorRule]) -> tuple[str, ...]:
    """Return the uses that the rules know for disks."""
    return tuple(sorted({rule.use for rule in rules if rule.use is not None}))


def load_enabled_rules(
    library: Library, site: Site, *, is_local: bool = True
) -> tuple[VendorRule, ...]:
    """Return the vendor rules that a site enables; raise ``PolicyError`` for an unknown use."""
    if site.vendors is Vendors.OFF and not site.uses:
        return ()
    rules = load_vendors(library.shipped)
    use_names = list_uses(rules)
    for name in site.uses if is_local else ():
        if name not in use_names and name not in library.list_rule_uses():
            expected, hint = ", ".join(use_names), suggest_nearest(name, use_names)
            problem = f"unknown use {quote_value(name)}: no rule names it, nor vendors: {expected}"
            raise make_site_error(library, ("site", "uses", name), problem, hint)
    if site.vendors is Vendors.OFF:
        return ()
    return tuple(rule for rule in rules if rule.use is None or rule.use in site.uses)


def load_followed_rules(library: Library, site: Site) -> tuple[Rule, ...]:
    """Return the vendor rules that are part of every profile of the site (default: no rules)."""
    if site.vendors is not Vendors.FOLLOW:
        return ()
    return tuple(entry.rule for entry in load_enabled_rules(library, site) if entry.use is None)


class NoProfileError(UsageError):
    """No profile is active, and none was named."""

    def __init__(self) -> None:
        hint = "name one with --profile; `hbatune profiles` lists them"
        super().__init__("no profile is active", hint=hint)


def load_chosen_profile(name: str | None, config: Config, doubts: Doubts = None) -> Profile:
    """Return the named profile, or the active one by the stored rules. NoProfileError: neither."""
    library, wanted = installed_library(), name or config.profile
    if wanted is None:
        raise NoProfileError
    is_stored = name is None and not library.is_last_applied()
    try:
        if is_stored:
            library = replace(library, shipped=library.stored)
            library.arrays()  # an error in it is reported here too
        profile = load_profile(wanted, library, load_followed_rules(library, config.site), doubts)
    except PolicyError as error:
        file = Path(error.file or library.stored)
        if is_stored and file.is_relative_to(library.stored):
            hint = "`sudo hbatune apply` stores the rules of this version instead"
            raise PolicyError(error.reason, file=file, line=error.line, hint=hint) from error
        # Not a file, but the name in the configuration is wrong.
        if error.file is None and wanted == config.profile:
            raise make_site_error(library, ("profile",), error.reason, error.remedy) from error
        raise
    return replace(profile, is_stored=is_stored)


def find_library(profile: Profile) -> Library:
    """Return the library with the shipped rules of a profile: this version's, or the copy."""
    library = installed_library()
    return replace(library, shipped=library.stored) if profile.is_stored else library


def list_configuration_errors(library: Library) -> tuple[PolicyError, ...]:
    """Return all errors of the site's configuration, rules and profiles."""
    errors = list[PolicyError]()
    with PolicyError.collect(errors):
        config_file = configuration.read_config_file(library)
        errors += schema.list_errors(config_file, Config)
        errors += configuration.list_unknown_settings(config_file)
    check = partial(check_part, origin=Origin.SITE, sources=library.sources(), doubts=errors)
    for folder, shape in (("rules.d", schema.RulesFile), ("profiles", schema.ProfileFile)):
        for file in library.site_files(folder, errors):
            errors += schema.list_file_errors(file, shape, partial(check, shape=shape))
    # Unknown uses, profiles and includes are not errors of one file.
    with PolicyError.collect(errors):
        config = configuration.load_config(library)
        load_enabled_rules(library, config.site)
        if config.profile is not None:
            load_chosen_profile(None, config)
    with PolicyError.collect(errors):
        for profile in libraries.list_profiles(library):
            with PolicyError.collect(errors):
                load_profile(profile.name, library)
    return tuple({error.message: error for error in errors}.values())
