/*
 * SCSI I/O: commands from the driver's frames to QEMU's drives, and their answers back.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "controller.h"
#include "scsi/constants.h"

enum {
    CHAIN_MAX = 4096,    /* elements of a chain */
    SEGMENTS_MAX = 8192, /* of one command: a loop of chains has an end */
    NVME_PAGE = 4096,    /* bytes that an entry of a PRP list covers */
};

static const char translation_layer[] = "LSI     LSI SATL        0008";

typedef struct MptCommand {
    Command common;
    Mpt *s;
    Request from;
    uint64_t sense;
    uint16_t handle;
} MptCommand;

/* Add memory to a command's, at most as much as is left of its data; return what is left then. */
static uint64_t add(QEMUSGList *sg, uint64_t address, uint64_t size, uint64_t left)
{
    size = MIN(size, left);
    if (size) {
        qemu_sglist_add(sg, address, size);
    }
    return left - size;
}

/* Gather the rest of a transfer from a list of pages, as NVMe has it: where a page of the list
 * ends and the list does not, its last entry says where it goes on. */
static bool read_prps(Mpt *s, QEMUSGList *sg, uint64_t at, unsigned count, uint64_t left)
{
    for (; count && left; count--) {
        bool last_of_page = (at + sizeof(uint64_t)) % NVME_PAGE == 0;
        uint64_t entry;

        pci_dma_read(&s->pci, at, &entry, sizeof(entry));
        if (last_of_page && count > 1) {
            at = entry;
            continue;
        }
        left = add(sg, entry, NVME_PAGE - entry % NVME_PAGE, left);
        at += sizeof(entry);
    }
    return !left;
}

/* Gather a command's memory; false for a list that makes no sense. */
static bool read_sgl(Mpt *s, QEMUSGList *sg, const Mpi25SGEIOUnion_t *e, unsigned count,
                     uint64_t left)
{
    for (; count && left; e++, count--) {
        uint8_t flags = e->IeeeSimple.Flags;
        unsigned n = e->IeeeChain.Length / sizeof(*e);
        g_autofree Mpi25SGEIOUnion_t *chain = NULL;

        if (!(flags & MPI2_IEEE_SGE_FLAGS_CHAIN_ELEMENT)) {
            left = add(sg, e->IeeeSimple.Address, e->IeeeSimple.Length, left);
            if (flags & MPI25_IEEE_SGE_FLAGS_END_OF_LIST) {
                return true;
            }
            continue;
        }
        if ((flags & MPI26_IEEE_SGE_FLAGS_NSF_MASK) == MPI26_IEEE_SGE_FLAGS_NSF_NVME_PRP) {
            return read_prps(s, sg, e->IeeeChain.Address,
                             e->IeeeChain.Length / sizeof(uint64_t), left);
        }
        if (!n || n > CHAIN_MAX || sg->nsg > SEGMENTS_MAX) {
            return false;
        }
        chain = g_new(Mpi25SGEIOUnion_t, n);
        pci_dma_read(&s->pci, e->IeeeChain.Address, chain, n * sizeof(*e));
        return read_sgl(s, sg, chain, n, left);
    }
    return true;
}

/* The controller failed the command, or ended it: the drive has no part in it. */
static void post_failure(MptCommand *c, uint16_t status)
{
    Mpi2SCSIIOReply_t reply = {
        .DevHandle = c->handle,
        .Function = MPI2_FUNCTION_SCSI_IO_REQUEST,
        .TaskTag = 0xffff,
        .SCSIState = MPI2_SCSI_STATE_NO_SCSI_STATUS,
        .IOCStatus = status,
    };

    mpt_post_frame(c->s, c->from, &reply, sizeof(reply));
}

static void post_scsi_status(MptCommand *c, const Answer *a)
{
    Mpi2SCSIIOReply_t reply = {
        .DevHandle = c->handle,
        .Function = MPI2_FUNCTION_SCSI_IO_REQUEST,
        .TaskTag = 0xffff,
        .TransferCount = a->transferred,
        .IOCStatus = a->transferred < c->common.length ? MPI2_IOCSTATUS_SCSI_DATA_UNDERRUN : 0,
        .SCSIStatus = a->status,
        .SenseCount = a->sense_size,
    };

    if (a->sense_size) {
        reply.SCSIState = MPI2_SCSI_STATE_AUTOSENSE_VALID;
        pci_dma_write(&c->s->pci, c->sense, a->sense, a->sense_size);
    }
    mpt_post_frame(c->s, c->from, &reply, sizeof(reply));
}

static void answer(Command *common, const Answer *a)
{
    MptCommand *c = container_of(common, MptCommand, common);

    if (!mpt_runs(c->s)) {
        return;
    }
    if (a->cancelled) {
        post_failure(c, MPI2_IOCSTATUS_SCSI_TASK_TERMINATED);
    } else if (a->status == GOOD && a->transferred == common->length) {
        mpt_post_success(c->s, c->from);
    } else {
        post_scsi_status(c, a);
    }
}

void mpt_scsi_io(Mpt *s, Request from, const Mpi25SCSIIORequest_t *io)
{
    SCSIDevice *d = mpt_drive(s, io->DevHandle);
    unsigned lun = io->LUN[0] << 8 | io->LUN[1];
    unsigned elements = (MIN(s->frame_size, FRAME) - offsetof(Mpi25SCSIIORequest_t, SGL)) /
                        sizeof(io->SGL);
    MptCommand *c = g_new0(MptCommand, 1);

    *c = (MptCommand) {
        .common.answer = answer,
        .s = s,
        .from = from,
        .sense = s->sense_high | io->SenseBufferLowAddress,
        .handle = io->DevHandle,
    };
    command_init(&c->common, &s->drives, &s->pci, io->DataLength);
    if (!d) {
        post_failure(c, MPI2_IOCSTATUS_SCSI_DEVICE_NOT_THERE);
        command_free(&c->common);
    } else if (!read_sgl(s, &c->common.sg, &io->SGL, elements, io->DataLength)) {
        post_failure(c, MPI2_IOCSTATUS_INVALID_SGL);
        command_free(&c->common);
    } else {
        command_start(&c->common, d, lun, io->CDB.CDB32, translation_layer);
    }
}
