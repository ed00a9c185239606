/*
 * SCSI I/O: commands from the driver's queues to QEMU's drives, and their answers back.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "controller.h"
#include "scsi/constants.h"

enum {
    CHAIN_MAX = 4096,    /* elements of a chain */
    SEGMENTS_MAX = 8192, /* of one command: a loop of chains has an end */
};

static const char translation_layer[] = "BROADCOMSAS4116 SATL    0001";

typedef struct Mpi3Command {
    Command common;
    Mpi3 *s;
    uint16_t queue, tag, handle;
} Mpi3Command;

/* Gather a command's memory; false for a list that makes no sense. */
static bool read_sgl(Mpi3 *s, QEMUSGList *sg, const union mpi3_sge_union *e, unsigned count,
                     uint64_t left)
{
    for (; count && left; e++, count--) {
        switch (e->simple.flags & MPI3_SGE_FLAGS_ELEMENT_TYPE_MASK) {
        case MPI3_SGE_FLAGS_ELEMENT_TYPE_SIMPLE: {
            uint64_t size = MIN(e->simple.length, left);

            if (size) {
                qemu_sglist_add(sg, e->simple.address, size);
            }
            left -= size;
            if (e->simple.flags & MPI3_SGE_FLAGS_END_OF_LIST) {
                return true;
            }
            break;
        }
        case MPI3_SGE_FLAGS_ELEMENT_TYPE_CHAIN:
        case MPI3_SGE_FLAGS_ELEMENT_TYPE_LAST_CHAIN: {
            unsigned n = e->chain.length / sizeof(*e);
            g_autofree union mpi3_sge_union *chain = NULL;

            if (!n || n > CHAIN_MAX || sg->nsg > SEGMENTS_MAX) {
                return false;
            }
            chain = g_new(union mpi3_sge_union, n);
            pci_dma_read(&s->pci, e->chain.address, chain, n * sizeof(*e));
            return read_sgl(s, sg, chain, n, left);
        }
        case MPI3_SGE_FLAGS_ELEMENT_TYPE_EXTENDED: /* protection information: no drive has any */
            break;
        default:
            return false;
        }
    }
    return true;
}

/* A reply, but for its status. */
static struct mpi3_scsi_io_reply reply_to(Mpi3Command *c, uint32_t transferred)
{
    return (struct mpi3_scsi_io_reply) {
        .host_tag = c->tag,
        .function = MPI3_FUNCTION_SCSI_IO,
        .dev_handle = c->handle,
        .scsi_state = MPI3_SCSI_STATE_SENSE_NOT_AVAILABLE,
        .transfer_count = transferred,
        .task_tag = MPI3_SCSI_TASKTAG_UNKNOWN,
    };
}

static void post_reply(Mpi3Command *c, struct mpi3_scsi_io_reply *reply)
{
    RequestQueue *from = &c->s->request[c->queue];

    mpi3_post_frame(c->s, &c->s->reply[from->reply], from, reply, sizeof(*reply));
}

/* The controller failed the command, or ended it: the drive has no part in it. */
static void post_failure(Mpi3Command *c, uint16_t ioc_status)
{
    struct mpi3_scsi_io_reply reply = reply_to(c, 0);

    reply.ioc_status = ioc_status;
    reply.scsi_state |= MPI3_SCSI_STATE_NO_SCSI_STATUS;
    post_reply(c, &reply);
}

static void post_scsi_status(Mpi3Command *c, const Answer *a)
{
    struct mpi3_scsi_io_reply reply = reply_to(c, a->transferred);
    Mpi3 *s = c->s;

    reply.ioc_status =
        a->transferred < c->common.length ? MPI3_IOCSTATUS_SCSI_DATA_UNDERRUN : 0;
    reply.scsi_status = a->status;
    reply.sense_count = a->sense_size;
    if (a->sense_size) {
        uint64_t buffer =
            mpi3_take_free(s, &s->sense_free, MPI3_SYSIF_SENSE_BUF_FREE_HOST_INDEX_OFFSET);

        reply.sense_data_buffer_address = buffer;
        reply.scsi_state =
            buffer ? MPI3_SCSI_STATE_SENSE_VALID : MPI3_SCSI_STATE_SENSE_BUFF_Q_EMPTY;
        if (buffer) {
            pci_dma_write(&s->pci, buffer, a->sense, a->sense_size);
        }
    }
    post_reply(c, &reply);
}

static void post_success(Mpi3Command *c)
{
    RequestQueue *from = &c->s->request[c->queue];
    union mpi3_reply_descriptors_union d = {
        .success = {
            .host_tag = c->tag,
            .reply_flags = MPI3_REPLY_DESCRIPT_FLAGS_TYPE_SUCCESS,
        },
    };

    mpi3_post(c->s, &c->s->reply[from->reply], from, d);
}

static void answer(Command *common, const Answer *a)
{
    Mpi3Command *c = container_of(common, Mpi3Command, common);
    Mpi3 *s = c->s;

    if (!mpi3_ready(s)) {
        return;
    }
    s->reply[s->request[c->queue].reply].outstanding--;
    if (a->cancelled) {
        post_failure(c, MPI3_IOCSTATUS_SCSI_TASK_TERMINATED);
    } else if (a->status == GOOD && a->transferred == common->length) {
        post_success(c);
    } else {
        post_scsi_status(c, a);
    }
}

void mpi3_scsi_io(Mpi3 *s, RequestQueue *from, struct mpi3_scsi_io_request *io)
{
    SCSIDevice *d = mpi3_drive(s, io->dev_handle);
    unsigned lun = io->lun[0] << 8 | io->lun[1];
    Mpi3Command *c;

    if (!d) {
        mpi3_post_status(s, &s->reply[from->reply], from, io->host_tag,
                         MPI3_IOCSTATUS_SCSI_DEVICE_NOT_THERE);
        return;
    }
    c = g_new0(Mpi3Command, 1);
    *c = (Mpi3Command) {
        .common.answer = answer,
        .s = s,
        .queue = from->ring.id,
        .tag = io->host_tag,
        .handle = io->dev_handle,
    };
    command_init(&c->common, &s->drives, &s->pci, io->data_length);
    if (!read_sgl(s, &c->common.sg, io->sgl, ARRAY_SIZE(io->sgl), io->data_length)) {
        post_failure(c, MPI3_IOCSTATUS_INVALID_SGL);
        command_free(&c->common);
        return;
    }
    s->reply[from->reply].outstanding++;
    command_start(&c->common, d, lun, io->cdb.cdb32, translation_layer);
}
