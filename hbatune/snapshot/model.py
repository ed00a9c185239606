"""The content of a snapshot, as frozen values."""

from msgspec import Struct

from hbatune.facts.health import Counted, Health
from hbatune.facts.model import Machine
from hbatune.loader import WholeMoment
from hbatune.plan.rows import Reverted
from hbatune.policy.config import Site
from hbatune.policy.model import Profile

SCHEMA = "hbatune.snapshot/1"


class HostPolicy(Struct, frozen=True):
    """The policy of a host: its profiles, the active one's name, and the targets left alone there.

    ``rolled_back`` are the ids that a rollback took out until an apply names them again,
    ``reverted`` the values that cost too much, ``rendered`` the module options for the next load.
    """

    active: str | None
    profiles: tuple[Profile, ...]
    site: Site
    rolled_back: tuple[str, ...]
    reverted: tuple[Reverted, ...] = ()
    rendered: tuple[tuple[str, str, str], ...] = ()


class Snapshot(Struct, frozen=True):
    """All facts of a host at one moment, with the attributes of every setting.

    ``hbatune`` is the version that took it, ``taken`` in seconds since the epoch. ``anonymous`` is
    whether names and serial numbers were removed. ``looks`` are earlier counts of errors.
    """

    machine: Machine
    health: Health
    policy: HostPolicy
    hbatune: str
    taken: WholeMoment
    looks: tuple[Counted, ...] = ()
    anonymous: bool = False
    schema: str = SCHEMA
