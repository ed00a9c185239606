"""A site's rules from measurements, as a file of ``rules.d``: its name and its text. Pure.

Such a file is for one kind of disk: a model behind the adapters of one family. A new measurement
of the same kind takes the place of the old file, and one whose first line is another is left alone.
"""

import hashlib
import re
from collections.abc import Iterable
from glob import escape

import msgspec
from msgspec import Struct

from hbatune.facts.model import Endpoint
from hbatune.policy.model import Match
from hbatune.policy.rules import SITE
from hbatune.settings.table import Value

FIRST_LINE = "# Written by `hbatune autotune --write`, which writes it again."
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9]+")
_LONGEST = 64


class MeasuredRule(Struct, frozen=True):
    """A value that was measured to be better than the one in force, and why."""

    setting: str
    value: Value
    because: str


def kind_of_disk(endpoint: Endpoint) -> Match:
    """Return the condition for disks like this one: family, protocol, medium, vendor and model."""
    return Match(
        family=(endpoint.family,),
        protocol=(endpoint.protocol,),
        medium=(endpoint.medium,),
        kind=(endpoint.kind,),
        storage=(endpoint.storage,),
        # As names, not as the globs that they could be taken for.
        vendor=(escape(endpoint.vendor),) if endpoint.vendor else (),
        model=(escape(endpoint.model),) if endpoint.model else (),
    )


def file_name(when: Match) -> str:
    """Return the name of the file for a kind of disk: the same for the same kind, and no other."""
    words = (*when.family, *when.vendor, *when.model)
    readable = _NOT_IN_NAMES.sub("-", " ".join(words)).strip("-").lower()[:_LONGEST]
    number = hashlib.sha256(msgspec.json.encode(when)).hexdigest()[:8]
    return f"autotune-{readable}-{number}.toml"


def rules_text(when: Match, rules: Iterable[MeasuredRule], source: str) -> str:
    """Return the file; ``source`` says when and on what it was measured."""
    import tomlkit  # heavy, and needed only where a file is written

    document = tomlkit.document()
    tables = tomlkit.aot()
    for rule in rules:
        table = tomlkit.table()
        table["name"] = f"autotune-{rule.setting}"
        table["setting"] = rule.setting
        table["value"] = rule.value
        table["because"] = rule.because
        table["source"] = f"{SITE}: {source}"
        condition = tomlkit.inline_table()
        condition.update(msgspec.to_builtins(when))
        table["when"] = condition
        tables.append(table)
    document["rule"] = tables
    return f"{FIRST_LINE}\n\n{tomlkit.dumps(document)}"


def is_measured(text: bytes) -> bool:
    """Whether a file is one that ``rules_text`` has made."""
    return text.startswith(FIRST_LINE.encode())
