/*
 * The queues in the driver's memory: requests are fetched from them, replies are posted to them.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "controller.h"
#include "hw/pci/msix.h"

static uint64_t element_address(Mpi3 *s, const Ring *r, unsigned index)
{
    unsigned in_a_segment = QUEUE_SEGMENT / r->element;
    uint64_t segment;

    if (!r->segmented) {
        return r->base + index * r->element;
    }
    pci_dma_read(&s->pci, r->base + index / in_a_segment * sizeof(segment), &segment,
                 sizeof(segment));
    return segment + index % in_a_segment * r->element;
}

/* The descriptors that the driver has not read yet. */
static unsigned unread(Mpi3 *s, ReplyQueue *q)
{
    unsigned doorbell = q->ring.id ? MPI3_SYSIF_OPER_REPLY_Q_N_CI_OFFSET(q->ring.id)
                                   : MPI3_SYSIF_ADMIN_REPLY_Q_CI_OFFSET;
    unsigned consumer = *mpi3_register(s, doorbell) & 0xffff;

    return (q->ring.index + q->ring.size - consumer) % q->ring.size;
}

void mpi3_post(Mpi3 *s, ReplyQueue *q, RequestQueue *from, union mpi3_reply_descriptors_union d)
{
    uint64_t at = element_address(s, &q->ring, q->ring.index);
    size_t before_flags = offsetof(struct mpi3_default_reply_descriptor, reply_flags);

    d.default_reply.request_queue_ci = from->ring.index;
    d.default_reply.request_queue_id = from->ring.id;
    d.default_reply.reply_flags |= q->phase;
    pci_dma_write(&s->pci, at, &d, before_flags);
    smp_wmb(); /* the phase bit tells the driver that the rest is there */
    pci_dma_write(&s->pci, at + before_flags, &d.default_reply.reply_flags,
                  sizeof(d.default_reply.reply_flags));
    if (++q->ring.index == q->ring.size) {
        q->ring.index = 0;
        q->phase ^= MPI3_REPLY_DESCRIPT_FLAGS_PHASE_MASK;
    }
    if (q->interrupts) {
        msix_notify(&s->pci, q->vector);
    }
}

void mpi3_post_status(Mpi3 *s, ReplyQueue *q, RequestQueue *from, uint16_t tag, uint16_t status)
{
    union mpi3_reply_descriptors_union d = {
        .status = {
            .ioc_status = status,
            .host_tag = tag,
            .reply_flags = MPI3_REPLY_DESCRIPT_FLAGS_TYPE_STATUS,
        },
    };

    mpi3_post(s, q, from, d);
}

/* Take the address of the next free buffer that the driver has posted; 0 if there is none. */
uint64_t mpi3_take_free(Mpi3 *s, Ring *free, unsigned host_index)
{
    uint64_t address = 0;

    if (free->size && free->index != *mpi3_register(s, host_index)) {
        pci_dma_read(&s->pci, element_address(s, free, free->index), &address, sizeof(address));
        free->index = (free->index + 1) % free->size;
    }
    return address;
}

/* Post a reply that does not fit in a descriptor: it goes into a buffer of the driver's. */
void mpi3_post_frame(Mpi3 *s, ReplyQueue *q, RequestQueue *from, void *frame, size_t size)
{
    struct mpi3_default_reply *reply = frame;
    uint64_t address =
        mpi3_take_free(s, &s->reply_free, MPI3_SYSIF_REPLY_FREE_HOST_INDEX_OFFSET);
    union mpi3_reply_descriptors_union d = {
        .address_reply = {
            .reply_frame_address = address,
            .reply_flags = MPI3_REPLY_DESCRIPT_FLAGS_TYPE_ADDRESS_REPLY,
        },
    };

    if (!address) {
        mpi3_post_status(s, q, from, reply->host_tag, MPI3_IOCSTATUS_BUSY);
        return;
    }
    pci_dma_write(&s->pci, address, frame, size);
    mpi3_post(s, q, from, d);
}

static bool fetch(Mpi3 *s, RequestQueue *q, unsigned doorbell, void *frame)
{
    unsigned producer = *mpi3_register(s, doorbell) & 0xffff;

    if (!q->ring.size || q->ring.index == producer || producer >= q->ring.size) {
        return false;
    }
    pci_dma_read(&s->pci, element_address(s, &q->ring, q->ring.index), frame, FRAME);
    q->ring.index = (q->ring.index + 1) % q->ring.size;
    return true;
}

static bool runs(Mpi3 *s)
{
    return mpi3_ready(s) && !s->fault;
}

/* Whether the driver left room for one more reply: none in flight may find its queue full. */
static bool has_room(Mpi3 *s, ReplyQueue *q)
{
    return q->ring.size && q->outstanding + unread(s, q) < q->ring.size - 1;
}

/* Serve all that waits behind the doorbells; runs in QEMU's main loop. */
void mpi3_work(void *opaque)
{
    Mpi3 *s = opaque;
    uint64_t frame[FRAME / sizeof(uint64_t)];
    struct mpi3_scsi_io_request *io = (void *)frame;

    while (runs(s) && fetch(s, &s->admin, MPI3_SYSIF_ADMIN_REQ_Q_PI_OFFSET, frame)) {
        mpi3_admin_request(s, frame);
    }
    for (unsigned id = 1; id <= s->queue_pairs; id++) {
        RequestQueue *q = &s->request[id];
        ReplyQueue *reply = &s->reply[q->reply];

        while (runs(s) && has_room(s, reply) &&
               fetch(s, q, MPI3_SYSIF_OPER_REQ_Q_N_PI_OFFSET(id), frame)) {
            if (io->function == MPI3_FUNCTION_SCSI_IO) {
                mpi3_scsi_io(s, q, io);
            } else {
                mpi3_post_status(s, reply, q, io->host_tag, MPI3_IOCSTATUS_INVALID_FUNCTION);
            }
        }
    }
}
