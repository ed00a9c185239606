/*
 * The state of an emulated SIS-64 RAID adapter, and what its files know of each other.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef LAB_IPR_CONTROLLER_H
#define LAB_IPR_CONTROLLER_H

#include "tri_mode.h"
#include "qom/object.h"

#include "driver.h"

#define TYPE_IPR "ipr"
OBJECT_DECLARE_SIMPLE_TYPE(Ipr, IPR)

enum {
    VECTORS = IPR_MAX_MSIX_VECTORS,
    QUEUES = IPR_MAX_HRRQ_NUM,
    PARKED = IPR_MAX_HCAMS, /* requests that the driver leaves with the card, for news */
};

/* Registers have two halves of 32 bits; the half at the lower address is the upper one. */
typedef struct Register {
    uint32_t upper, lower;
} Register;

/* A command as the driver wrote it, and where it did. */
typedef struct Request {
    struct ipr_ioarcb block;
    uint64_t address;
    uint32_t generation; /* of the queues that its answer belongs to */
} Request;

/* A queue of answers in the driver's memory. */
typedef struct AnswerQueue {
    uint64_t base;
    uint32_t size, index; /* entries */
    bool toggle;
} AnswerQueue;

struct Ipr {
    PCIDevice pci;
    Drives drives;
    MemoryRegion mmio;
    Register interrupts, masks;
    uint32_t processor;      /* what the driver asked of the card's processor */
    uint32_t feedback;       /* how far the card has come since its reset */
    AnswerQueue queue[QUEUES];
    Request parked[PARKED];
    unsigned parked_count;
    bool operational;        /* it takes requests */

    /* Properties of the card. */
    uint32_t ccin;
    bool cache;
};

/* registers.c */
extern const MemoryRegionOps ipr_registers;
void ipr_stop(Ipr *s);
void ipr_check_unit(Ipr *s);

/* queues.c */
void ipr_identify_queue(Ipr *s, const uint8_t *cdb);
void ipr_take_request(Ipr *s, uint64_t address);
bool ipr_memory(Ipr *s, const Request *r, QEMUSGList *sg);
void ipr_answer(Ipr *s, const Request *r, uint32_t ioasc, uint32_t left, const Answer *sense);

/* administration.c */
void ipr_administer(Ipr *s, const Request *r);
void ipr_answer_parked(Ipr *s, uint8_t kind, void *news, size_t size);

/* resources.c */
bool ipr_is_volume(SCSIDevice *d);
SCSIDevice *ipr_drive(Ipr *s, uint32_t handle);
bool ipr_is_own(Ipr *s, uint32_t handle);
size_t ipr_config_table(Ipr *s, struct ipr_config_table64 **table);
void ipr_standard_inquiry(Ipr *s, uint32_t handle, struct ipr_std_inq_data *data);
void ipr_tell(Ipr *s, SCSIDevice *d, bool gone);

/* scsi.c */
void ipr_scsi_io(Ipr *s, const Request *r, SCSIDevice *d);

#endif
