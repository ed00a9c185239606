"""From the text of an attribute to a typed value, or to the reason why there is none."""

from hbatune.facts.attributes import ABSENT, Attributes
from hbatune.facts.model import Attribute, Missing, Reason


def text(found: Attributes, name: str) -> str | Missing:
    """Return the attribute's text; an empty one is a value too."""
    value = found.get(name, ABSENT)
    return value.text if isinstance(value, Attribute) else value


def word(found: Attributes, name: str) -> str:
    """Return the attribute's text, empty where there is none."""
    value = found.get(name)
    return value.text if isinstance(value, Attribute) else ""


def integer(found: Attributes, name: str, base: int = 10) -> int | Missing:
    """Return the attribute as a number in ``base`` (0: as its prefix says)."""
    value = text(found, name)
    if isinstance(value, Missing):
        return value
    try:
        return int(value, base)
    except ValueError:
        return unparsable(value)


def flag(found: Attributes, name: str) -> bool | Missing:
    """Return the attribute as 0 or 1."""
    value = text(found, name)
    if isinstance(value, Missing):
        return value
    return value == "1" if value in ("0", "1") else unparsable(value)


def leading_number(found: Attributes, name: str) -> float | Missing:
    """Return the number before the unit, as in ``8.0 GT/s PCIe``."""
    value = text(found, name)
    if isinstance(value, Missing):
        return value
    try:
        return float(value.split()[0])
    except (ValueError, IndexError):
        return unparsable(value)


def binary(found: Attributes, name: str) -> bytes:
    """Return the bytes of a VPD page, none where there is no such page."""
    value = found.get(name)
    return bytes.fromhex(value.text) if isinstance(value, Attribute) else b""


def unparsable(value: str) -> Missing:
    """Say that this was read and makes no sense."""
    return Missing(Reason.UNPARSABLE, text=value)
