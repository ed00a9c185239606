/*
 * SCSI I/O: commands from the driver to QEMU's drives, and their answers back.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "controller.h"
#include "scsi/constants.h"

typedef struct IprCommand {
    Command common;
    Ipr *s;
    Request from;
    bool volume;
} IprCommand;

/* Return what the card says of a command that a drive has failed. Of a drive without an array it
 * passes the drive's own words on. A volume is the card's, and what it has to say is its own: the
 * driver makes sense data of it (ipr.c: ipr_gen_sense). */
static uint32_t code(const IprCommand *c, const Answer *a)
{
    if (a->cancelled) {
        return IPR_IOASC_ABORTED_CMD_TERM_BY_HOST;
    }
    if (c->volume && a->sense_size > 13) {
        return (a->sense[2] & 0xf) << 24 | a->sense[12] << 16 | a->sense[13] << 8;
    }
    return a->status == GOOD ? 0 : IPR_IOASC_HW_DEV_BUS_STATUS | a->status;
}

static void answer(Command *common, const Answer *a)
{
    IprCommand *c = container_of(common, IprCommand, common);
    bool words = a->sense_size && !c->volume;

    ipr_answer(c->s, &c->from, code(c, a), common->length - a->transferred, words ? a : NULL);
}

void ipr_scsi_io(Ipr *s, const Request *r, SCSIDevice *d)
{
    IprCommand *c = g_new0(IprCommand, 1);
    uint8_t cdb[32] = { 0 };

    *c = (IprCommand) {
        .common.answer = answer,
        .s = s,
        .from = *r,
        .volume = ipr_is_volume(d),
    };
    memcpy(cdb, r->block.cmd_pkt.cdb, sizeof(r->block.cmd_pkt.cdb));
    command_init(&c->common, &s->drives, &s->pci, be32_to_cpu(r->block.data_transfer_length));
    if (ipr_memory(s, r, &c->common.sg)) {
        command_start(&c->common, d, 0, cdb, "");
    } else {
        ipr_answer(s, r, IPR_IOASC_HW_CMD_FAILED, 0, NULL);
        command_free(&c->common);
    }
}
