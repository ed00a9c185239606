/*
 * A command on its way to one of QEMU's drives, and what became of it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "tri_mode.h"
#include "scsi/constants.h"
#include "system/dma.h"

enum { CDB_MAX = 32 };

static const SCSIBusInfo bus_info;

/* Make the controller's bus, whose drives it plugs and unplugs. */
void drives_init(Drives *drives, DeviceState *controller)
{
    scsi_bus_init(&drives->bus, sizeof(drives->bus), controller, &bus_info);
    qbus_set_hotplug_handler(BUS(&drives->bus), OBJECT(controller));
}

/* Reset all drives; none of the commands up to now is answered any more. */
void drives_reset(Drives *drives)
{
    drives->generation++;
    memset(drives->busy, 0, sizeof(drives->busy));
    bus_cold_reset(BUS(&drives->bus));
}

void command_init(Command *c, Drives *drives, PCIDevice *controller, uint32_t length)
{
    c->drives = drives;
    c->generation = drives->generation;
    c->length = length;
    pci_dma_sglist_init(&c->sg, controller, 8);
}

void command_free(Command *c)
{
    qemu_sglist_destroy(&c->sg);
    g_free(c);
}

static void finish(SCSIRequest *request, bool cancelled, size_t residual)
{
    Command *c = request->hba_private;
    Drives *drives = c->drives;
    size_t expected = request->cmd.xfer;
    uint8_t sense[SCSI_SENSE_BUF_SIZE];
    Answer a = {
        .transferred = cancelled ? 0 : MIN(c->length, expected - MIN(residual, expected)),
        .cancelled = cancelled,
        .status = request->status,
        .sense = sense,
    };

    if (c->generation == drives->generation) {
        drives->busy[request->dev->id]--;
        if (request->status == CHECK_CONDITION) {
            a.sense_size = scsi_req_get_sense(request, sense, sizeof(sense));
        }
        c->answer(c, &a);
    }
    request->hba_private = NULL;
    command_free(c);
    scsi_req_unref(request);
}

static void complete(SCSIRequest *request, size_t residual)
{
    finish(request, false, residual);
}

static void cancelled(SCSIRequest *request)
{
    finish(request, true, 0);
}

static QEMUSGList *sg_list(SCSIRequest *request)
{
    Command *c = request->hba_private;

    return &c->sg;
}

static const SCSIBusInfo bus_info = {
    .tcq = true,
    .max_target = TARGETS - 1,
    .max_lun = 255,
    .get_sg_list = sg_list,
    .complete = complete,
    .cancel = cancelled,
};

static void answer_from(Command *c, uint8_t *page, size_t size, const uint8_t *cdb)
{
    size_t asked = lduw_be_p(cdb + 3);
    dma_addr_t rest;
    Answer a = { .transferred = MIN(MIN(size, asked), c->sg.size), .status = GOOD };

    dma_buf_read(page, a.transferred, &rest, &c->sg, MEMTXATTRS_UNSPECIFIED);
    c->answer(c, &a);
}

/* Have a drive carry out a command, which is freed when it has been answered. */
void command_start(Command *c, SCSIDevice *d, unsigned lun, const uint8_t cdb[CDB_MAX],
                   const char *translation_layer)
{
    Drives *drives = c->drives;
    uint8_t page[TRANSLATED_MAX] = { 0 };
    size_t size = tri_translated(d, translation_layer, cdb, page);
    uint8_t own[CDB_MAX];
    SCSIRequest *request;

    if (drives->full_at && drives->busy[d->id] >= drives->full_at) {
        c->answer(c, &(Answer) { .status = TASK_SET_FULL });
        command_free(c);
    } else if (size) {
        answer_from(c, page, size, cdb);
        command_free(c);
    } else {
        memcpy(own, cdb, sizeof(own));
        drives->busy[d->id]++;
        request = scsi_req_new(tri_unit(drives, d, lun), 0, lun, own, sizeof(own), c);
        if (scsi_req_enqueue(request)) {
            scsi_req_continue(request);
        }
    }
}
