/*
 * Requests other than SCSI I/O: what the controller is, its pages, resets of drives.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "controller.h"

enum {
    PAGE_MAX = 1024,
    HIGH_PRIORITY = 64,  /* requests of task management at a time */
    CHAINS_MAX = 128,    /* of one command */
    REPLIES_MAX = 65504, /* in a reply queue */
    PAGE_SHIFT = 12,
};

/* The version that the model says its firmware has; no evidence about any real one. */
static const MPI2_VERSION_UNION firmware = { .Struct = { .Major = 24, .Minor = 0, .Unit = 1 } };

static size_t ioc_facts(Mpt *s, Mpi2IOCFactsReply_t *reply)
{
    *reply = (Mpi2IOCFactsReply_t) {
        .MsgVersion = MPI26_VERSION,
        .HeaderVersion = MPI2_HEADER_VERSION,
        .MaxChainDepth = CHAINS_MAX,
        .NumberOfPorts = 1,
        .MaxMSIxVectors = s->vectors,
        .RequestCredit = s->max_requests,
        .IOCCapabilities =
            MPI2_IOCFACTS_CAPABILITY_RDPQ_ARRAY_CAPABLE | MPI2_IOCFACTS_CAPABILITY_MSI_X_INDEX |
            MPI2_IOCFACTS_CAPABILITY_EVENT_REPLAY,
        .FWVersion = firmware,
        .IOCRequestFrameSize = FRAME / 4,
        .MaxInitiators = 1,
        .MaxTargets = TARGETS,
        .ProtocolFlags =
            MPI2_IOCFACTS_PROTOCOL_SCSI_INITIATOR | MPI2_IOCFACTS_PROTOCOL_NVME_DEVICES,
        .HighPriorityCredit = HIGH_PRIORITY,
        .MaxReplyDescriptorPostQueueDepth = REPLIES_MAX,
        .ReplyFrameSize = FRAME / 4,
        .MaxDevHandle = FIRST_HANDLE + TARGETS,
        .MinDevHandle = CONTROLLER_HANDLE,
        .CurrentHostPageSize = PAGE_SHIFT,
    };
    return sizeof(*reply);
}

static size_t port_facts(Mpi2PortFactsReply_t *reply)
{
    *reply = (Mpi2PortFactsReply_t) { .PortType = MPI2_PORTFACTS_PORTTYPE_TRI_MODE };
    return sizeof(*reply);
}

static size_t ioc_init(Mpt *s, const Mpi2IOCInitRequest_t *r, Mpi2IOCInitReply_t *reply)
{
    *reply = (Mpi2IOCInitReply_t) { .WhoInit = r->WhoInit };
    if (s->state != MPI2_IOC_STATE_READY) {
        reply->IOCStatus = MPI2_IOCSTATUS_INVALID_STATE;
    } else {
        mpt_start_queues(s, r);
        s->state = MPI2_IOC_STATE_OPERATIONAL;
    }
    return sizeof(*reply);
}

/* Answer a request that came through the doorbell; return the size of the answer. */
size_t mpt_handshake(Mpt *s, const void *request, void *reply)
{
    const MPI2RequestHeader_t *head = request;
    MPI2DefaultReply_t *common = reply;
    size_t size = sizeof(*common);

    switch (head->Function) {
    case MPI2_FUNCTION_IOC_FACTS:
        size = ioc_facts(s, reply);
        break;
    case MPI2_FUNCTION_PORT_FACTS:
        size = port_facts(reply);
        break;
    case MPI2_FUNCTION_IOC_INIT:
        size = ioc_init(s, request, reply);
        break;
    default:
        *common = (MPI2DefaultReply_t) { .IOCStatus = MPI2_IOCSTATUS_INVALID_FUNCTION };
    }
    common->Function = head->Function;
    common->MsgLength = size / 4;
    return size;
}

