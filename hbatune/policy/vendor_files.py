"""Read vendor rules from TOML files, one for each vendor."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct

from hbatune.policy.library import load_sources
from hbatune.policy.profile import Exactly, Name, Origin, Text, VendorRule
from hbatune.policy.rules import check_rules
from hbatune.policy.schema import RuleTable, decode_file, describe_table
from hbatune.policy.toml_files import PolicyError, TomlFile, read_toml
from hbatune.settings.table import QUEUE_DEPTH

VENDORS_FOLDER = "vendors"


class _Table(RuleTable, frozen=True, forbid_unknown_fields=True):
    use: Name | None = None
    note: Text | None = None


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    vendor: Text
    rule: tuple[_Table, ...]


@cache  # shipped files change only together with the code
def load_vendors(shipped: Path) -> tuple[VendorRule, ...]:
    """Return every vendor's rules, by file. Raise ``PolicyError`` if a file is invalid."""
    sources = load_sources(shipped)
    rules: list[VendorRule] = []
    for path in sorted((shipped / VENDORS_FOLDER).glob("*.toml")):
        rules += _check_file(read_toml(path), sources)
    return tuple(rules)


def _check_file(file: TomlFile, sources: Mapping[str, object]) -> list[VendorRule]:
    content = decode_file(file, _File)
    rules = check_rules(file, content.rule, Origin.VENDOR, sources)
    for number, rule in enumerate(rules):
        # A paper does not know the number of hosts that share the array, so it may only raise.
        if rule.setting == QUEUE_DEPTH and isinstance(rule.effect, Exactly):
            steps = ("rule", number)
            problem = "a vendor's rule for queue_depth has `at_least` or `leave`: it lowers none"
            line = file.line(steps)
            raise PolicyError(problem, file=file.path, line=line, place=describe_table(file, steps))
    return [
        VendorRule(rule, content.vendor, table.use, table.note)
        for rule, table in zip(rules, content.rule, strict=True)
    ]
