/*
 * The drives of a controller, and commands on their way to them.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef LAB_COMMAND_H
#define LAB_COMMAND_H

#include "qemu/osdep.h"
#include "hw/pci/pci_device.h"
#include "hw/scsi/scsi.h"

enum { TARGETS = 255 }; /* SCSI ids of drives, 0 to 254 */

typedef struct Drives {
    SCSIBus bus;
    uint32_t generation;    /* counts resets: commands of an earlier one are not answered */
    uint32_t busy[TARGETS]; /* commands in flight, by drive */
    uint32_t full_at;       /* with so many a drive says TASK SET FULL; 0 for never */
} Drives;

/* What became of a command. */
typedef struct Answer {
    uint32_t transferred;
    bool cancelled;         /* there is no SCSI status */
    uint8_t status;
    uint8_t sense_size;     /* 0 for none */
    const uint8_t *sense;
} Answer;

/* The beginning of what a controller has of each command, allocated with g_new0. */
typedef struct Command {
    Drives *drives;
    uint32_t generation, length;
    QEMUSGList sg;          /* the driver's memory for it */
    void (*answer)(struct Command *c, const Answer *a);
} Command;

void drives_init(Drives *drives, DeviceState *controller);
void drives_reset(Drives *drives);
void command_init(Command *c, Drives *drives, PCIDevice *controller, uint32_t length);
void command_start(Command *c, SCSIDevice *d, unsigned lun, const uint8_t cdb[32],
                   const char *translation_layer);
void command_free(Command *c);

#endif
