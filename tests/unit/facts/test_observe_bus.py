"""Whether a card can do MSI, from its configuration space."""

import errno

import pytest

from hbatune.facts.attributes import ABSENT, Attributes
from hbatune.facts.model import Attribute, Missing, Reason
from hbatune.facts.observe import has_msi
from tests.hosts.ailing import config


def function(space: bytes) -> Attributes:
    return {"config": Attribute(space.hex(), False)}


@pytest.mark.parametrize(
    ("capabilities", "offers"),
    [((), False), ((0x01, 0x10), False), ((0x05,), True), ((0x01, 0x10, 0x11), True)],
)
def test_capability_list_decides_msi(capabilities: tuple[int, ...], offers: bool) -> None:
    assert has_msi(function(config(*capabilities))) is offers


def test_missing_capability_list_denies_msi() -> None:
    space = bytearray(config(0x05))
    space[0x06] = 0
    assert has_msi(function(bytes(space))) is False


def test_malformed_capability_list_terminates() -> None:
    space = bytearray(config(0x01, 0x10))
    space[0x51] = 0x40
    assert has_msi(function(bytes(space))) is False
    space[0x51] = 0xFC
    assert has_msi(function(bytes(space[:200]))) is False


def test_unreadable_config_is_not_denial() -> None:
    # A user gets the header alone.
    assert has_msi(function(config(0x05)[:64])) == Missing(Reason.UNREADABLE, errno.EACCES)
    # A card that does not answer reads as ones.
    assert has_msi(function(b"\xff" * 256)) == Missing(Reason.UNREADABLE, errno.EIO)
    assert has_msi({}) == ABSENT
