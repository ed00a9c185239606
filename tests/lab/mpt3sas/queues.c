/*
 * The queues in the driver's memory: requests are fetched from its frames, replies are posted.
 *
 * A reply queue has room for every request and every event that can be under way at a time
 * (mpt3sas_base.c: _base_allocate_memory_pools), so that how far the driver has read one is of no
 * interest here.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "controller.h"
#include "hw/pci/msix.h"

void mpt_start_queues(Mpt *s, const Mpi2IOCInitRequest_t *r)
{
    bool scattered = r->MsgFlags & MPI2_IOCINIT_MSGFLAG_RDPQ_ARRAY_MODE;
    uint64_t base = r->ReplyDescriptorPostQueueAddress;

    s->frames = r->SystemRequestFrameBaseAddress;
    s->frame_size = r->SystemRequestFrameSize * 4;
    s->replies_high = (uint64_t)r->SystemReplyAddressHigh << 32;
    s->sense_high = (uint64_t)r->SenseBufferAddressHigh << 32;
    s->reply_free = r->ReplyFreeQueueAddress;
    s->reply_free_size = r->ReplyFreeQueueDepth;
    s->reply_free_index = s->reply_free_host_index = 0;
    s->reply_queue_size = r->ReplyDescriptorPostQueueDepth;
    s->reply_queues = MIN(MAX(r->HostMSIxVectors, 1), VECTORS);
    for (unsigned i = 0; i < s->reply_queues; i++) {
        Mpi2IOCInitRDPQArrayEntry entry;

        s->reply[i] = (ReplyQueue) { .base = base + i * s->reply_queue_size * sizeof(uint64_t) };
        if (scattered) {
            pci_dma_read(&s->pci, base + i * sizeof(entry), &entry, sizeof(entry));
            s->reply[i].base = entry.RDPQBaseAddress;
        }
    }
}

static void post(Mpt *s, Request from, Mpi2ReplyDescriptorsUnion_t descriptor)
{
    unsigned vector = from.vector < s->reply_queues ? from.vector : 0;
    ReplyQueue *q = &s->reply[vector];
    uint64_t word;

    descriptor.Default.MSIxIndex = vector;
    descriptor.Default.DescriptorTypeDependent1 = from.smid;
    memcpy(&word, &descriptor, sizeof(word));
    /* In one go: a type that is not UNUSED tells the driver that the rest is there. */
    stq_le_pci_dma(&s->pci, q->base + q->index * sizeof(word), word, MEMTXATTRS_UNSPECIFIED);
    q->index = (q->index + 1) % s->reply_queue_size;
    msix_notify(&s->pci, vector);
}

/* SCSI I/O went well, and there is no more to say. */
void mpt_post_success(Mpt *s, Request from)
{
    post(s, from, (Mpi2ReplyDescriptorsUnion_t) {
        .SCSIIOSuccess.ReplyFlags = MPI2_RPY_DESCRIPT_FLAGS_SCSI_IO_SUCCESS,
    });
}

/* Take the address of the next free buffer that the driver has posted; false for none. */
static bool take_free(Mpt *s, uint32_t *low)
{
    if (!s->reply_free_size || s->reply_free_index == s->reply_free_host_index) {
        return false;
    }
    pci_dma_read(&s->pci, s->reply_free + s->reply_free_index * sizeof(*low), low, sizeof(*low));
    s->reply_free_index = (s->reply_free_index + 1) % s->reply_free_size;
    return true;
}

/* Post a reply that does not fit in a descriptor: it goes into a buffer of the driver's. There is
 * one for every request and 64 for events; an event that finds none is lost. */
void mpt_post_frame(Mpt *s, Request from, void *frame, size_t size)
{
    MPI2DefaultReply_t *reply = frame;
    uint32_t low;

    if (!take_free(s, &low)) {
        return;
    }
    reply->MsgLength = size / 4;
    pci_dma_write(&s->pci, s->replies_high | low, frame, size);
    post(s, from, (Mpi2ReplyDescriptorsUnion_t) {
        .AddressReply = {
            .ReplyFlags = MPI2_RPY_DESCRIPT_FLAGS_ADDRESS_REPLY,
            .ReplyFrameAddress = low,
        },
    });
}

/* Serve the request that a descriptor names. */
void mpt_take_request(Mpt *s, uint64_t descriptor)
{
    uint64_t frame[FRAME / sizeof(uint64_t)] = { 0 };
    const MPI2RequestHeader_t *head = (void *)frame;
    Mpi2RequestDescriptorUnion_t d;
    Request from;

    if (!mpt_runs(s)) {
        return;
    }
    memcpy(&d, &descriptor, sizeof(d));
    from = (Request) { .smid = d.Default.SMID, .vector = d.Default.MSIxIndex };
    pci_dma_read(&s->pci, s->frames + (uint64_t)from.smid * s->frame_size, frame,
                 MIN(s->frame_size, FRAME));
    if (head->Function == MPI2_FUNCTION_SCSI_IO_REQUEST) {
        mpt_scsi_io(s, from, (void *)frame);
    } else {
        mpt_admin_request(s, from, frame);
    }
}
