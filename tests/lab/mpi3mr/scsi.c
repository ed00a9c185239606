/*
 * SCSI I/O: commands from the driver's queues to QEMU's drives, and their answers back.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "controller.h"
#include "scsi/constants.h"
#include "sysemu/dma.h"

enum {
    CHAIN_MAX = 4096,    /* elements of a chain */
    SEGMENTS_MAX = 8192, /* of one command: a loop of chains has an end */
    ATA_INFORMATION = 0x89,
    ATA_INFORMATION_SIZE = 572,
};

typedef struct Command {
    Mpi3 *s;
    uint32_t generation, length;
    uint16_t queue, tag, handle;
    QEMUSGList sg;
} Command;

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

static void free_command(Command *c)
{
    qemu_sglist_destroy(&c->sg);
    g_free(c);
}

/* An answer, but for its status. */
static struct mpi3_scsi_io_reply answer(Command *c, uint32_t transferred)
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

static void post_answer(Command *c, struct mpi3_scsi_io_reply *reply)
{
    RequestQueue *from = &c->s->request[c->queue];

    mpi3_post_frame(c->s, &c->s->reply[from->reply], from, reply, sizeof(*reply));
}

/* The controller failed the command: the drive has no part in it. */
static void post_failure(Command *c, uint16_t ioc_status)
{
    struct mpi3_scsi_io_reply reply = answer(c, 0);

    reply.ioc_status = ioc_status;
    reply.scsi_state |= MPI3_SCSI_STATE_NO_SCSI_STATUS;
    post_answer(c, &reply);
}

static void post_scsi_status(Command *c, uint8_t status, uint32_t transferred,
                             const uint8_t *sense, int sense_size)
{
    struct mpi3_scsi_io_reply reply = answer(c, transferred);
    Mpi3 *s = c->s;

    reply.ioc_status = transferred < c->length ? MPI3_IOCSTATUS_SCSI_DATA_UNDERRUN : 0;
    reply.scsi_status = status;
    reply.sense_count = sense_size;
    if (sense_size) {
        uint64_t buffer =
            mpi3_take_free(s, &s->sense_free, MPI3_SYSIF_SENSE_BUF_FREE_HOST_INDEX_OFFSET);

        reply.sense_data_buffer_address = buffer;
        reply.scsi_state =
            buffer ? MPI3_SCSI_STATE_SENSE_VALID : MPI3_SCSI_STATE_SENSE_BUFF_Q_EMPTY;
        if (buffer) {
            pci_dma_write(&s->pci, buffer, sense, sense_size);
        }
    }
    post_answer(c, &reply);
}

static void post_success(Command *c)
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

/* Tell the driver what became of a command, unless the controller was reset meanwhile. */
static void finish(SCSIRequest *request, uint16_t ioc_status, size_t residual)
{
    Command *c = request->hba_private;
    Mpi3 *s = c->s;
    size_t expected = request->cmd.xfer;
    uint32_t transferred = MIN(c->length, expected - MIN(residual, expected));
    uint8_t sense[SCSI_SENSE_BUF_SIZE];

    if (c->generation == s->generation && mpi3_ready(s)) {
        s->reply[s->request[c->queue].reply].outstanding--;
        s->busy[request->dev->id]--;
        if (ioc_status) {
            post_failure(c, ioc_status);
        } else if (request->status == GOOD && transferred == c->length) {
            post_success(c);
        } else {
            int size = request->status == CHECK_CONDITION
                           ? scsi_req_get_sense(request, sense, sizeof(sense)) : 0;
            post_scsi_status(c, request->status, transferred, sense, size);
        }
    }
    request->hba_private = NULL;
    free_command(c);
    scsi_req_unref(request);
}

static void complete(SCSIRequest *request, size_t residual)
{
    finish(request, 0, residual);
}

static void cancelled(SCSIRequest *request)
{
    finish(request, MPI3_IOCSTATUS_SCSI_TASK_TERMINATED, 0);
}

static QEMUSGList *sg_list(SCSIRequest *request)
{
    Command *c = request->hba_private;

    return &c->sg;
}

const SCSIBusInfo mpi3_scsi = {
    .tcq = true,
    .max_target = TARGETS - 1,
    .max_lun = 255,
    .get_sg_list = sg_list,
    .complete = complete,
    .cancel = cancelled,
};

/*
 * What the translation layer of a controller says of a SATA drive, and QEMU's scsi-hd does not:
 * the list of vital product data with the page of ATA information, and that page. Return its
 * size, 0 for a command that the drive answers itself.
 */
