"""Endpoints, adapters and machines for tests: a plain SAS SSD behind an mpt3sas unless told."""

from typing import Any

import msgspec

from hbatune.facts.model import (
    Adapter,
    Attribute,
    Control,
    Endpoint,
    Host,
    Kind,
    Link,
    Machine,
    Medium,
    Missing,
    Pci,
    Processors,
    Protocol,
    Reason,
    Role,
    TargetKind,
    Vector,
)

ABSENT = Missing(Reason.ABSENT)


def link(**overrides: Any) -> Link:
    """Return a link that runs at Gen3 x8, as fast as it can."""
    return msgspec.structs.replace(Link(8.0, 8, 8.0, 8), **overrides)


def host(**overrides: Any) -> Host:
    """Return an mpt3sas host with one hardware queue."""
    return msgspec.structs.replace(
        Host(name="host0", proc_name="mpt3sas", can_queue=9664, cmd_per_lun=7, hw_queues=1),
        **overrides,
    )


def attributes(**texts: str) -> dict[str, Attribute | Missing]:
    """Return writable attributes, ``/`` in their paths written as ``__``."""
    return {path.replace("__", "/"): Attribute(text, True) for path, text in texts.items()}


def adapter(**overrides: Any) -> Adapter:
    """Return an mpt3sas HBA with ``overrides``."""
    hba = Adapter(
        target="0000:01:00.0",
        family="mpt3sas",
        product="HBA 9300-8i",
        document=None,
        driver="mpt3sas",
        pci=Pci("0000:01:00.0", 0x010700, 0x1000, 0x0097, ABSENT, ABSENT),
        numa_node=0,
        link=link(),
        driver_version="43.100.00.00",
        firmware="16.00.12.00",
        hosts=(host(),),
        controller=None,
        hw_queues=1,
    )
    return msgspec.structs.replace(hba, **overrides)


def endpoint(**overrides: Any) -> Endpoint:
    """Return the SAS SSD ``sda``; ``id`` and ``sysfs`` follow ``target`` unless given."""
    target = overrides.get("target", "sda")
    ssd = Endpoint(
        target=target,
        id=f"wwn-0x5000c500{target}@0000:01:00.0/scsi-0:0:0",
        adapter="0000:01:00.0",
        family="mpt3sas",
        kind=Kind.DISK,
        protocol=Protocol.SAS,
        medium=Medium.SSD,
        vendor="SEAGATE",
        model="XS400ME70084",
        revision="0003",
        sysfs=f"/sys/block/{target}",
        device_node=f"/dev/{target}",
        address="0:0:0:0",
        controller=None,
        host=host(),
        size=400_088_457_216,
        rotational=False,
        zoned=False,
        state="running",
        tags=9664,
        depth_cap=254,
        depth_trap=None,
        hw_queues=1,
        tri_mode=False,
        paths=(),
        map=None,
        mounts=(),
        holders=(),
        attributes=attributes(
            queue__scheduler="[none] mq-deadline",
            queue__nr_requests="256",
            device__queue_depth="254",
        ),
    )
    return msgspec.structs.replace(ssd, **overrides)


def vector(**overrides: Any) -> Vector:
    """Return a data vector of the HBA that any CPU may serve. ``id`` follows ``irq``."""
    irq = overrides.get("irq", 30)
    irq_vector = Vector(
        irq=irq,
        id=f"msix-{irq - 30}@{overrides.get('adapter', '0000:01:00.0')}",
        adapter="0000:01:00.0",
        names=("mpt3sas0-msix0",),
        role=Role.DATA,
        managed=False,
        inferred=False,
        affinity=Attribute("0-7", True),
        effective="0",
        node=0,
        serves=None,
        unmanaged_by=None,
    )
    return msgspec.structs.replace(irq_vector, **overrides)


def control(**overrides: Any) -> Control:
    """Return the NVMe controller nvme0, which can coalesce interrupts but does not."""
    values: dict[str, Attribute | Missing] = {"feature/08": Attribute("0", True)}
    nvme = Control(
        target="nvme0",
        id="controller-0@0000:01:00.0",
        adapter="0000:01:00.0",
        kind=TargetKind.CONTROLLER,
        sysfs="/sys/class/nvme/nvme0",
        attributes=values,
    )
    return msgspec.structs.replace(nvme, **overrides)


def machine(
    *endpoints: Endpoint, adapters: tuple[Adapter, ...] | None = None, **overrides: Any
) -> Machine:
    """Return a machine with these endpoints (default: one SAS SSD) behind one mpt3sas HBA."""
    server = Machine(
        hostname="db1",
        kernel="6.1.0-56-amd64",
        boot_id="11111111-2222-3333-4444-555555555555",
        cpus=8,
        memory=16 << 30,
        adapters=(adapter(),) if adapters is None else adapters,
        endpoints=endpoints or (endpoint(),),
        processors=Processors(tuple(range(8)), cores=tuple((cpu,) for cpu in range(8))),
        local_cpus={"0000:01:00.0": tuple(range(8))},
    )
    return msgspec.structs.replace(server, **overrides)
