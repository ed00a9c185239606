"""Resolve a wanted value to the legal one for a device: the only entry points. Pure.

Plans call the ``resolve_`` function of the target's type, with surveyed facts. Workers call
``legal`` just before each write, with the attributes they have just read. The table names the
limits.
"""

from hbatune.facts.families import family_named
from hbatune.facts.family import Purpose
from hbatune.facts.model import Attribute, Control, Endpoint, TargetKind, Vector
from hbatune.facts.targets import target_of
from hbatune.settings.setting import Attributes, Device, Fixed, Legal, Room, Value
from hbatune.settings.table import QUEUE_DEPTH, SETTINGS, setting

READ_ONLY = "read-only in this driver"
BY_OPTION = "; its module's option {} sets it at the next load (--module-options)"


def legal(
    name: str, wanted: Value, current: Value, attributes: Attributes, scheduler: Value | None
) -> Legal | Fixed:
    """Return the value to write for ``wanted`` to a block device with these attributes.

    ``scheduler`` is the current scheduler.
    """
    return setting(name).limit(wanted, current, Device(attributes, scheduler))


def resolve_endpoint(
    endpoint: Endpoint, name: str, wanted: Value, current: Value, scheduler: Value | None
) -> Legal | Fixed:
    """Return the legal value for ``wanted`` on this endpoint, with the planned scheduler.

    A file without its write bit has no store function in this driver: no value is legal.
    """
    attributes = target_of(endpoint).attributes
    return resolve_with(endpoint, attributes, name, wanted, current, scheduler)


def resolve_with(
    endpoint: Endpoint,
    attributes: Attributes,
    name: str,
    wanted: Value,
    current: Value,
    scheduler: Value | None,
) -> Legal | Fixed:
    """Resolve a value like ``resolve_endpoint``, with the endpoint's attributes as a target."""
    attribute = endpoint.attributes.get(SETTINGS[name].path)
    if isinstance(attribute, Attribute) and not attribute.writable:
        return Fixed(READ_ONLY + (_describe_option(endpoint) if name == QUEUE_DEPTH else ""))
    device = Device(attributes, scheduler, endpoint)
    return SETTINGS[name].limit(wanted, current, device)


def _describe_option(endpoint: Endpoint) -> str:
    """Return the note on the module option that sets a read-only depth, if there is one."""
    options = family_named(endpoint.family).options
    names = (option.name for option in options if option.purpose is Purpose.LUN_DEPTH)
    return next((BY_OPTION.format(name) for name in names), "")


def resolve_control(
    control: Control, name: str, wanted: Value, current: Value, scheduler: Value | None
) -> Legal | Fixed:
    """Return the legal value for ``wanted`` on an NVMe controller or a SCSI host.

    ``scheduler`` exists only for a common signature; no control depends on it.
    """
    spec = SETTINGS[name]
    if spec.at_load:
        if wanted == current:
            return Legal(wanted)
        return Fixed(f"an option of the driver's module: takes {name}={wanted} when it is loaded")
    attribute = control.attributes.get(spec.path)
    if isinstance(attribute, Attribute) and not attribute.writable:
        nvme = spec.on is TargetKind.CONTROLLER
        return Fixed("the controller says that it cannot be changed" if nvme else READ_ONLY)
    return spec.limit(wanted, current, Device(control.attributes))


def resolve_vector(
    vector: Vector, room: Room, name: str, wanted: Value, current: Value, scheduler: Value | None
) -> Legal | Fixed:
    """Return the legal value for ``wanted`` for a data vector, within the CPUs of ``room``.

    ``scheduler`` exists only for a common signature; no vector depends on it.
    """
    return SETTINGS[name].limit(wanted, current, Device({}, vector=vector, room=room))