static size_t translated(SCSIDevice *d, const uint8_t *cdb, uint8_t *page)
{
    static const uint8_t pages[] = {
        0x00, 0x00, 0, 7, 0x00, 0x80, 0x83, ATA_INFORMATION, 0xb0, 0xb1, 0xb2,
    };
    enum { SIGNATURE = 36, COMMAND = 56, IDENTIFY = 60 };
    enum { WORD_QUEUE_DEPTH = 75, WORD_SATA = 76, WORD_ROTATION = 217 };
    uint8_t *identify = page + IDENTIFY;

    if (cdb[0] != INQUIRY || !(cdb[1] & 1) || mpi3_kind(d) != DRIVE_SATA) {
        return 0;
    }
    if (cdb[2] == 0) {
        memcpy(page, pages, sizeof(pages));
        return sizeof(pages);
    }
    if (cdb[2] != ATA_INFORMATION) {
        return 0;
    }
    page[1] = ATA_INFORMATION;
    stw_be_p(page + 2, ATA_INFORMATION_SIZE - 4);
    memcpy(page + 8, "BROADCOMSAS4116 SATL    0001", 28);
    page[SIGNATURE] = 0x34; /* a register FIS from the device */
    page[COMMAND] = 0xec;   /* IDENTIFY DEVICE, whose words follow */
    stw_le_p(identify + 2 * WORD_QUEUE_DEPTH, 31);
    stw_le_p(identify + 2 * WORD_SATA, 0x010e); /* NCQ, and 1.5, 3 and 6 Gb/s */
    stw_le_p(identify + 2 * WORD_ROTATION, 7200);
    return ATA_INFORMATION_SIZE;
}

static void answer_from(Command *c, uint8_t *page, size_t size, const uint8_t *cdb)
{
    size_t asked = lduw_be_p(cdb + 3);
    dma_addr_t rest;

    size = MIN(MIN(size, asked), c->sg.size);
    dma_buf_read(page, size, &rest, &c->sg, MEMTXATTRS_UNSPECIFIED);
    post_scsi_status(c, GOOD, size, NULL, 0);
}

static void pass_on(Command *c, SCSIDevice *d, unsigned lun, struct mpi3_scsi_io_request *io)
{
    Mpi3 *s = c->s;
    SCSIRequest *request;

    s->reply[s->request[c->queue].reply].outstanding++;
    s->busy[d->id]++;
    request = scsi_req_new(d, c->tag, lun, io->cdb.cdb32, sizeof(io->cdb.cdb32), c);
    if (scsi_req_enqueue(request)) {
        scsi_req_continue(request);
    }
}

void mpi3_scsi_io(Mpi3 *s, RequestQueue *from, struct mpi3_scsi_io_request *io)
{
    SCSIDevice *d =
        io->dev_handle >= FIRST_HANDLE ? mpi3_drive(s, io->dev_handle - FIRST_HANDLE) : NULL;
    unsigned lun = io->lun[0] << 8 | io->lun[1];
    uint8_t page[ATA_INFORMATION_SIZE] = { 0 };
    size_t size;
    Command *c;

    if (!d) {
        mpi3_post_status(s, &s->reply[from->reply], from, io->host_tag,
                         MPI3_IOCSTATUS_SCSI_DEVICE_NOT_THERE);
        return;
    }
    d = scsi_device_find(&s->bus, 0, d->id, lun) ?: d; /* which answers for a LUN there is not */
    c = g_new0(Command, 1);
    *c = (Command) {
        .s = s,
        .generation = s->generation,
        .length = io->data_length,
        .queue = from->ring.id,
        .tag = io->host_tag,
        .handle = io->dev_handle,
    };
    pci_dma_sglist_init(&c->sg, &s->pci, 8);
    if (!read_sgl(s, &c->sg, io->sgl, ARRAY_SIZE(io->sgl), io->data_length)) {
        post_failure(c, MPI3_IOCSTATUS_INVALID_SGL);
    } else if (s->full_at && s->busy[d->id] >= s->full_at) {
        post_scsi_status(c, TASK_SET_FULL, 0, NULL, 0);
    } else if ((size = translated(d, io->cdb.cdb32, page))) {
        answer_from(c, page, size, io->cdb.cdb32);
    } else {
        pass_on(c, d, lun, io); /* which frees it when it is done */
        return;
    }
    free_command(c);
}
