/*
 * The state of an emulated SAS3416, and what its files know of each other.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef LAB_MPT3SAS_CONTROLLER_H
#define LAB_MPT3SAS_CONTROLLER_H

#include "tri_mode.h"
#include "qom/object.h"

#include "driver.h"

#define TYPE_MPT "mpt3sas"
OBJECT_DECLARE_SIMPLE_TYPE(Mpt, MPT)

enum {
    VECTORS = 128,   /* the most that this generation has, one reply queue each */
    MAX_PHYS = 16,
    FRAME = 128,     /* bytes of a request and of a reply */
    HANDSHAKE = 128, /* bytes of the longest message through the doorbell */
};

/* The controller itself has a handle that is no greater than its number of phys; the driver knows
 * it by that (mpt3sas_scsih.c: _scsih_get_sas_address). Drives follow, by their SCSI id. */
enum { CONTROLLER_HANDLE = 1, FIRST_HANDLE = 0x20 };

/* A message through the doorbell: a request word by word, and then its reply by halves of words. */
typedef struct Handshake {
    uint32_t request[HANDSHAKE / 4];
    uint16_t reply[HANDSHAKE / 2];
    unsigned expected, received; /* words of the request */
    unsigned length, sent;       /* halves of words of the reply */
    bool used;
} Handshake;

/* A request as its descriptor named it: what its answer needs. */
typedef struct Request {
    uint16_t smid;    /* which frame; 0 for what nobody asked for */
    uint8_t vector;   /* which reply queue */
} Request;

typedef struct ReplyQueue {
    uint64_t base;
    uint32_t index;
} ReplyQueue;

struct Mpt {
    PCIDevice pci;
    Drives drives;
    MemoryRegion mmio;
    uint32_t state;            /* MPI2_IOC_STATE_... */
    uint32_t interrupt_status, diagnostic;
    uint32_t key;              /* words of the unlock sequence that the driver has written so far */
    uint32_t event_masks[MPI2_EVENT_NOTIFY_EVENTMASK_WORDS];
    bool ports_enabled;
    Handshake handshake;

    /* Where the driver keeps its messages: IOC_INIT. */
    uint64_t frames, replies_high, sense_high, reply_free;
    uint32_t frame_size, reply_free_size, reply_free_index, reply_free_host_index;
    uint32_t reply_queues, reply_queue_size;
    ReplyQueue reply[VECTORS];

    /* Properties of the card. */
    uint32_t vectors, max_requests, phys, mdts;
    uint64_t sas_address;
    uint32_t own_timeout, own_depth; /* the firmware's own coalescing, back after a reset */

    /* What a test may change while the guest runs, see README.md. */
    uint32_t fault; /* and drives.full_at */
    uint32_t depth_sas, depth_sata, depth_nvme;

    /* Coalescing as it is, what a test makes of its page (PAGE_...), and the requests for it. */
    Mpi2IOCPage1_t coalescing;
    uint32_t page, page_requests;
};

/* controller.c */
SCSIDevice *mpt_drive(Mpt *s, unsigned handle);

/* registers.c */
extern const MemoryRegionOps mpt_registers;
bool mpt_runs(Mpt *s);
void mpt_stop(Mpt *s);
void mpt_power_on(Mpt *s);

/* queues.c */
void mpt_start_queues(Mpt *s, const Mpi2IOCInitRequest_t *r);
void mpt_take_request(Mpt *s, uint64_t descriptor);
void mpt_post_success(Mpt *s, Request from);
void mpt_post_frame(Mpt *s, Request from, void *frame, size_t size);

/* administration.c */
size_t mpt_handshake(Mpt *s, const void *request, void *reply);
void mpt_admin_request(Mpt *s, Request from, void *frame);

/* scsi.c */
void mpt_scsi_io(Mpt *s, Request from, const Mpi25SCSIIORequest_t *io);

/* events.c */
void mpt_announce_all(Mpt *s);
void mpt_announce(Mpt *s, SCSIDevice *d);
void mpt_announce_gone(Mpt *s, SCSIDevice *d);

/* pages.c */
uint8_t mpt_link_rate(SCSIDevice *d);
size_t mpt_config_page(Mpt *s, const Mpi2ConfigRequest_t *r, void *page);

#endif
