/*
 * QEMU's drives as the firmware of a tri-mode controller sees them, and its PCIe link.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "tri_mode.h"
#include "qapi/error.h"
#include "scsi/constants.h"

enum {
    ATA_INFORMATION = 0x89,
    LINK_MASK = PCI_EXP_LNKSTA_CLS | PCI_EXP_LNKSTA_NLW,
};

SCSIDevice *tri_drive(Drives *drives, unsigned target)
{
    SCSIDevice *d = target < TARGETS ? scsi_device_find(&drives->bus, 0, target, 0) : NULL;

    return d && d->id == target ? d : NULL;
}

/* The logical unit of a drive, or the first one, which answers for those there are not. */
SCSIDevice *tri_unit(Drives *drives, SCSIDevice *drive, unsigned lun)
{
    return scsi_device_find(&drives->bus, 0, drive->id, lun) ?: drive;
}

/* The INQUIRY vendor decides what the firmware calls a drive, as it does with real ones. */
DriveKind tri_kind(SCSIDevice *d)
{
    static const struct {
        const char *vendor;
        DriveKind kind;
    } kinds[] = {
        { "NVMe", DRIVE_NVME },
        { "ATA", DRIVE_SATA },
        { "BROADCOM", DRIVE_VOLUME },
    };
    g_autofree char *vendor = object_property_get_str(OBJECT(d), "vendor", NULL);

    for (unsigned i = 0; vendor && i < ARRAY_SIZE(kinds); i++) {
        if (!strcmp(vendor, kinds[i].vendor)) {
            return kinds[i].kind;
        }
    }
    return DRIVE_SAS;
}

/* A SAS or SATA drive sits on the phy of its number; all others have none. */
bool tri_has_phy(SCSIDevice *d)
{
    return tri_kind(d) == DRIVE_SAS || tri_kind(d) == DRIVE_SATA;
}

/* Reset all units of a drive; what they were doing is cancelled. */
void tri_reset(Drives *drives, SCSIDevice *drive)
{
    BusChild *child;

    QTAILQ_FOREACH(child, &drives->bus.qbus.children, sibling) {
        if (SCSI_DEVICE(child->child)->id == drive->id) {
            device_cold_reset(child->child);
        }
    }
}

/*
 * What the translation layer of a controller says of a SATA drive, and QEMU's scsi-hd does not:
 * the list of vital product data with the page of ATA information, and that page, in which the
 * layer names itself by 28 characters. Return its size, 0 for a command that the drive answers.
 */
size_t tri_translated(SCSIDevice *d, const char *layer, const uint8_t *cdb, uint8_t *page)
{
    static const uint8_t pages[] = {
        0x00, 0x00, 0, 7, 0x00, 0x80, 0x83, ATA_INFORMATION, 0xb0, 0xb1, 0xb2,
    };
    enum { SIGNATURE = 36, COMMAND = 56, IDENTIFY = 60 };
    enum { WORD_QUEUE_DEPTH = 75, WORD_SATA = 76, WORD_ROTATION = 217 };
    uint8_t *identify = page + IDENTIFY;

    if (cdb[0] != INQUIRY || !(cdb[1] & 1) || tri_kind(d) != DRIVE_SATA) {
        return 0;
    }
    if (cdb[2] == 0) {
        memcpy(page, pages, sizeof(pages));
        return sizeof(pages);
    }
    if (cdb[2] != ATA_INFORMATION) {
        return 0;
    }
    page[1] = ATA_INFORMATION;
    stw_be_p(page + 2, TRANSLATED_MAX - 4);
    memcpy(page + 8, layer, 28);
    page[SIGNATURE] = 0x34; /* a register FIS from the device */
    page[COMMAND] = 0xec;   /* IDENTIFY DEVICE, whose words follow */
    stw_le_p(identify + 2 * WORD_QUEUE_DEPTH, 31);
    stw_le_p(identify + 2 * WORD_SATA, 0x010e); /* NCQ, and 1.5, 3 and 6 Gb/s */
    stw_le_p(identify + 2 * WORD_ROTATION, 7200);
    return TRANSLATED_MAX;
}

/* Have the link at this rate, which the device could do with any rate up to it. */
void tri_set_link(PCIDevice *pci, LinkRate rate, unsigned lanes)
{
    uint8_t *express = pci->config + pci->exp.exp_cap;
    uint32_t capable = pci_get_long(express + PCI_EXP_LNKCAP);
    uint16_t now = pci_get_word(express + PCI_EXP_LNKSTA);
    uint16_t link = lanes << 4 | rate;

    pci_set_long(express + PCI_EXP_LNKCAP, (capable & ~LINK_MASK) | link);
    pci_set_word(express + PCI_EXP_LNKSTA, (now & ~LINK_MASK) | link);
    pci_set_long(express + PCI_EXP_LNKCAP2, (2u << rate) - 2);
    pci_set_word(express + PCI_EXP_LNKCTL2, rate);
}
