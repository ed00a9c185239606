"""Build endpoints, the targets of tuning, from the attributes of each block device."""

import errno
import os
import re
from collections.abc import Iterable
from typing import TypeVar

from hbatune.facts import attributes, classify, families, model, processors
from hbatune.facts.attributes import ABSENT, Attributes, get_bytes, get_text, get_word
from hbatune.facts.classify import Evidence
from hbatune.facts.families.ahci import ncq_off
from hbatune.facts.ids import escape_text, make_stable_name
from hbatune.facts.model import Adapter, Attribute, Endpoint, Host, Kind, Missing, Protocol
from hbatune.facts.routes import SAS_ADDRESS, Place, Routes, find_port_name_file, get_kernel_name

_Fact = TypeVar("_Fact", str, bool)

UNKNOWN_FAMILY = "unknown"  # of disks without an adapter
MULTIPATH_FAMILY = "dm_multipath"  # of maps that device-mapper makes
SUSPENDED = "suspended"  # the state of a map whose I/O waits

_MAX_DEPTH = 4096  # drivers/scsi/scsi.c: scsi_device_max_queue_depth

# The zone models (block/blk-sysfs.c: queue_zoned_show).
_ZONED = {"none": False, "host-aware": True, "host-managed": True}
# Every queue of Linux 6.11 has it. The kernel orders the writes to zones since 6.10, and shows no
# other sign of it in sysfs (block/blk-zoned.c: blk_zone_plug_bio; block/blk-sysfs.c: queue_attrs).
_ATOMIC_WRITES = "queue/atomic_write_max_bytes"
_QUEUE = (model.DISKSEQ_FILE, "queue/rotational", "queue/zoned", model.TAG_COUNT_FILE)
# drivers/scsi/scsi_sysfs.c: exists for every LUN, but returns EINVAL without a device handler.
_ALUA = ("device/access_state", "device/preferred_path")
_ANA = "ana_state"  # drivers/nvme/host/multipath.c, for a hidden path
_SCSI = (
    *("size", "removable", "device/state", "device/type", "device/vendor", "device/model"),
    *("device/rev", "device/wwid", "device/serial", "device/vpd_pg80", "device/vpd_pgb1"),
    *_ALUA,
    *_QUEUE,
)
_TRANSLATED = (*_SCSI, "device/vpd_pg89")
# drivers/scsi/raid_class.c, of a volume on this channel (mpt3sas_scsih.c: RAID_CHANNEL)
_RAID_CLASS, _RAID_CHANNEL = "device/raid_devices/{}/level", 1
_FLAT = (*_TRANSLATED, "device/vpd_pg83", "device/raid_level", "device/sas_address")
_NVME = (
    *("size", "hidden", "wwid", "nsid", "device/state", "device/model", "device/serial"),
    *("device/firmware_rev", "mq/", _ANA),
    *_QUEUE,
)
# A name and a serial number of eMMC (drivers/mmc/core/mmc.c), the uid of a DASD with its serial
# number (drivers/s390/block/dasd_devmap.c: dasd_uid_show).
_CARD = ("device/name", "device/serial", "device/uid")
_OTHER = ("size", "removable", "hidden", "serial", *_CARD, "device/state", "mq/", *_QUEUE)
MAP_ATTRIBUTES = (*_NVME, "dm/uuid", "dm/name", "dm/suspended", attributes.MAP_TABLE)
PORT_ATTRIBUTES = ("target_port_protocols", SAS_ADDRESS)
# The attributes of a block device that determine its id or its protocol.
_IDENTITY = (
    *("device/vendor", "device/model", "device/wwid", "device/serial", "device/vpd_pg80"),
    *("device/vpd_pg83", "device/raid_level", "device/sas_address", "wwid", "dm/uuid", *_CARD),
)
_SPI_TARGETS = "/sys/class/spi_transport"  # on a parallel bus
# Errors of the system. Other errors are answers: for example ENXIO for a LUN without VPD pages.
_FAILED = frozenset({errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def list_attributes(place: Place) -> tuple[str, ...]:
    """Return the attributes that classify a block device: with many LUNs each file counts."""
    transport = place.branch.transport
    if place.address is None:
        return _NVME if transport == "nvme" else _OTHER
    if transport in ("sas", "ata"):
        return _TRANSLATED
    if transport == "fc":
        return (*_SCSI, find_port_name_file(place))
    if place.channel == _RAID_CHANNEL and not transport:
        return (*_FLAT, _RAID_CLASS.format(place.address))
    return _SCSI if transport else _FLAT


def has_medium(attributes: Attributes) -> bool:
    """Return whether the device can be tuned: no optical drive and no empty card reader."""
    # 5 is the SCSI type of CD and DVD drives.
    optical = get_word(attributes, "device/type") == "5"
    empty = get_word(attributes, "removable") == "1" and get_word(attributes, "size") == "0"
    return not optical and not empty


def build_endpoint(
    directory: str,
    place: Place,
    survey: Attributes,
    port: Attributes,
    adapter: Adapter | None,
    requested: Attributes,
    routes: Routes,
) -> Endpoint:
    """Build the endpoint of a block device with hardware behind it; ``port`` is its SAS port."""
    name, evidence = get_kernel_name(directory), _collect_evidence(place, survey, port)
    family = families.family_named(adapter.family if adapter else UNKNOWN_FAMILY)
    host = adapter.find_host(place.branch.host_name) if adapter else None
    protocol = classify.classify_protocol(evidence, family.protocol)
    controller = place.branch.controller
    unread = _find_unread(survey, _IDENTITY) or _find_unread(port, PORT_ATTRIBUTES)
    described: tuple[str, ...] = ()
    if protocol is Protocol.UNKNOWN or unread:
        driver = model.get_fact(adapter.driver) if adapter else None
        described = classify.describe_unknown(evidence, driver or "unknown")
    revision = get_word(survey, "device/rev") or get_word(survey, "device/firmware_rev")
    zoned = attributes.parse_text(survey, "queue/zoned", _ZONED.__getitem__)
    return Endpoint(
        target=name,
        id=f"{_build_stable_name(name, place, survey)}@{routes.of_disk(directory, place, survey)}",
        adapter=adapter.target if adapter else None,
        family=adapter.family if adapter else UNKNOWN_FAMILY,
        kind=Kind.DISK,
        protocol=protocol,
        medium=classify.classify_medium(evidence, protocol),
        vendor=escape_text(evidence.vendor),
        model=escape_text(evidence.model or get_word(survey, "device/name")),
        revision=escape_text(revision),
        sysfs=directory,
        device_node=None if get_word(survey, "hidden") == "1" else _get_node(name),
        address=place.address,
        controller=get_kernel_name(controller) if controller else None,
        host=host,
        size=_get_size(survey),
        rotational=attributes.parse_flag(survey, "queue/rotational"),
        zoned=zoned,
        plugs_zones=os.path.exists(f"{directory}/{_ATOMIC_WRITES}") if zoned is True else None,
        raid_level=classify.find_raid_level(evidence) if protocol is Protocol.VOLUME else None,
        state=get_text(survey, "device/state"),
        tags=attributes.parse_integer(survey, model.TAG_COUNT_FILE),
        hw_queues=host.hw_queues if host else attributes.count_words(survey, "mq/"),
        depth_cap=_limit_depth(adapter, host, evidence),
        depth_trap=family.depth_trap(host, evidence) if host else None,
        tri_mode=protocol is Protocol.NVME and place.address is not None,
        storage=classify.classify_storage(evidence, protocol),
        ncq_depth=evidence.ncq_depth,
        evidence=described,
        unread=unread,
        paths=(),
        map=None,
        mounts=(),
        holders=(),
        attributes=requested,
        port=get_word(survey, find_port_name_file(place)) or None,
        access=_convert_refusal(get_text(survey, _ALUA[0] if place.address else _ANA)),
        preferred=_convert_refusal(attributes.parse_flag(survey, _ALUA[1])),
        diskseq=attributes.parse_integer(survey, model.DISKSEQ_FILE),
        removable=get_word(survey, "removable") == "1",
    )


def _convert_refusal(fact: _Fact | Missing) -> _Fact | Missing:
    # Without a device handler, the kernel returns EINVAL, and copies of sysfs have an empty file.
    refused = isinstance(fact, Missing) and (fact.errno == errno.EINVAL or fact.text == "")
    return ABSENT if refused else fact


def _collect_evidence(place: Place, survey: Attributes, port: Attributes) -> Evidence:
    """Return the attributes of a block device and of its target port as evidence."""
    rotational = attributes.parse_flag(survey, "queue/rotational")
    is_ata = place.branch.transport == "ata"
    ata_port = re.search(r"/ata(\d+)/", f"{place.branch.host}/") if is_ata else None
    channel = place.channel
    raid_class = _RAID_CLASS.format(place.address) if channel == _RAID_CHANNEL else ""
    return Evidence(
        transport=place.branch.transport,
        pci=place.branch.pci is not None,
        fabric="/nvme-fabrics/" in (place.branch.controller or ""),
        channel=channel,
        vendor=get_word(survey, "device/vendor"),
        model=get_word(survey, "device/model"),
        access=get_word(survey, _ALUA[0]) or None,
        raid_level=get_word(survey, "device/raid_level") or get_word(survey, raid_class) or None,
        port_protocols=model.get_fact(get_text(port, PORT_ATTRIBUTES[0])),
        sas_address=get_word(survey, "device/sas_address") or None,
        sas_designator=classify.has_sas_port(get_bytes(survey, "device/vpd_pg83")),
        ncq_depth=classify.parse_ncq_depth(get_bytes(survey, "device/vpd_pg89")),
        ncq_off=ncq_off(processors.read_command_line(), int(ata_port[1])) if ata_port else None,
        sat=isinstance(survey.get("device/vpd_pg89"), Attribute),
        spi=place.target is not None and os.access(f"{_SPI_TARGETS}/{place.target}", os.F_OK),
        rotation=classify.parse_rotation_rate(get_bytes(survey, "device/vpd_pgb1")),
        rotational=rotational if isinstance(rotational, bool) else None,
    )


def build_map(
    directory: str, survey: Attributes, paths: list[Endpoint], requested: Attributes
) -> Endpoint:
    """Build a map with its paths' protocol and medium, or unknown if the paths differ."""
    name = get_kernel_name(directory)
    native = not isinstance(survey.get("dm/uuid"), Attribute)
    protocols = {path.protocol for path in paths}
    media = {path.medium for path in paths}
    places = {path.storage for path in paths}
    first = paths[0] if paths else None
    protocol = protocols.pop() if len(protocols) == 1 else Protocol.UNKNOWN
    evidence: tuple[str, ...] = ()
    if protocol is Protocol.UNKNOWN:
        evidence = tuple(f"path {path.target} is {path.protocol}" for path in paths)
        evidence = evidence or (classify.Unclassified.NO_PATH,)
    unread = _find_unread(survey, _IDENTITY)
    is_suspended = get_word(survey, "dm/suspended") == "1"
    for path in paths:
        unread = unread or path.unread
    return Endpoint(
        target=name,
        id=make_stable_name(get_word(survey, "wwid" if native else "dm/uuid"), name),
        adapter=None,
        family="nvme" if native else MULTIPATH_FAMILY,
        kind=Kind.MAP,
        protocol=protocol,
        medium=media.pop() if len(media) == 1 else model.Medium.UNKNOWN,
        vendor=first.vendor if first else "",
        model=first.model if first else escape_text(get_word(survey, "device/model")),
        revision=first.revision if first else escape_text(get_word(survey, "device/firmware_rev")),
        sysfs=directory,
        device_node=_get_node(name),
        address=None,
        controller=None,
        host=None,
        size=_get_size(survey),
        rotational=attributes.parse_flag(survey, "queue/rotational"),
        zoned=attributes.parse_text(survey, "queue/zoned", _ZONED.__getitem__),
        state=SUSPENDED if is_suspended else get_text(survey, "device/state"),
        tags=attributes.parse_integer(survey, model.TAG_COUNT_FILE),
        hw_queues=attributes.count_words(survey, "mq/"),
        depth_cap=ABSENT,  # a map has no queue_depth, only its paths
        depth_trap=None,
        tri_mode=any(path.tri_mode for path in paths),
        paths=tuple(path.target for path in paths),
        map=None,
        mounts=(),
        holders=(),
        attributes=requested,
        diskseq=attributes.parse_integer(survey, model.DISKSEQ_FILE),
        storage=places.pop() if len(places) == 1 else model.Storage.LOCAL,
        evidence=evidence,
        unread=unread,
        path_groups=attributes.parse_text(survey, attributes.MAP_TABLE, parse_path_groups),
        alias=escape_text(get_word(survey, "dm/name")) or None,
    )


def parse_path_groups(table: str) -> tuple[model.PathGroup, ...]:
    """Return the path groups of a table (drivers/md/dm-mpath.c: multipath_status)."""
    kind, *words = table.split()  # ValueError or IndexError for any other table
    if kind != "multipath":
        raise ValueError(table)
    for _ in ("features", "hardware handler"):
        del words[: 1 + int(words[0])]
    count, active = int(words[0]), int(words[1])
    del words[:2]
    groups = []
    for number in range(1, count + 1):
        selector = words[0]
        del words[: 2 + int(words[1])]
        path_count, width = int(words[0]), 1 + int(words[1])
        end = 2 + path_count * width
        paths = tuple(words[2:end:width])
        groups.append(model.PathGroup(escape_text(selector), number == active, paths))
        del words[:end]
    return tuple(groups)


def _find_unread(survey: Attributes, names: Iterable[str]) -> str | None:
    """Return the first of these attributes that the system failed to read."""
    for name in names:
        value = survey.get(name)
        if isinstance(value, Missing) and value.errno in _FAILED:
            return name
    return None


def _build_stable_name(name: str, place: Place, survey: Attributes) -> str:
    if place.address is None:
        namespace = ""
        if place.branch.controller:
            namespace = get_word(survey, "nsid") or name.rpartition("n")[2]
        serial = get_word(survey, "device/serial") or get_word(survey, "serial")
        wwid = get_word(survey, "wwid") or get_word(survey, "device/uid")
        model = get_word(survey, "device/model") or get_word(survey, "device/name")
        return make_stable_name(wwid, model, serial, namespace)
    page_serial = classify.parse_serial_number(get_bytes(survey, "device/vpd_pg80"))
    serial = page_serial or get_word(survey, "device/serial")  # in newer kernels
    vendor, model = get_word(survey, "device/vendor"), get_word(survey, "device/model")
    return make_stable_name(get_word(survey, "device/wwid"), vendor, model, serial)


def _get_node(name: str) -> str:
    """Return the device node; sysfs shows a slash in it as ``!``."""
    return "/dev/" + name.replace("!", "/")


def _get_size(survey: Attributes) -> int | Missing:
    return attributes.parse_text(survey, "size", lambda text: int(text) * attributes.SECTOR_BYTES)


def _limit_depth(adapter: Adapter | None, host: Host | None, evidence: Evidence) -> int | Missing:
    if adapter is None or host is None:
        return ABSENT
    # The kernel checks a write against all three: the driver's limit, can_queue and its own.
    cap = families.family_named(adapter.family).depth_cap(adapter.pci, host, evidence)
    can_queue = host.can_queue
    if isinstance(cap, Missing):
        return cap
    return min(cap, can_queue, _MAX_DEPTH) if isinstance(can_queue, int) else can_queue
