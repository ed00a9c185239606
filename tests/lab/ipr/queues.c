/*
 * Requests from the driver's memory, and answers to its queues there.
 *
 * A queue has room for every request that is answered in it (ipr.c: ipr_alloc_cmd_blks), so that how
 * far the driver has read it is of no interest here.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "controller.h"
#include "hw/pci/msix.h"

enum {
    SIZE_BITS = 7,       /* of a request's address: how long the request is, of no interest here */
    SEGMENTS_MAX = 1024, /* of one command */
};

/* The driver names one of its queues (ipr.c: ipr_ioafp_identify_hrrq). */
void ipr_identify_queue(Ipr *s, const uint8_t *cdb)
{
    bool selects = cdb[1] & IPR_ID_HRRQ_SELE_ENABLE;
    unsigned which = selects ? cdb[9] : 0;

    if (which < QUEUES) {
        s->queue[which] = (AnswerQueue) {
            .base = (uint64_t)ldl_be_p(cdb + 10) << 32 | ldl_be_p(cdb + 2),
            .size = lduw_be_p(cdb + 7) / sizeof(__be32),
            .toggle = true,
        };
    }
}

/* Gather the memory of a request; false for a list that makes no sense. */
bool ipr_memory(Ipr *s, const Request *r, QEMUSGList *sg)
{
    uint64_t at = be64_to_cpu(r->block.u.sis64_addr_data.data_ioadl_addr);
    unsigned count = be32_to_cpu(r->block.ioadl_len) / sizeof(struct ipr_ioadl64_desc);
    uint64_t left = be32_to_cpu(r->block.data_transfer_length);

    if (count > SEGMENTS_MAX) {
        return false;
    }
    for (; count && left; count--, at += sizeof(struct ipr_ioadl64_desc)) {
        struct ipr_ioadl64_desc segment;
        uint64_t size;

        pci_dma_read(&s->pci, at, &segment, sizeof(segment));
        size = MIN(be32_to_cpu(segment.data_len), left);
        if (size) {
            qemu_sglist_add(sg, be64_to_cpu(segment.address), size);
        }
        left -= size;
    }
    return !left;
}

static void write_status(Ipr *s, const Request *r, uint32_t ioasc, uint32_t left,
                         const Answer *sense)
{
    uint64_t at = be64_to_cpu(r->block.u.sis64_addr_data.ioasa_host_pci_addr);
    struct ipr_ioasa64 status = {
        .hdr = {
            .ioasc = cpu_to_be32(ioasc),
            .ret_stat_len = cpu_to_be16(sizeof(status)),
            .avail_stat_len = cpu_to_be16(sizeof(status)),
            .residual_data_len = cpu_to_be32(left),
        },
    };
    size_t size = sizeof(status.hdr);

    if (sense) {
        status.hdr.ioasc_specific = cpu_to_be32(IPR_AUTOSENSE_VALID);
        status.auto_sense.auto_sense_len = cpu_to_be16(sense->sense_size);
        memcpy(status.auto_sense.data, sense->sense,
               MIN(sense->sense_size, sizeof(status.auto_sense.data)));
        size = sizeof(status);
    }
    pci_dma_write(&s->pci, at, &status, size);
}

/*
 * Answer a request: what became of it, how many bytes were left over, and a drive's sense data or
 * NULL. Its queue then has its handle, and a bit that flips with each round tells the driver that
 * the entry is new.
 */
void ipr_answer(Ipr *s, const Request *r, uint32_t ioasc, uint32_t left, const Answer *sense)
{
    unsigned which = r->block.cmd_pkt.hrrq_id % QUEUES;
    AnswerQueue *q = &s->queue[which];
    uint32_t handle = be32_to_cpu(r->block.host_response_handle) & IPR_HRRQ_REQ_RESP_HANDLE_MASK;

    if (r->generation != s->drives.generation || !q->size || !s->operational) {
        return;
    }
    write_status(s, r, ioasc, left, sense);
    stl_be_pci_dma(&s->pci, q->base + q->index * sizeof(__be32),
                   handle | (q->toggle ? IPR_HRRQ_TOGGLE_BIT : 0), MEMTXATTRS_UNSPECIFIED);
    if (++q->index == q->size) {
        q->index = 0;
        q->toggle = !q->toggle;
    }
    msix_notify(&s->pci, which);
}

static void serve(Ipr *s, const Request *r)
{
    uint32_t handle = be32_to_cpu(r->block.res_handle);
    SCSIDevice *d = ipr_drive(s, handle);

    if (r->block.cmd_pkt.request_type == IPR_RQTYPE_SCSICDB && d) {
        ipr_scsi_io(s, r, d);
    } else {
        ipr_administer(s, r);
    }
}

/* Serve the request at this address. */
void ipr_take_request(Ipr *s, uint64_t address)
{
    Request r = { .address = address & ~(uint64_t)SIZE_BITS, .generation = s->drives.generation };

    if (s->operational) {
        pci_dma_read(&s->pci, r.address, &r.block, sizeof(r.block));
        serve(s, &r);
    }
}
