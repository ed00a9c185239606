/*
 * What the models of tri-mode controllers have in common: QEMU's drives as their firmware sees them.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef LAB_TRI_MODE_H
#define LAB_TRI_MODE_H

#include "command.h"

enum {
    PCI_CLASS_SAS = 0x0107,
    TRANSLATED_MAX = 572, /* bytes of the longest answer of the translation layer */
};

typedef enum DriveKind { DRIVE_SAS, DRIVE_SATA, DRIVE_NVME, DRIVE_VOLUME } DriveKind;

/* Rates of a PCIe link, as its status register has them. */
typedef enum LinkRate { LINK_8GT = 3, LINK_16GT = 4 } LinkRate;

SCSIDevice *tri_drive(Drives *drives, unsigned target);
SCSIDevice *tri_unit(Drives *drives, SCSIDevice *drive, unsigned lun);
DriveKind tri_kind(SCSIDevice *d);
bool tri_has_phy(SCSIDevice *d);
void tri_reset(Drives *drives, SCSIDevice *drive);
size_t tri_translated(SCSIDevice *d, const char *layer, const uint8_t *cdb, uint8_t *page);
void tri_set_link(PCIDevice *pci, LinkRate rate, unsigned lanes);

/* What a test makes of the page of interrupt coalescing (IOC page 1). */
enum { PAGE_CHANGEABLE, PAGE_FIXED, PAGE_OTHER_VERSION, PAGE_SILENT };

#endif
