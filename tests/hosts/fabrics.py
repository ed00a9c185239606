"""The machines of the families behind a fabric: Fibre Channel and iSCSI.

Figures with a source are read there; all others are made up (``families`` says more).
"""

from tests.hosts.parts import GEN3, parameters, vectors
from tests.hosts.tree import Described, Disk, Function, Host, Lun, Value


def qla2xxx() -> Described:
    """Two LUNs of an array: depth 64 is ql2xmaxqdepth; the queue pairs' vectors are managed."""
    luns = tuple(
        Lun(
            f"0:0:0:{number}",
            Disk(f"sd{'ab'[number]}", scheduler="[none] mq-deadline", tags=2038),
            vendor="DGC",
            model="VRAID",
            port="rport-0:0-0",
        )
        for number in range(2)
    )
    attributes: dict[str, Value] = {
        "model_name": "QLE2742",
        "fw_version": "9.08.02 (d0d5)",
        "driver_version": "10.02.07.900-k",
        "zio": "Disabled",
        "zio_timer": "200 us",
    }
    host = Host(0, "qla2xxx", 2038, 3, hw_queues=8, luns=luns, attributes=attributes)
    function = Function(
        "0000:01:00.0",
        "qla2xxx",
        ("0x1077", "0x2261", "0x1077", "0x02ac"),
        "0x0c0400",
        link=GEN3,
        hosts=(host,),
        vectors=vectors(("qla2xxx0_default", "qla2xxx0_rsp_q"), ("qla2xxx0_qpair_multiq_0",)),
        parameters=parameters("qla2xxx"),
    )
    return Described((function,))


def lpfc() -> Described:
    """A card of today, SLI-4: depth 64 is lpfc_lun_queue_depth; its vectors refuse to be moved."""
    lun = Lun(
        "0:0:0:0",
        Disk("sda", scheduler="[none] mq-deadline", tags=8000),
        vendor="IBM",
        model="2145",
        port="rport-0:0-0",
    )
    attributes: dict[str, Value] = {
        "modelname": "LPe32002-M2",
        "fwrev": "14.2.455.11, sli-4:2:c",
        "lpfc_drvr_version": "Emulex LightPulse Fibre Channel SCSI driver 14.2.0.6",
        "lpfc_fcp_imax": "0",
        "lpfc_cr_delay": "0",
        "lpfc_cr_count": "1",
    }
    host = Host(0, "lpfc", 8000, 64, hw_queues=4, luns=(lun,), attributes=attributes)
    function = Function(
        "0000:01:00.0",
        "lpfc",
        ("0x10df", "0xe300", "0x10df", "0xe300"),
        "0x0c0400",
        link=GEN3,
        hosts=(host,),
        vectors=vectors((), ("lpfc:0", "lpfc:1")),
        parameters=parameters("lpfc"),
    )
    return Described((function,))


def iscsi_tcp() -> Described:
    """A session host on no PCI function; 32 is open-iscsi's default of queue_depth."""
    lun = Lun("0:0:0:0", Disk("sda", tags=113), "LIO-ORG", queue_depth="32", port="session1")
    host = Host(0, "iscsi_tcp", 113, 32, luns=(lun,))
    return Described(bare=(("platform", host),), modules={"iscsi_tcp": parameters("iscsi_tcp")})
