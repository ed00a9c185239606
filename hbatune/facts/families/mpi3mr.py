"""Broadcom 9600: SAS4116 and SAS5116, as plain HBA (eHBA) and as MegaRAID.

Device ids are from mpi3mr_pci_id_table (mpi3mr_os.c). The driver contains no product names. The
names by subsystem are from the PCI id database of 2023-04-10.
"""

from hbatune.facts import family
from hbatune.facts.model import Protocol, Role

_LSI = 0x1000
_SAS4116 = 0x00A5
_CARDS = {
    0x4640: "eHBA 9600W-16i",
    0x4650: "eHBA 9600W-16e",
    0x4660: "eHBA 9600-24i",
    0x4670: "eHBA 9600-16i",
    0x4680: "eHBA 9600-16e",
    0x46D0: "eHBA 9600-8i8e",
}
_DOCUMENTS = {0x4660: "05-50111-01 (D0)"}
_VOLUMES = 1  # mpi3mr_os.c: the channel of volumes; NVMe drives on it report NVMe


def _count_polled(parameters: family.Parameters, vectors: int) -> int:
    """Return ``poll_queues``, or 0 if no queue would be left for interrupts.

    mpi3mr_fw.c: mpi3mr_calc_poll_queues, which counts the admin vector as well.
    """
    requested = family.get_number(parameters, "poll_queues")
    return requested if requested < vectors - 1 else 0


FAMILY = family.Family(
    name="mpi3mr",
    products=(
        *(
            family.Product(f"Broadcom {name}", _LSI, _SAS4116, (_LSI, card), _DOCUMENTS.get(card))
            for card, name in _CARDS.items()
        ),
        family.Product("Broadcom SAS4116 (9600 series)", _LSI, _SAS4116),
        family.Product("Broadcom SAS5116", _LSI, 0x00B3),
        family.Product("Broadcom SAS5116", _LSI, 0x00B5),
    ),
    firmware=("version_fw",),
    protocol=family.classify_by_channel({_VOLUMES: Protocol.VOLUME}),
    depth_ramps=True,
    # mpi3mr_os.c: mpi3mr_update_sdev, which mpi3mr_refresh_tgtdevs and mpi3mr_devinfochg_evt_bh
    # call; it also sets the largest request of NVMe drives.
    resets=("queue_depth", "max_sectors_kb"),
    shares_tags=lambda parameters, queues: True,
    credits=("fw_queue_depth",),
    inspected=("adp_state",),
    # drivers/scsi/mpi3mr/mpi3mr_fw.c: mpi3mr_setup_isr
    interrupts=family.Interrupts(
        family.Vectors.MIXED,
        (
            family.Handler(r"mpi3mr\d+-msix0", Role.ADMIN),
            family.Handler(r"mpi3mr\d+-msix\d+", managed=True),
        ),
        polled=_count_polled,
    ),
    coalescing=(
        # mpi/mpi30_cnfg.h: mpi3_ioc_page1
        "firmware_coalescing",
    ),
    options=(
        family.Option("poll_queues", family.Purpose.VECTORS, 1, 126),
        # In newer drivers: 0 keeps completions in the hard interrupt.
        family.Option("threaded_isr_poll", family.Purpose.COMPLETION, 0, 1, optional=True),
    ),
)
