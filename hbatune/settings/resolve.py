"""What a wanted value becomes on the device at hand: every caller asks here. Pure.

Plans ask for the kinds of targets with what was surveyed; workers ask ``legal`` just before each
write with what they have read. The limits themselves are named by the table.
"""

from hbatune.facts.model import Attribute, Control, Endpoint, TargetKind, Vector
from hbatune.facts.targets import target_of
from hbatune.settings.setting import Attributes, Device, Fixed, Legal, Room, Value
from hbatune.settings.table import SETTINGS, setting

READ_ONLY = "read-only in this driver"


def legal(
    name: str, wanted: Value, current: Value, attributes: Attributes, scheduler: Value | None
) -> Legal | Fixed:
    """Return what may be written of ``wanted`` to a block device with these attributes.

    ``scheduler`` is the one in force.
    """
    return setting(name).limit(wanted, current, Device(attributes, scheduler))


def resolve_endpoint(
    endpoint: Endpoint, name: str, wanted: Value, current: Value, scheduler: Value | None
) -> Legal | Fixed:
    """Return what ``wanted`` becomes on this endpoint, under the scheduler that is planned."""
    attribute = endpoint.attributes.get(SETTINGS[name].path)
    if isinstance(attribute, Attribute) and not attribute.writable:
        return Fixed(READ_ONLY)
    device = Device(target_of(endpoint).attributes, scheduler, endpoint)
    return SETTINGS[name].limit(wanted, current, device)


def resolve_control(
    control: Control, name: str, wanted: Value, current: Value, scheduler: Value | None
) -> Legal | Fixed:
    """Return what ``wanted`` becomes on an NVMe controller or a SCSI host."""
    found = SETTINGS[name]
    if found.at_load:
        if wanted == current:
            return Legal(wanted)
        return Fixed(f"an option of the driver's module: takes {name}={wanted} when it is loaded")
    attribute = control.attributes.get(found.path)
    if isinstance(attribute, Attribute) and not attribute.writable:
        nvme = found.on is TargetKind.CONTROLLER
        return Fixed("the controller says that it cannot be changed" if nvme else READ_ONLY)
    return found.limit(wanted, current, Device(control.attributes))


def resolve_vector(
    vector: Vector, room: Room, name: str, wanted: Value, current: Value, scheduler: Value | None
) -> Legal | Fixed:
    """Return what ``wanted`` becomes for a data vector that can go where ``room`` says."""
    return SETTINGS[name].limit(wanted, current, Device({}, vector=vector, room=room))
