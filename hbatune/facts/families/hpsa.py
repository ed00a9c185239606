"""HP Smart Array, up to Gen9. Product names by subsystem are from ``products`` in hpsa.c."""

from hbatune.facts import family

_HP = 0x103C
# Boards by their chip's PCI device and their subsystem device (hpsa.c: hpsa_pci_device_id).
_BOARDS = {
    0x323A: {0x3241: "P212", 0x3243: "P410", 0x3245: "P410i", 0x3247: "P411", 0x3249: "P812"},
    0x323B: {0x3350: "P222", 0x3351: "P420", 0x3352: "P421", 0x3353: "P822", 0x3354: "P420i"},
    0x3239: {0x21C0: "P440ar", 0x21C1: "P840ar", 0x21C2: "P440", 0x21C3: "P441"},
}

FAMILY = family.Family(
    name="hpsa",
    products=tuple(
        family.Product(f"HP Smart Array {name}", _HP, device, (_HP, board))
        for device, boards in _BOARDS.items()
        for board, name in boards.items()
    ),
    firmware=("firmware_revision",),
    # drivers/scsi/hpsa.c: hpsa_interrupt_mode
    interrupts=family.Interrupts(
        family.Vectors.MANAGED,
        (family.Handler(r"hpsa\d+-msix\d+", managed=True), family.Handler(r"hpsa\d+-msi")),
    ),
    # hpsa.c: hpsa_enter_performant_mode
    fixed_coalescing="10 µs or 4 commands, in its first I/O accelerator mode",
)