/* The driver reads the head of the firmware's image for the version of the package. */
static void upload_image(Mpt *s, Request from, const Mpi25FWUploadRequest_t *r)
{
    Mpi2FWImageHeader_t image = {
        .Signature = MPI2_FW_HEADER_SIGNATURE,
        .FWVersion = firmware,
        .PackageVersion = firmware,
    };
    Mpi2FWUploadReply_t reply = {
        .Function = r->Function,
        .ImageType = r->ImageType,
        .ActualImageSize = sizeof(image),
    };

    pci_dma_write(&s->pci, r->SGL.IeeeSimple.Address, &image,
                  MIN(sizeof(image), r->SGL.IeeeSimple.Length));
    mpt_post_frame(s, from, &reply, sizeof(reply));
}

/* Give a page the head that says what it is; one of an extended type has a longer one. */
static void put_head(const Mpi2ConfigRequest_t *r, size_t size, void *page)
{
    bool extended = (r->Header.PageType & MPI2_CONFIG_PAGETYPE_MASK) ==
                    MPI2_CONFIG_PAGETYPE_EXTENDED;
    MPI2_CONFIG_EXTENDED_PAGE_HEADER *long_head = page;
    MPI2_CONFIG_PAGE_HEADER *head = page;

    *head = (MPI2_CONFIG_PAGE_HEADER) {
        .PageVersion = r->Header.PageVersion,
        .PageNumber = r->Header.PageNumber,
        .PageType = r->Header.PageType,
        .PageLength = extended ? 0 : size / 4,
    };
    if (extended) {
        long_head->ExtPageLength = size / 4;
        long_head->ExtPageType = r->ExtPageType;
    }
}

static bool is_coalescing(const Mpi2ConfigRequest_t *r)
{
    return (r->Header.PageType & MPI2_CONFIG_PAGETYPE_MASK) == MPI2_CONFIG_PAGETYPE_IOC &&
           r->Header.PageNumber == 1;
}

/* Only the current page of interrupt coalescing is written, and only as it is defined. */
static uint16_t write_page(Mpt *s, uint8_t action, uint64_t address, uint32_t size)
{
    Mpi2IOCPage1_t page;

    if (action != MPI2_CONFIG_ACTION_PAGE_WRITE_CURRENT || s->page != PAGE_CHANGEABLE) {
        return MPI2_IOCSTATUS_CONFIG_INVALID_ACTION;
    }
    if (size != sizeof(page)) {
        return MPI2_IOCSTATUS_CONFIG_INVALID_DATA;
    }
    pci_dma_read(&s->pci, address, &page, sizeof(page));
    memcpy(&s->coalescing.Flags, &page.Flags, sizeof(page) - sizeof(page.Header));
    return MPI2_IOCSTATUS_SUCCESS;
}

