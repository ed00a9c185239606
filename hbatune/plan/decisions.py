"""What an administrator has decided before hbatune came: values below the driver's own. Pure.

A queue_depth or nr_requests that nobody has touched is the default of driver or kernel, where that
is known. One that is lower was lowered: by hbatune, which its journal says; by the kernel, after a
full queue; or by an administrator or another tool, whose reasons are not known here (an array, a
drive that loses commands, a neighbour), and whose word stands until somebody names the target or
writes a rule with ``value``.
"""

from hbatune.facts.attributes import errors
from hbatune.facts.families import family_named
from hbatune.facts.family import Parameters
from hbatune.facts.model import Attribute, Endpoint, Missing, Protocol
from hbatune.policy.model import Exactly, Origin, Rule
from hbatune.settings.limits import scheduler_of
from hbatune.settings.table import NR_REQUESTS, QUEUE_DEPTH, SETTINGS, Value

LOWERED = "below the driver's own {}: an administrator's decision, until `apply {}` names it"
NCQ_OFF = "native command queuing is off: an administrator's decision, until `apply {}` names it"
ONE_COMMAND = "one command at a time: the drive queues nothing, or somebody has switched it off"

FULLS = 11
"""TASK SET FULL answers after which the kernel lowers a depth (drivers/scsi/scsi.c:
scsi_track_queue_full): more than ten. Each counts as an error."""

_RQ = 128  # include/linux/blkdev.h: BLKDEV_DEFAULT_RQ


def decided(endpoint: Endpoint, parameters: Parameters) -> dict[str, str]:
    """Return the settings of an endpoint that were lowered, each with why it stays.

    ``parameters`` are those of its driver's module.
    """
    defaults = {QUEUE_DEPTH: _depth(endpoint, parameters), NR_REQUESTS: _requests(endpoint)}
    found = {
        name: LOWERED.format(default, endpoint.target)
        for name, default in defaults.items()
        if default is not None and (now := _number(endpoint, name)) is not None and now < default
    }
    # Whatever driver serves it: a depth of 1 is how one switches queuing off, for every command.
    if endpoint.protocol is Protocol.SATA and _number(endpoint, QUEUE_DEPTH) == 1:
        able = endpoint.ncq_depth is not None and endpoint.ncq_depth > 1
        found[QUEUE_DEPTH] = NCQ_OFF.format(endpoint.target) if able else ONE_COMMAND
    return found


def stands(rule: Rule, name: str, *, scheduler: Value | Missing, planned: Value | Missing) -> bool:
    """Whether a lowered value stands against a rule.

    A site's own rule with ``value`` outweighs it. A switch of the scheduler throws nr_requests
    away.
    """
    if rule.origin is Origin.SITE and isinstance(rule.effect, Exactly):
        return False
    return name != NR_REQUESTS or scheduler == planned


def _depth(endpoint: Endpoint, parameters: Parameters) -> int | None:
    family = family_named(endpoint.family)
    if family.depth_ramps and (errors(endpoint.attributes) or 0) >= FULLS:
        return None  # the kernel may have lowered it
    return family.depth_default(endpoint, parameters)


def _requests(endpoint: Endpoint) -> int | None:
    """Return the number that the kernel starts with where there is a scheduler.

    block/blk-mq-sched.c: blk_mq_init_sched. Without one a number below the tag set is an accident,
    since it holds for the whole adapter.
    """
    tags = endpoint.tags
    if scheduler_of(endpoint.attributes) in (None, "none") or not isinstance(tags, int):
        return None
    return 2 * min(tags, _RQ)


def _number(endpoint: Endpoint, name: str) -> int | None:
    found = endpoint.attributes.get(SETTINGS[name].path)
    text = found.text if isinstance(found, Attribute) else ""
    return int(text) if text.isdecimal() else None
