"""Resolve a wanted value to the legal one for a device: the only entry points. Pure.

Plans call the ``resolve_`` function of the target's type, with surveyed facts. Workers call
``resolve_value`` just before each write, with the attributes they have just read. The table names
the limits.
"""

from hbatune.facts.families import family_named
from hbatune.facts.family import Purpose
from hbatune.facts.model import Attribute, Control, Endpoint, TargetKind, Vector
from hbatune.facts.targets import make_target
from hbatune.settings.setting import Attributes, Device, FixedSetting, LegalValue, Value, VectorCpus
from hbatune.settings.table import QUEUE_DEPTH, SETTINGS, find_setting

READ_ONLY_REASON = "read-only in this driver"
BY_OPTION_NOTE = "; its module's option {} sets it at the next load (--module-options)"


def resolve_value(
    name: str, wanted: Value, current: Value, attributes: Attributes, scheduler: Value | None
) -> LegalValue | FixedSetting:
    """Return the value to write for ``wanted`` to a block device with these attributes.

    ``scheduler`` is the current scheduler.
    """
    return find_setting(name).limit(wanted, current, Device(attributes, scheduler))


def resolve_endpoint(
    endpoint: Endpoint, name: str, wanted: Value, current: Value, scheduler: Value | None
) -> LegalValue | FixedSetting:
    """Return the legal value for ``wanted`` on this endpoint, with the planned scheduler.

    A file without its write bit has no store function in this driver: no value is legal.
    """
    attributes = make_target(endpoint).attributes
    return resolve_with(endpoint, attributes, name, wanted, current, scheduler)


def resolve_with(
    endpoint: Endpoint,
    attributes: Attributes,
    name: str,
    wanted: Value,
    current: Value,
    scheduler: Value | None,
) -> LegalValue | FixedSetting:
    """Resolve a value like ``resolve_endpoint``, with the endpoint's attributes as a target."""
    attribute = endpoint.attributes.get(SETTINGS[name].path)
    if isinstance(attribute, Attribute) and not attribute.writable:
        return FixedSetting(
            READ_ONLY_REASON + (_describe_option(endpoint) if name == QUEUE_DEPTH else "")
        )
    device = Device(attributes, scheduler, endpoint)
    return SETTINGS[name].limit(wanted, current, device)


def _describe_option(endpoint: Endpoint) -> str:
    """Return the note on the module option that sets a read-only depth, if there is one."""
    options = family_named(endpoint.family).options
    names = (option.name for option in options if option.purpose is Purpose.LUN_DEPTH)
    return next((BY_OPTION_NOTE.format(name) for name in names), "")


def resolve_control(
    control: Control, name: str, wanted: Value, current: Value, scheduler: Value | None
) -> LegalValue | FixedSetting:
    """Return the legal value for ``wanted`` on an NVMe controller or a SCSI host.

    ``scheduler`` exists only for a common signature; no control depends on it.
    """
    spec = SETTINGS[name]
    if spec.at_load:
        if wanted == current:
            return LegalValue(wanted)
        return FixedSetting(
            f"an option of the driver's module: takes {name}={wanted} when it is loaded"
        )
    attribute = control.attributes.get(spec.path)
    if isinstance(attribute, Attribute) and not attribute.writable:
        nvme = spec.on is TargetKind.CONTROLLER
        return FixedSetting(
            "the controller says that it cannot be changed" if nvme else READ_ONLY_REASON
        )
    return spec.limit(wanted, current, Device(control.attributes))


def resolve_vector(
    vector: Vector,
    room: VectorCpus,
    name: str,
    wanted: Value,
    current: Value,
    scheduler: Value | None,
) -> LegalValue | FixedSetting:
    """Return the legal value for ``wanted`` for a data vector, within the CPUs of ``room``.

    ``scheduler`` exists only for a common signature; no vector depends on it.
    """
    return SETTINGS[name].limit(wanted, current, Device({}, vector=vector, room=room))
