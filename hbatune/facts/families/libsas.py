"""SAS adapters with drivers based on libsas: Intel's chipsets, Marvell, PMC-Sierra, Adaptec.

They have the SAS transport class. libata handles SATA drives, so NCQ gives their depth.
"""

from hbatune.facts import family
from hbatune.facts.model import Endpoint, Pci, Protocol

_INITIAL_DEPTH = 256  # drivers/scsi/libsas/sas_scsi_host.c: SAS_DEF_QD
_HISILICON = "hisi_sas_v3_hw"
_HISILICON_DEPTH = 64  # drivers/scsi/hisi_sas/hisi_sas_main.c: hisi_sas_slave_configure


def _get_default_depth(
    endpoint: Endpoint, parameters: family.Parameters, pci: Pci | None
) -> int | None:
    """Return the initial depth: of a SATA drive libata's, of others the library's or driver's."""
    if endpoint.protocol is Protocol.SATA:
        return family.read_ncq_depth(endpoint, parameters, pci)
    host = endpoint.host
    return _HISILICON_DEPTH if host and host.proc_name == _HISILICON else _INITIAL_DEPTH


FAMILY = family.Family(
    name="libsas",
    drivers=frozenset({"aic94xx", "hisi_sas_v3_hw", "isci", "mvsas", "pm80xx"}),
    depth_cap=family.limit_ncq_depth,
    depth_default=_get_default_depth,
    # The other drivers' vectors are unknown and are not changed.
    # drivers/scsi/isci/init.c: isci_setup_interrupts
    interrupts=family.Interrupts(family.Vectors.FREE, (family.Handler(r"isci-msix"),)),
)
