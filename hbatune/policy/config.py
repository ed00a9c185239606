"""The site's configuration, ``hbatune.toml``: the active profile, limits, and what is excluded."""

from typing import Annotated

from msgspec import Meta, Struct

from hbatune.policy.load import Library
from hbatune.policy.model import Text
from hbatune.policy.schema import Name, decode

FILE = "hbatune.toml"


class Act(Struct, frozen=True, forbid_unknown_fields=True):
    """How settings are written: seconds per write, processes, share of memory for requests."""

    deadline_seconds: Annotated[float, Meta(ge=0.1, le=3600)] = 10.0
    workers: Annotated[int, Meta(ge=1, le=64)] = 16
    memory_share: Annotated[float, Meta(gt=0, le=1)] = 0.05


class Probe(Struct, frozen=True, forbid_unknown_fields=True):
    """How long each short fio run measures, in seconds."""

    seconds: Annotated[int, Meta(ge=1, le=600)] = 2


class Approved(Struct, frozen=True, forbid_unknown_fields=True):
    """Versions that a site approved for adapters of one family: globs, of which one must fit.

    ``product`` is a glob, too. Without ``firmware`` or ``driver`` any version of it will do.
    """

    family: Text
    product: Text = "*"
    firmware: tuple[Text, ...] = ()
    driver: tuple[Text, ...] = ()


class Site(Struct, frozen=True, forbid_unknown_fields=True):
    """What is this site's own.

    ``exclude`` are disks, stable ids or PCI addresses that are left alone, ``approved`` the
    versions of firmware and drivers that it allows.
    """

    exclude: tuple[Text, ...] = ()
    approved: tuple[Approved, ...] = ()


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole configuration; ``profile`` is the active one, None where none is."""

    profile: Name | None = None
    act: Act = Act()
    probe: Probe = Probe()
    site: Site = Site()


def load_config(library: Library) -> Config:
    """Return the site's configuration, all defaults where there is none; or ``PolicyError``."""
    try:
        return decode(library.read_site(library.site / FILE), Config)
    except FileNotFoundError:
        return Config()


def with_profile(text: str, name: str | None) -> str:
    """Return the text of a configuration with ``name`` as its active profile, or with none.

    Comments and everything else stay as the administrator wrote them.
    """
    import tomlkit  # heavy, and needed only where the configuration changes

    document = tomlkit.parse(text)
    if name is None:
        document.pop("profile", None)
    else:
        document["profile"] = name
    return tomlkit.dumps(document)
