/*
 * Requests of the admin queue: what the controller is, its queues, its pages, resets of drives.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "controller.h"

enum { PAGE_MAX = 1024 };

/* The version that the model says its firmware has; no evidence about any real one. */
#define FIRMWARE { .gen_major = 8, .gen_minor = 5, .phase_major = 1, .build_num = 1 }

static void to_driver(Mpi3 *s, const union mpi3_sge_union *e, const void *data, size_t size)
{
    pci_dma_write(&s->pci, e->simple.address, data, MIN(size, e->simple.length));
}

static void ioc_facts(Mpi3 *s, const struct mpi3_ioc_facts_request *r)
{
    struct mpi3_ioc_facts_data facts = {
        /* As long as this version of the driver wants it. */
        .ioc_facts_data_length = r->sgl.simple.length / 4,
        .mpi_version = {
            .mpi3_version = { .major = MPI3_VERSION_MAJOR, .unit = MPI3_VERSION_UNIT },
        },
        .fw_version = FIRMWARE,
        .ioc_capabilities = s->multipath ? MPI3_IOCFACTS_CAPABILITY_MULTIPATH_SUPPORTED : 0,
        .max_msix_vectors = s->vectors,
        .max_outstanding_requests = s->max_requests,
        .product_id = 0x1000,
        .ioc_request_frame_size = FRAME / 4,
        .reply_frame_size = FRAME / 4,
        .max_persistent_id = 1023,
        .min_dev_handle = FIRST_HANDLE,
        .max_dev_handle = FIRST_HANDLE + TARGETS,
        .protocol_flags =
            MPI3_IOCFACTS_PROTOCOL_SAS | MPI3_IOCFACTS_PROTOCOL_SATA |
            MPI3_IOCFACTS_PROTOCOL_NVME | MPI3_IOCFACTS_PROTOCOL_SCSI_INITIATOR,
        .max_nvme = TARGETS,
        .max_vds = TARGETS,
        .max_host_pds = TARGETS,
        .shutdown_timeout = 10,
        .max_operational_request_queues = s->queue_pairs,
        .max_operational_reply_queues = s->queue_pairs,
    };

    to_driver(s, &r->sgl, &facts, sizeof(facts));
}

static void ioc_init(Mpi3 *s, const struct mpi3_ioc_init_request *r)
{
    s->reply_free = (Ring) {
        .base = r->reply_free_queue_address,
        .size = r->reply_free_queue_depth,
        .element = sizeof(uint64_t),
    };
    s->sense_free = (Ring) {
        .base = r->sense_buffer_free_queue_address,
        .size = r->sense_buffer_free_queue_depth,
        .element = sizeof(uint64_t),
    };
}

/* The driver reads the manifest of the firmware's image for the version of the package. */
static void upload_manifest(Mpi3 *s, const struct mpi3_ci_upload_request *r)
{
    struct mpi3_ci_manifest_mpi manifest = {
        .manifest_type = MPI3_CI_MANIFEST_TYPE_MPI,
        .package_version = FIRMWARE,
    };

    to_driver(s, &r->sgl, &manifest, sizeof(manifest));
}

static bool is_queue(Mpi3 *s, unsigned id)
{
    return id && id <= s->queue_pairs;
}

static uint16_t create_reply_queue(Mpi3 *s, const struct mpi3_create_reply_queue_request *r)
{
    if (!is_queue(s, r->queue_id) || r->size < MPI3_CREATE_REPLY_QUEUE_SIZE_MINIMUM) {
        return MPI3_IOCSTATUS_INVALID_QUEUE_ID;
    }
    if (r->msix_index >= s->vectors) {
        return MPI3_IOCSTATUS_INVALID_MSIX_VECTOR;
    }
    s->reply[r->queue_id] = (ReplyQueue) {
        .ring = {
            .base = r->base_address,
            .id = r->queue_id,
            .size = r->size,
            .element = REPLY_DESCRIPTOR,
            .segmented = r->flags & MPI3_CREATE_REPLY_QUEUE_FLAGS_SEGMENTED_SEGMENTED,
        },
        .phase = MPI3_REPLY_DESCRIPT_FLAGS_PHASE_MASK,
        .vector = r->msix_index,
        .interrupts = r->flags & MPI3_CREATE_REPLY_QUEUE_FLAGS_INT_ENABLE_ENABLE,
    };
    *mpi3_register(s, MPI3_SYSIF_OPER_REPLY_Q_N_CI_OFFSET(r->queue_id)) = 0;
    return 0;
}

