/*
 * Requests that the card serves by itself: its queues, resources and pages, and resets of drives.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "controller.h"
#include "scsi/constants.h"
#include "system/dma.h"

enum {
    EVPD = 1,
    PAGES = 0x00, /* vital product data */
    PAGE_FIRMWARE = 0x03,
    PAGE_CACHE = 0xc4,
    PAGE_CAPABILITIES = 0xd0,
};

/* Give a request its data, and answer it. */
static void give(Ipr *s, const Request *r, void *data, size_t size)
{
    uint32_t asked = be32_to_cpu(r->block.data_transfer_length);
    dma_addr_t left = 0;
    QEMUSGList sg;

    pci_dma_sglist_init(&sg, &s->pci, 1);
    if (ipr_memory(s, r, &sg)) {
        dma_buf_read(data, MIN(size, sg.size), &left, &sg, MEMTXATTRS_UNSPECIFIED);
        ipr_answer(s, r, 0, asked - MIN(size, asked), NULL);
    } else {
        ipr_answer(s, r, IPR_IOASC_HW_CMD_FAILED, 0, NULL);
    }
    qemu_sglist_destroy(&sg);
}

static void done(Ipr *s, const Request *r)
{
    ipr_answer(s, r, 0, 0, NULL);
}

/* What the card does not know; the driver then goes without, where it can. */
static void refuse(Ipr *s, const Request *r)
{
    ipr_answer(s, r, IPR_IOASC_IR_INVALID_REQ_TYPE_OR_PKT, 0, NULL);
}

static void give_page(Ipr *s, const Request *r)
{
    const struct ipr_inquiry_page0 pages = {
        .page_code = PAGES,
        .len = 4,
        .page = { PAGES, PAGE_FIRMWARE, PAGE_CACHE, PAGE_CAPABILITIES },
    };
    const struct ipr_inquiry_page3 firmware = {
        .page_code = PAGE_FIRMWARE,
        .page_length = sizeof(firmware) - 4,
        .major_release = 0x13, /* the model's own, no evidence about any real one */
        .card_type = 0x51,
        .minor_release = { 0x29, 0x00 },
    };
    const struct ipr_inquiry_pageC4 cache = {
        .page_code = PAGE_CACHE,
        .len = sizeof(cache) - 4,
        .cache_cap = { s->cache ? IPR_CAP_SYNC_CACHE : 0 },
    };
    const struct ipr_inquiry_cap capabilities = {
        .page_code = PAGE_CAPABILITIES,
        .page_length = sizeof(capabilities) - 4,
    };

    switch (r->block.cmd_pkt.cdb[2]) {
    case PAGES:
        give(s, r, (void *)&pages, sizeof(pages));
        break;
    case PAGE_FIRMWARE:
        give(s, r, (void *)&firmware, sizeof(firmware));
        break;
    case PAGE_CACHE:
        give(s, r, (void *)&cache, sizeof(cache));
        break;
    case PAGE_CAPABILITIES:
        give(s, r, (void *)&capabilities, sizeof(capabilities));
        break;
    default:
        refuse(s, r);
    }
}

static void inquire(Ipr *s, const Request *r)
{
    uint32_t handle = be32_to_cpu(r->block.res_handle);
    struct ipr_ioa_vpd data = { 0 };

    if (!(r->block.cmd_pkt.cdb[1] & EVPD)) {
        ipr_standard_inquiry(s, handle, &data.std_inq_data);
        give(s, r, &data, sizeof(data));
    } else if (handle == IPR_IOA_RES_HANDLE) {
        give_page(s, r);
    } else {
        refuse(s, r);
    }
}

static void give_table(Ipr *s, const Request *r)
{
    g_autofree struct ipr_config_table64 *table = NULL;
    size_t size = ipr_config_table(s, &table);

    give(s, r, table, size);
}

/* End all that a drive has under way; a reset of it differs by nothing else here. */
static void cancel_all(Ipr *s, const Request *r)
{
    SCSIDevice *d = ipr_drive(s, be32_to_cpu(r->block.res_handle));

    if (d) {
        tri_reset(&s->drives, d);
    }
    done(s, r);
}

/* Keep a request until there is something to tell. */
static void park(Ipr *s, const Request *r)
{
    if (s->parked_count < PARKED) {
        s->parked[s->parked_count++] = *r;
    } else {
        refuse(s, r);
    }
}

static Request take_parked(Ipr *s, unsigned which)
{
    Request r = s->parked[which];

    s->parked[which] = s->parked[--s->parked_count];
    return r;
}

/* Tell something by a request that was left for news of this kind; without one they are lost. */
void ipr_answer_parked(Ipr *s, uint8_t kind, void *news, size_t size)
{
    for (unsigned i = 0; i < s->parked_count; i++) {
        if (s->parked[i].block.cmd_pkt.cdb[1] == kind) {
            Request r = take_parked(s, i);

            give(s, &r, news, size);
            return;
        }
    }
}

/* Give a parked request back (ipr.c: ipr_reset_cancel_hcam). */
static void cancel_parked(Ipr *s, const Request *r)
{
    const uint8_t *cdb = r->block.cmd_pkt.cdb;
    uint64_t address = (uint64_t)ldl_be_p(cdb + 10) << 32 | ldl_be_p(cdb + 2);

    for (unsigned i = 0; i < s->parked_count; i++) {
        if (s->parked[i].address == address) {
            Request parked = take_parked(s, i);

            ipr_answer(s, &parked, IPR_IOASC_ABORTED_CMD_TERM_BY_HOST, 0, NULL);
            break;
        }
    }
    done(s, r);
}

static void serve_command(Ipr *s, const Request *r)
{
    switch (r->block.cmd_pkt.cdb[0]) {
    case IPR_ID_HOST_RR_Q:
        ipr_identify_queue(s, r->block.cmd_pkt.cdb);
        done(s, r);
        break;
    case IPR_QUERY_IOA_CONFIG:
        give_table(s, r);
        break;
    case IPR_CANCEL_ALL_REQUESTS:
    case IPR_RESET_DEVICE:
        cancel_all(s, r);
        break;
    case IPR_CANCEL_REQUEST:
        cancel_parked(s, r);
        break;
    case IPR_SET_SUPPORTED_DEVICES:
    case IPR_IOA_SERVICE_ACTION: /* about the cache */
    case IPR_IOA_SHUTDOWN:
        done(s, r);
        break;
    default:
        refuse(s, r);
    }
}

/* Serve what no drive of QEMU's does. */
void ipr_administer(Ipr *s, const Request *r)
{
    const struct ipr_cmd_pkt *packet = &r->block.cmd_pkt;
    uint32_t handle = be32_to_cpu(r->block.res_handle);

    if (packet->request_type == IPR_RQTYPE_HCAM) {
        park(s, r);
    } else if (packet->request_type == IPR_RQTYPE_IOACMD) {
        serve_command(s, r);
    } else if (!ipr_is_own(s, handle)) {
        ipr_answer(s, r, IPR_IOASC_IR_RESOURCE_HANDLE, 0, NULL);
    } else if (packet->cdb[0] == INQUIRY) {
        inquire(s, r);
    } else {
        refuse(s, r);
    }
}
