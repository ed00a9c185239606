"""How a family's declarations are read: which product a card is, which role a vector has."""

import pytest

from hbatune.facts.families import family_named
from hbatune.facts.family import Product, identify_product
from hbatune.facts.model import Missing, Pci, Reason, Role

ABSENT = Missing(Reason.ABSENT)
CHIP = Product("a chip", 0x1000, 0x00A5)
CARD = Product("a card", 0x1000, 0x00A5, (0x1000, 0x4660))


def pci(vendor: int, device: int, subsystem: tuple[int, int] | None = None) -> Pci:
    below = subsystem or (ABSENT, ABSENT)
    return Pci("0000:01:00.0", 0x010700, vendor, device, below[0], below[1])


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (pci(0x1000, 0x00A5, (0x1000, 0x4660)), CARD),
        (pci(0x1000, 0x00A5, (0x1028, 0x4660)), CHIP),
        (pci(0x1000, 0x00A5), CHIP),
        (pci(0x1000, 0x00A6, (0x1000, 0x4660)), None),
        (pci(0x1001, 0x00A5), None),
        (None, None),
    ],
)
def test_card_identified_before_chip(function: Pci | None, expected: Product | None) -> None:
    assert identify_product((CHIP, CARD), function) is expected


def test_shared_admin_vector_serves_data() -> None:
    model = family_named("nvme").interrupts
    assert model.expected(["nvme0q0", "nvme0q1"]) == (Role.DATA, False)
    assert model.expected(["nvme0q1"]) == (Role.DATA, True)
    assert model.expected(["nvme0q0"]) == (Role.ADMIN, False)
    assert model.expected([]) == model.expected(["somebody"]) == (Role.UNKNOWN, False)