static uint16_t create_request_queue(Mpi3 *s, const struct mpi3_create_request_queue_request *r)
{
    if (!is_queue(s, r->queue_id) || r->size < MPI3_CREATE_REQUEST_QUEUE_SIZE_MINIMUM) {
        return MPI3_IOCSTATUS_INVALID_QUEUE_ID;
    }
    if (!is_queue(s, r->reply_queue_id) || !s->reply[r->reply_queue_id].ring.size) {
        return MPI3_IOCSTATUS_INVALID_REPLY_QUEUE_ID;
    }
    s->request[r->queue_id] = (RequestQueue) {
        .ring = {
            .base = r->base_address,
            .id = r->queue_id,
            .size = r->size,
            .element = FRAME,
            .segmented = r->flags & MPI3_CREATE_REQUEST_QUEUE_FLAGS_SEGMENTED_SEGMENTED,
        },
        .reply = r->reply_queue_id,
    };
    *mpi3_register(s, MPI3_SYSIF_OPER_REQ_Q_N_PI_OFFSET(r->queue_id)) = 0;
    return 0;
}

/* Both requests to delete a queue have the same form. */
static uint16_t delete_queue(Mpi3 *s, const struct mpi3_delete_reply_queue_request *r)
{
    if (!is_queue(s, r->queue_id)) {
        return MPI3_IOCSTATUS_INVALID_QUEUE_ID;
    }
    if (r->function == MPI3_FUNCTION_DELETE_REPLY_QUEUE) {
        s->reply[r->queue_id].ring.size = 0;
    } else {
        s->request[r->queue_id].ring.size = 0;
    }
    return 0;
}

static void enable_ports(Mpi3 *s)
{
    s->ports_enabled = true;
    for (unsigned target = 0; target < TARGETS; target++) {
        SCSIDevice *d = tri_drive(&s->drives, target);

        if (d) {
            mpi3_announce(s, d);
        }
    }
}

static bool is_coalescing(const struct mpi3_config_request *r)
{
    return r->page_type == MPI3_CONFIG_PAGETYPE_IOC && r->page_number == 1;
}

/* Only the current page of interrupt coalescing may be written, and only as it is defined. */
static uint16_t write_page(Mpi3 *s, const struct mpi3_config_request *r)
{
    struct mpi3_ioc_page1 page;

    if (!is_coalescing(r) || s->page != PAGE_CHANGEABLE) {
        return MPI3_IOCSTATUS_CONFIG_INVALID_ACTION;
    }
    if (r->sgl.simple.length != sizeof(page) || r->page_length != sizeof(page) / 4) {
        return MPI3_IOCSTATUS_CONFIG_INVALID_DATA;
    }
    pci_dma_read(&s->pci, r->sgl.simple.address, &page, sizeof(page));
    s->coalescing.coalescing_timeout = page.coalescing_timeout;
    s->coalescing.coalescing_depth = page.coalescing_depth;
    return 0;
}