/* Pages are read; what the driver writes to others changes nothing here. */
static void serve_page(Mpt *s, Request from, const Mpi2ConfigRequest_t *r)
{
    uint64_t page[PAGE_MAX / sizeof(uint64_t)] = { 0 };
    const MPI2_CONFIG_EXTENDED_PAGE_HEADER *head = (void *)page;
    const MPI2_SGE_SIMPLE_UNION *to = &r->PageBufferSGE.MpiSimple;
    uint32_t room = to->FlagsLength & ((1u << MPI2_SGE_FLAGS_SHIFT) - 1);
    bool wide = to->FlagsLength >> MPI2_SGE_FLAGS_SHIFT & MPI2_SGE_FLAGS_64_BIT_ADDRESSING;
    size_t size = mpt_config_page(s, r, page);
    Mpi2ConfigReply_t reply = {
        .Action = r->Action,
        .Function = r->Function,
        .ExtPageType = r->ExtPageType,
        .Header = r->Header,
    };

    if (is_coalescing(r)) {
        s->page_requests++;
        if (s->page == PAGE_SILENT) {
            return;
        }
    }
    if (!size) {
        reply.IOCStatus = MPI2_IOCSTATUS_CONFIG_INVALID_PAGE;
    } else {
        put_head(r, size, page);
        if (is_coalescing(r)) {
            MPI2_CONFIG_PAGE_HEADER *short_head = (void *)page;

            short_head->PageVersion =
                MPI2_IOCPAGE1_PAGEVERSION + (s->page == PAGE_OTHER_VERSION ? 1 : 0);
            short_head->PageType =
                MPI2_CONFIG_PAGETYPE_IOC |
                (s->page == PAGE_FIXED ? MPI2_CONFIG_PAGEATTR_READ_ONLY
                                       : MPI2_CONFIG_PAGEATTR_CHANGEABLE);
        }
        memcpy(&reply.Header, page, sizeof(reply.Header));
        reply.ExtPageLength = reply.Header.PageLength ? 0 : head->ExtPageLength;
        if (r->Action == MPI2_CONFIG_ACTION_PAGE_READ_CURRENT) {
            pci_dma_write(&s->pci, wide ? to->u.Address64 : to->u.Address32, page,
                          MIN(size, room));
        } else if (is_coalescing(r) && r->Action != MPI2_CONFIG_ACTION_PAGE_HEADER) {
            reply.IOCStatus =
                write_page(s, r->Action, wide ? to->u.Address64 : to->u.Address32, room);
        }
    }
    mpt_post_frame(s, from, &reply, sizeof(reply));
}

/* Every task management resets the whole drive, an abort, too: it ends more than it must. */
static void manage_task(Mpt *s, Request from, const Mpi2SCSITaskManagementRequest_t *r)
{
    Mpi2SCSITaskManagementReply_t reply = {
        .DevHandle = r->DevHandle,
        .Function = r->Function,
        .TaskType = r->TaskType,
        .ResponseCode = MPI2_SCSITASKMGMT_RSP_TM_COMPLETE,
    };
    SCSIDevice *d = mpt_drive(s, r->DevHandle);

    if (d) {
        tri_reset(&s->drives, d);
    }
    mpt_post_frame(s, from, &reply, sizeof(reply));
}

static void post_status(Mpt *s, Request from, uint8_t function, uint16_t status)
{
    MPI2DefaultReply_t reply = { .Function = function, .IOCStatus = status };

    mpt_post_frame(s, from, &reply, sizeof(reply));
}

static void choose_events(Mpt *s, Request from, const Mpi2EventNotificationRequest_t *r)
{
    Mpi2EventNotificationReply_t reply = { .Function = r->Function };

    memcpy(s->event_masks, r->EventMasks, sizeof(s->event_masks));
    mpt_post_frame(s, from, &reply, sizeof(reply));
}

void mpt_admin_request(Mpt *s, Request from, void *frame)
{
    const MPI2RequestHeader_t *head = frame;

    switch (head->Function) {
    case MPI2_FUNCTION_CONFIG:
        serve_page(s, from, frame);
        break;
    case MPI2_FUNCTION_FW_UPLOAD:
        upload_image(s, from, frame);
        break;
    case MPI2_FUNCTION_SCSI_TASK_MGMT:
        manage_task(s, from, frame);
        break;
    case MPI2_FUNCTION_EVENT_NOTIFICATION:
        choose_events(s, from, frame);
        break;
    case MPI2_FUNCTION_PORT_ENABLE: /* complete when all drives have been announced */
        s->ports_enabled = true;
        mpt_announce_all(s);
        post_status(s, from, head->Function, MPI2_IOCSTATUS_SUCCESS);
        break;
    case MPI2_FUNCTION_EVENT_ACK:
    case MPI2_FUNCTION_IO_UNIT_CONTROL: /* the time, and drives let go */
        post_status(s, from, head->Function, MPI2_IOCSTATUS_SUCCESS);
        break;
    default:
        post_status(s, from, head->Function, MPI2_IOCSTATUS_INVALID_FUNCTION);
    }
}
