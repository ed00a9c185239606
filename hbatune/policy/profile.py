"""Rules, profiles and their sources as frozen values.

A rule contains a condition for endpoints, a setting with its value, the reason and the source.
"""

from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta, Struct

from hbatune.facts.model import Kind, Medium, Protocol, Storage
from hbatune.loader import LongText, ShortText

Generation = Annotated[int, Meta(ge=1, le=7)]
Lanes = Annotated[int, Meta(ge=1, le=32)]
Text = Annotated[str, Meta(min_length=1, max_length=4096, description="1 to 4096 characters")]
Texts = Annotated[tuple[Text, ...], Meta(min_length=1)]

NAME_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
Name = Annotated[
    str,
    Meta(
        pattern=NAME_PATTERN, description="a name of letters, digits, dots, dashes and underscores"
    ),
]


class Multipath(StrEnum):
    """The layer that joins an endpoint's paths: none, device mapper, or NVMe."""

    NONE = "none"
    DM = "dm"
    NVME = "nvme"


class LinkMatch(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The current PCI Express link: generation and lanes. An unread link never matches."""

    gen: Annotated[tuple[Generation, ...], Meta(min_length=1)] = ()
    width: Annotated[tuple[Lanes, ...], Meta(min_length=1)] = ()


class Match(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The condition of a rule. Each key must match one of its values; an absent key matches all.

    ``vendor`` and ``model`` are case-sensitive globs. ``rotational`` is the kernel's own statement,
    also for virtual disks; ``medium`` is hbatune's classification. ``transport`` is the kernel's
    name for the transport of an NVMe controller. ``use`` is a use in [site], a mount point, the
    name of a volume or a pool on the disk, or ``zfs``.
    """

    family: Texts = ()
    protocol: Annotated[tuple[Protocol, ...], Meta(min_length=1)] = ()
    medium: Annotated[tuple[Medium, ...], Meta(min_length=1)] = ()
    kind: Annotated[tuple[Kind, ...], Meta(min_length=1)] = ()
    multipath: Annotated[tuple[Multipath, ...], Meta(min_length=1)] = ()
    vendor: Texts = ()
    model: Texts = ()
    storage: Annotated[tuple[Storage, ...], Meta(min_length=1)] = ()
    tri_mode: bool | None = None
    rotational: bool | None = None
    link: LinkMatch = LinkMatch()
    transport: Texts = ()
    use: Texts = ()


class Exactly(Struct, frozen=True, tag="value"):
    """Set the setting to this value."""

    value: bool | int | ShortText


class AtLeast(Struct, frozen=True, tag="at_least"):
    """Raise the setting to this number, and never lower it."""

    value: int


class AtMost(Struct, frozen=True, tag="at_most"):
    """Lower the setting to this number, and never raise it. It is only for a site's facts."""

    value: int


class Leave(Struct, frozen=True, tag="leave", omit_defaults=True):
    """Leave the setting unchanged, for a reason that `explain` shows.

    A ``doubtful`` rule is invalid. A value that it has set before is not restored either.
    """

    doubtful: bool = False


Effect = Exactly | AtLeast | AtMost | Leave


class Origin(StrEnum):
    """The author of a rule file: hbatune, the site, or a vendor."""

    SHIPPED = "shipped"
    SITE = "site"
    VENDOR = "vendor"


class Rule(Struct, frozen=True):
    """The effect on a setting of all endpoints that match. ``file`` is the file of the rule.

    ``source`` is the id of a ``Source``, or ``site`` or ``site: …`` in a site's file. ``origin`` is
    the author of the file.
    """

    name: ShortText
    when: Match
    setting: ShortText
    effect: Effect
    because: LongText
    source: ShortText
    file: ShortText
    origin: Origin = Origin.SHIPPED


class OptionRule(Struct, frozen=True):
    """An option of a driver's module, which takes effect when the module is loaded next.

    It applies to all adapters of the module. ``source`` and ``file`` are as in ``Rule``.
    """

    name: ShortText
    module: ShortText
    option: ShortText
    effect: Exactly | AtLeast | AtMost
    because: LongText
    source: ShortText
    file: ShortText

    @property
    def setting(self) -> str:
        """The option's name on the kernel's command line."""
        return f"{self.module}.{self.option}"


class Objective(Struct, frozen=True, forbid_unknown_fields=True):
    """The p99 latency in milliseconds that the matching endpoints should stay below."""

    p99_ms: Annotated[float, Meta(gt=0, le=60_000)]
    because: Text
    source: Text
    when: Match = Match()


class ProbeSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """The load of a profile: the read-only fio job that every comparison measures with.

    The depth is per endpoint. It is the application's depth, not fio's default (D0-6). ``source``
    is as in ``Rule``.
    """

    pattern: Literal["randread", "read"] = "randread"
    block_size: Annotated[
        str, Meta(pattern="^[1-9][0-9]{0,4}[km]$", description='a size such as "4k" or "1m"')
    ] = "4k"
    depth: Annotated[int, Meta(ge=1, le=1024)] = 24
    source: Text = "site"

    @property
    def block_bytes(self) -> int:
        """The block size in bytes."""
        return int(self.block_size[:-1]) << {"k": 10, "m": 20}[self.block_size[-1]]


Share = Annotated[float, Meta(gt=0, lt=1)]


class Tolerance(Struct, frozen=True, forbid_unknown_fields=True):
    """The fraction of IOPS, mean and p99 that a change may cost before `apply` reverts it.

    A change that certainly stays within it is `unchanged`.
    """

    iops: Share = 0.05
    mean: Share = 0.05
    p99: Share = 0.10


class Profile(Struct, frozen=True):
    """An ordered list of rules for a workload, with its objectives and its probe.

    For each setting, the last rule that matches an endpoint wins. The same applies to objectives
    and module options. Module options count only if requested. ``files`` are the profile's files,
    in order. ``is_stored`` is whether the shipped rules are the copy that the last apply stored.
    """

    name: ShortText
    title: ShortText
    origin: Origin
    rules: tuple[Rule, ...]
    objectives: tuple[Objective, ...]
    probe: ProbeSpec
    files: tuple[ShortText, ...]
    options: tuple[OptionRule, ...] = ()
    tolerance: Tolerance = Tolerance()
    is_stored: bool = False


class ListedProfile(Struct, frozen=True):
    """An available profile, before its rules are read."""

    name: str
    title: str
    origin: Origin
    file: str


class Source(Struct, frozen=True):
    """The source of a rule: a statement in our words, and its reference.

    ``title`` is the document's title. ``section`` is its section, or the kernel's file and
    function. A rule may cite it for one of ``settings``; an option is ``MODULE.OPTION``.
    """

    id: str
    document: str
    title: str
    section: str
    says: str
    settings: tuple[str, ...] = ()


class VendorRule(Struct, frozen=True):
    """One rule from the file of ``vendor``.

    ``use`` is the required use of the disks, or None for all that match. ``note`` describes current
    problems of the advice, or related settings.
    """

    rule: Rule
    vendor: str
    use: str | None = None
    note: str | None = None