static uint16_t read_page(Mpi3 *s, const struct mpi3_config_request *r)
{
    uint64_t page[PAGE_MAX / sizeof(uint64_t)] = { 0 };
    size_t size = mpi3_config_page(s, r, page);
    struct mpi3_config_page_header header = {
        .page_number = r->page_number,
        .page_type = r->page_type,
        .page_length = size / 4,
    };

    if (!size) {
        return MPI3_IOCSTATUS_CONFIG_INVALID_PAGE;
    }
    if (is_coalescing(r)) {
        header.page_version = s->page == PAGE_OTHER_VERSION ? MPI3_IOC1_PAGEVERSION + 1
                                                            : MPI3_IOC1_PAGEVERSION;
        header.page_attribute = s->page == PAGE_FIXED ? MPI3_CONFIG_PAGEATTR_READ_ONLY
                                                      : MPI3_CONFIG_PAGEATTR_CHANGEABLE;
    }
    memcpy(page, &header, sizeof(header));
    switch (r->action) {
    case MPI3_CONFIG_ACTION_PAGE_HEADER:
        to_driver(s, &r->sgl, page, sizeof(header));
        return 0;
    case MPI3_CONFIG_ACTION_READ_CURRENT:
        to_driver(s, &r->sgl, page, size);
        return 0;
    case MPI3_CONFIG_ACTION_WRITE_CURRENT:
        return write_page(s, r);
    }
    return MPI3_IOCSTATUS_CONFIG_INVALID_ACTION;
}

/* Every task management resets the whole drive, an abort, too: it ends more than it must. */
static void manage_task(Mpi3 *s, const struct mpi3_scsi_task_mgmt_request *r)
{
    struct mpi3_scsi_task_mgmt_reply reply = {
        .host_tag = r->host_tag,
        .function = r->function,
        .response_data = MPI3_SCSITASKMGMT_RSPCODE_TM_COMPLETE,
    };
    SCSIDevice *d = mpi3_drive(s, r->dev_handle);

    if (d) {
        tri_reset(&s->drives, d);
    }
    mpi3_post_frame(s, &s->admin_reply, &s->admin, &reply, sizeof(reply));
}

static void choose_events(Mpi3 *s, const struct mpi3_event_notification_request *r)
{
    s->events = !(r->event_masks[0] & 1u << MPI3_EVENT_DEVICE_ADDED);
}

void mpi3_admin_request(Mpi3 *s, void *frame)
{
    const struct mpi3_request_header *head = frame;
    uint16_t status = 0;

    switch (head->function) {
    case MPI3_FUNCTION_IOC_FACTS:
        ioc_facts(s, frame);
        break;
    case MPI3_FUNCTION_IOC_INIT:
        ioc_init(s, frame);
        break;
    case MPI3_FUNCTION_CI_UPLOAD:
        upload_manifest(s, frame);
        break;
    case MPI3_FUNCTION_CREATE_REPLY_QUEUE:
        status = create_reply_queue(s, frame);
        break;
    case MPI3_FUNCTION_CREATE_REQUEST_QUEUE:
        status = create_request_queue(s, frame);
        break;
    case MPI3_FUNCTION_DELETE_REPLY_QUEUE:
    case MPI3_FUNCTION_DELETE_REQUEST_QUEUE:
        status = delete_queue(s, frame);
        break;
    case MPI3_FUNCTION_EVENT_NOTIFICATION:
        choose_events(s, frame);
        break;
    case MPI3_FUNCTION_PORT_ENABLE:
        enable_ports(s);
        break;
    case MPI3_FUNCTION_CONFIG:
        if (is_coalescing(frame)) {
            s->page_requests++;
            if (s->page == PAGE_SILENT) {
                return;
            }
        }
        status = read_page(s, frame);
        break;
    case MPI3_FUNCTION_SCSI_TASK_MGMT:
        manage_task(s, frame); /* which has a reply of its own */
        return;
    case MPI3_FUNCTION_EVENT_ACK:
    case MPI3_FUNCTION_IO_UNIT_CONTROL: /* the time, and devices let go */
        break;
    default:
        status = MPI3_IOCSTATUS_INVALID_FUNCTION;
    }
    mpi3_post_status(s, &s->admin_reply, &s->admin, head->host_tag, status);
}
