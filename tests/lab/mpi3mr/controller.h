/*
 * The state of an emulated SAS4116, and what its files know of each other.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef LAB_MPI3MR_CONTROLLER_H
#define LAB_MPI3MR_CONTROLLER_H

#include "tri_mode.h"
#include "qom/object.h"

#include "driver.h"

#define TYPE_MPI3 "mpi3mr"
OBJECT_DECLARE_SIMPLE_TYPE(Mpi3, MPI3)

enum {
    QUEUE_PAIRS = 128,  /* the most that the driver's doorbells leave room for */
    MAX_PHYS = 32,
    FRAME = 128,        /* bytes of a request and of a reply */
    REPLY_DESCRIPTOR = 16,
    QUEUE_SEGMENT = 4096,
    REGISTERS = MPI3_SYSIF_DEVICE_ASSIGNED_REGS_OFFSET,
};

/* Handles by which the firmware names the controller itself and the drives, by their SCSI id. */
enum { CONTROLLER_HANDLE = 1, FIRST_HANDLE = 0x10 };

/* A ring in the driver's memory: contiguous, or a list of segments of 4 KiB. */
typedef struct Ring {
    uint64_t base;
    uint16_t id, size, index, element;
    bool segmented;
} Ring;

typedef struct ReplyQueue {
    Ring ring;
    uint16_t phase;       /* the bit that marks descriptors of this turn of the ring as new */
    uint16_t vector;
    uint16_t outstanding; /* requests that will need a descriptor here */
    bool interrupts;      /* not for a queue that the driver polls */
} ReplyQueue;

typedef struct RequestQueue {
    Ring ring;
    uint16_t reply;       /* the id of its reply queue */
} RequestQueue;

struct Mpi3 {
    PCIDevice pci;
    Drives drives;
    MemoryRegion mmio;
    QEMUBH *work;
    uint32_t registers[REGISTERS / 4];
    uint32_t key;         /* words of the unlock sequence that the driver has written so far */
    bool events, ports_enabled;
    RequestQueue admin, request[QUEUE_PAIRS + 1]; /* by id; 0 is not used */
    ReplyQueue admin_reply, reply[QUEUE_PAIRS + 1];
    Ring reply_free, sense_free;

    /* Properties of the card. */
    uint32_t vectors, max_requests, phys, queue_pairs, mdts;
    uint64_t sas_address;
    uint32_t own_timeout, own_depth; /* the firmware's own coalescing, back after a reset */

    /* What a test may change while the guest runs, see README.md. */
    uint32_t fault; /* and drives.full_at */
    uint32_t depth_sas, depth_sata, depth_nvme, depth_volume;
    bool multipath;

    /* Coalescing as it is, what a test makes of its page (PAGE_...), and the requests for it. */
    struct mpi3_ioc_page1 coalescing;
    uint32_t page, page_requests;
};

/* controller.c */
SCSIDevice *mpi3_drive(Mpi3 *s, unsigned handle);

/* registers.c */
extern const MemoryRegionOps mpi3_registers;
uint32_t *mpi3_register(Mpi3 *s, unsigned offset);
bool mpi3_ready(Mpi3 *s);
void mpi3_power_on(Mpi3 *s);
void mpi3_stop(Mpi3 *s);

/* queues.c */
void mpi3_work(void *opaque);
uint64_t mpi3_take_free(Mpi3 *s, Ring *free, unsigned host_index);
void mpi3_post(Mpi3 *s, ReplyQueue *q, RequestQueue *from, union mpi3_reply_descriptors_union d);
void mpi3_post_status(Mpi3 *s, ReplyQueue *q, RequestQueue *from, uint16_t tag, uint16_t status);
void mpi3_post_frame(Mpi3 *s, ReplyQueue *q, RequestQueue *from, void *frame, size_t size);

/* administration.c */
void mpi3_admin_request(Mpi3 *s, void *frame);

/* scsi.c */
void mpi3_scsi_io(Mpi3 *s, RequestQueue *from, struct mpi3_scsi_io_request *io);

/* events.c */
void mpi3_announce(Mpi3 *s, SCSIDevice *d);
void mpi3_announce_gone(Mpi3 *s, SCSIDevice *d);
void mpi3_announce_changed(Mpi3 *s, SCSIDevice *d);

/* pages.c */
uint64_t mpi3_wwid(Mpi3 *s, SCSIDevice *d);
uint8_t mpi3_link_rate(SCSIDevice *d);
void mpi3_device_page(Mpi3 *s, SCSIDevice *d, struct mpi3_device_page0 *page);
size_t mpi3_config_page(Mpi3 *s, const struct mpi3_config_request *r, void *page);

#endif
