"""Rules, profiles and their sources as frozen values.

A rule says: when an endpoint is like this, then set this, because of that, as this document says.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from hbatune.facts.model import Kind, Medium, Protocol, Storage

Generation = Annotated[int, Meta(ge=1, le=7)]
Lanes = Annotated[int, Meta(ge=1, le=32)]
Text = Annotated[str, Meta(min_length=1, description="text that is not empty")]

NAME = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
Name = Annotated[
    str, Meta(pattern=NAME, description="a name of letters, digits, dots, dashes and underscores")
]


class Multipath(StrEnum):
    """The layer that joins an endpoint's paths: none, device mapper, or NVMe's own."""

    NONE = "none"
    DM = "dm"
    NVME = "nvme"


class LinkMatch(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The current PCI Express link: generation and lanes; an unread link never matches."""

    gen: Annotated[tuple[Generation, ...], Meta(min_length=1)] = ()
    width: Annotated[tuple[Lanes, ...], Meta(min_length=1)] = ()


class Match(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The endpoints that a rule is for: any of the values of every key; an absent key is any.

    ``vendor`` and ``model`` are case-sensitive globs, of which one must fit. ``transport`` is the
    kernel's word for what an NVMe controller is reached by.
    """

    family: Annotated[tuple[Text, ...], Meta(min_length=1)] = ()
    protocol: Annotated[tuple[Protocol, ...], Meta(min_length=1)] = ()
    medium: Annotated[tuple[Medium, ...], Meta(min_length=1)] = ()
    kind: Annotated[tuple[Kind, ...], Meta(min_length=1)] = ()
    multipath: Annotated[tuple[Multipath, ...], Meta(min_length=1)] = ()
    vendor: Annotated[tuple[Text, ...], Meta(min_length=1)] = ()
    model: Annotated[tuple[Text, ...], Meta(min_length=1)] = ()
    storage: Annotated[tuple[Storage, ...], Meta(min_length=1)] = ()
    tri_mode: bool | None = None
    link: LinkMatch = LinkMatch()
    transport: Annotated[tuple[Text, ...], Meta(min_length=1)] = ()


class Exactly(Struct, frozen=True, tag="value"):
    """Set the setting to this value."""

    value: bool | int | str


class AtLeast(Struct, frozen=True, tag="at_least"):
    """Raise the setting to this number, and never lower it."""

    value: int


class AtMost(Struct, frozen=True, tag="at_most"):
    """Lower the setting to this number, and never raise it: for a site's own facts only."""

    value: int


class Leave(Struct, frozen=True, tag="leave"):
    """Leave the setting as it is, for a reason that `explain` shows."""


Effect = Exactly | AtLeast | AtMost | Leave


class Origin(StrEnum):
    """The author of a file of rules: hbatune, the site, or a vendor."""

    SHIPPED = "shipped"
    SITE = "site"
    VENDOR = "vendor"


class Rule(Struct, frozen=True):
    """When an endpoint matches, the setting gets the effect; ``file`` is the file of the rule.

    ``source`` is the id of a ``Source``, or ``site`` or ``site: …`` in a site's own file.
    ``origin`` is whose file it is.
    """

    name: str
    when: Match
    setting: str
    effect: Effect
    because: str
    source: str
    file: str
    origin: Origin = Origin.SHIPPED


class OptionRule(Struct, frozen=True):
    """An option of a driver's module, which takes effect when the module is loaded next.

    It is for every adapter that the module drives. ``source`` and ``file`` as in ``Rule``.
    """

    name: str
    module: str
    option: str
    effect: Exactly | AtLeast | AtMost
    because: str
    source: str
    file: str

    @property
    def setting(self) -> str:
        """Its name on the kernel's command line."""
        return f"{self.module}.{self.option}"


class Objective(Struct, frozen=True, forbid_unknown_fields=True):
    """The p99 latency in milliseconds that the matching endpoints should stay below."""

    p99_ms: Annotated[float, Meta(gt=0, le=60_000)]
    because: Text
    source: Text
    when: Match = Match()


class ProbeSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """The read-only fio job that represents the profile's workload; the depth is per endpoint.

    It is the application's depth, not fio's own default (D0-6).
    """

    pattern: Literal["randread", "read"] = "randread"
    block_size: Annotated[
        str, Meta(pattern="^[1-9][0-9]{0,4}[km]$", description='a size such as "4k" or "1m"')
    ] = "4k"
    depth: Annotated[int, Meta(ge=1, le=1024)] = 24

    @property
    def block_bytes(self) -> int:
        """The block size in bytes."""
        return int(self.block_size[:-1]) << {"k": 10, "m": 20}[self.block_size[-1]]


Share = Annotated[float, Meta(gt=0, lt=1)]


class Tolerance(Struct, frozen=True, forbid_unknown_fields=True):
    """The share of IOPS, mean and p99 that a change may cost before `apply` reverts it.

    A change that stays within it for sure is `unchanged`.
    """

    iops: Share = 0.05
    mean: Share = 0.05
    p99: Share = 0.10


class Profile(Struct, frozen=True):
    """An ordered list of rules for a workload, with its objectives and its probe.

    Of the rules that match an endpoint the last one wins, setting by setting; likewise the
    objectives, and the module options, which count only if they are asked for. ``files`` are
    those that it was read from, in order.
    """

    name: str
    title: str
    origin: Origin
    rules: tuple[Rule, ...]
    objectives: tuple[Objective, ...]
    probe: ProbeSpec
    files: tuple[str, ...]
    options: tuple[OptionRule, ...] = ()
    tolerance: Tolerance = Tolerance()


class Listed(Struct, frozen=True):
    """A profile that can be chosen, before its rules are read."""

    name: str
    title: str
    origin: Origin
    file: str


class Source(Struct, frozen=True):
    """The source of a rule: a statement in our words, and the place where it is written.

    ``title`` is the document's; ``section`` is its section, or the kernel's file and function.
    """

    id: str
    document: str
    title: str
    section: str
    says: str


class Part(Struct, frozen=True):
    """One file of a profile, checked; ``include`` are the names of those that it includes.

    Without a ``title`` it cannot be chosen itself.
    """

    file: str
    origin: Origin
    title: str | None = None
    include: tuple[str, ...] = ()
    probe: ProbeSpec | None = None
    tolerance: Tolerance | None = None
    rules: tuple[Rule, ...] = ()
    objectives: tuple[Objective, ...] = ()
    options: tuple[OptionRule, ...] = ()

    def placed(self, path: Path) -> "Part":
        """Return it as read from the file at ``path``."""
        file = str(path)
        return replace(
            self,
            file=file,
            rules=tuple(replace(rule, file=file) for rule in self.rules),
            options=tuple(replace(option, file=file) for option in self.options),
        )


class VendorRule(Struct, frozen=True):
    """One rule of a vendor; ``vendor`` is the one whose file it is in.

    ``use`` names what the disks have to be used for, None for all that match. ``note`` says what is
    wrong with the advice today, or what goes with it.
    """

    rule: Rule
    vendor: str
    use: str | None = None
    note: str | None = None
