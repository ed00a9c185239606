"""What the drivers call their interrupts, and which of those the kernel places: data by family.

Nothing else tells admin vectors from data vectors, and on kernels whose files say nothing of it
this also has to tell the managed ones.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from hbatune.facts.model import Role


@dataclass(frozen=True)
class Kind:
    """What vectors whose names match ``pattern`` as a whole are.

    ``managed`` is what to expect while the driver runs with its defaults; ``source`` is where the
    kernel asks for them.
    """

    pattern: str
    role: Role
    managed: bool
    source: str


_NVME = "drivers/nvme/host/pci.c: queue_request_irq, nvme_setup_irqs"
_VIRTIO = "drivers/virtio/virtio_pci_common.c: vp_find_vqs_msix"
_MPI3MR = "drivers/scsi/mpi3mr/mpi3mr_fw.c: mpi3mr_setup_isr"
_MPT3SAS = "drivers/scsi/mpt3sas/mpt3sas_base.c: _base_alloc_irq_vectors"
_MEGARAID = "drivers/scsi/megaraid/megaraid_sas_base.c: __megasas_alloc_irq_vectors"
_QLA = "drivers/scsi/qla2xxx/qla_isr.c: qla24xx_enable_msix, qla25xx_request_irq"
_LPFC = "drivers/scsi/lpfc/lpfc_init.c: lpfc_sli_enable_msix, lpfc_sli4_enable_msix"

VECTORS: dict[str, tuple[Kind, ...]] = {
    "nvme": (
        Kind(r"nvme\d+q0", Role.ADMIN, False, _NVME),
        Kind(r"nvme\d+q\d+", Role.DATA, True, _NVME),
    ),
    "virtio_scsi": (
        Kind(r"virtio\d+-(config|control|event)", Role.ADMIN, False, _VIRTIO),
        Kind(r"virtio\d+-request", Role.DATA, True, _VIRTIO),
        # Too few vectors for one each: the queues share one, which is not managed.
        Kind(r"virtio\d+-virtqueues", Role.DATA, False, _VIRTIO),
    ),
    "virtio_blk": (
        Kind(r"virtio\d+-config", Role.ADMIN, False, _VIRTIO),
        Kind(r"virtio\d+-req\.\d+", Role.DATA, True, _VIRTIO),
        Kind(r"virtio\d+-virtqueues", Role.DATA, False, _VIRTIO),
    ),
    "vmw_pvscsi": (
        Kind(r"vmw_pvscsi", Role.DATA, False, "drivers/scsi/vmw_pvscsi.c: pvscsi_probe"),
    ),
    "ahci": (Kind(r"ahci.*", Role.DATA, False, "drivers/ata/ahci.c: ahci_init_irq"),),
    "mptsas": (
        Kind(r"ioc\d+", Role.DATA, False, "drivers/message/fusion/mptbase.c: mpt_do_ioc_recovery"),
    ),
    "mpi3mr": (
        Kind(r"mpi3mr\d+-msix0", Role.ADMIN, False, _MPI3MR),
        Kind(r"mpi3mr\d+-msix\d+", Role.DATA, True, _MPI3MR),
    ),
    "mpt3sas": (Kind(r"mpt[23]sas\d+-msix\d+", Role.DATA, True, _MPT3SAS),),
    "megaraid_sas": (
        Kind(r"megasas", Role.DATA, False, _MEGARAID),  # the MFI series has one
        Kind(r"megasas\d+-msix0", Role.DATA, False, _MEGARAID),
        Kind(r"megasas\d+-msix\d+", Role.DATA, True, _MEGARAID),
    ),
    "smartpqi": (
        Kind(
            r"smartpqi",
            Role.DATA,
            True,
            "drivers/scsi/smartpqi/smartpqi_init.c: pqi_enable_msix_interrupts",
        ),
    ),
    "hpsa": (
        Kind(r"hpsa\d+-msix\d+", Role.DATA, True, "drivers/scsi/hpsa.c: hpsa_interrupt_mode"),
        Kind(r"hpsa\d+-msi", Role.DATA, False, "drivers/scsi/hpsa.c: hpsa_interrupt_mode"),
    ),
    "aacraid": (
        Kind(r"aac.*", Role.DATA, False, "drivers/scsi/aacraid/commsup.c: aac_acquire_irq"),
    ),
    "ipr": (Kind(r"(host\d+-\d+|ipr)", Role.DATA, False, "drivers/scsi/ipr.c: ipr_probe_ioa"),),
    "qla2xxx": (
        Kind(r"qla2xxx\d+_(default|atio_q)", Role.ADMIN, False, _QLA),
        Kind(r"qla2xxx\d+_rsp_q", Role.DATA, False, _QLA),
        Kind(r"qla2xxx\d+_qpair.*", Role.DATA, True, _QLA),
    ),
    # On SLI-4 the driver pins the vectors and forbids moving them as if they were managed.
    "lpfc": (
        Kind(r"lpfc:sp", Role.ADMIN, False, _LPFC),
        Kind(r"lpfc:fp", Role.DATA, False, _LPFC),
        Kind(r"lpfc:\d+", Role.DATA, True, _LPFC),
    ),
}

UNMANAGED_BY = {
    "mpt3sas": "smp_affinity_enable=0, which also leaves one hardware queue",
    "megaraid_sas": "smp_affinity_enable=0, which also leaves one hardware queue",
    "smartpqi": "disable_managed_interrupts=1",
    "lpfc": "lpfc_irq_chann",
}
"""The option of the driver's module that has its vectors left free, at a price."""


def expected(family: str, names: Iterable[str]) -> tuple[Role, bool]:
    """Return what a vector with these handlers is for, and whether the kernel is to have placed it.

    One that serves data beside something else serves data; it is managed only where all of its
    handlers' vectors are (a lone NVMe vector serves the admin queue as well, and is free).
    """
    kinds = [kind for name in names if (kind := _kind(family, name)) is not None]
    data = [kind for kind in kinds if kind.role is Role.DATA]
    if data:
        return Role.DATA, all(kind.managed for kind in kinds)
    return (Role.ADMIN if kinds else Role.UNKNOWN), False


def _kind(family: str, name: str) -> Kind | None:
    kinds = VECTORS.get(family, ())
    return next((kind for kind in kinds if re.fullmatch(kind.pattern, name)), None)
