"""Which product an adapter is: its PCI ids against what its family knows of them. Pure."""

from collections.abc import Iterable

from msgspec import Struct

from hbatune.facts.model import Pci


class Product(Struct, frozen=True):
    """A product, or a chip that many products carry, by its PCI ids.

    ``subsystem`` is the subsystem's vendor and device; None for whatever carries the chip.
    ``document`` is what the documents call it, and in which of them.
    """

    name: str
    vendor: int
    device: int
    subsystem: tuple[int, int] | None = None
    document: str | None = None


def identify(products: Iterable[Product], pci: Pci | None) -> Product | None:
    """Return the product with these ids: the one with the same subsystem before the bare chip."""
    if pci is None:
        return None
    subsystem = (pci.subsystem_vendor, pci.subsystem_device)
    chips = [each for each in products if (each.vendor, each.device) == (pci.vendor, pci.device)]
    exact = [each for each in chips if each.subsystem == subsystem]
    bare = [each for each in chips if each.subsystem is None]
    return next(iter((*exact, *bare)), None)
