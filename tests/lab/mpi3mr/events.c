/*
 * Events: what the firmware announces of drives that come, go or change.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "controller.h"

static void post_event(Mpi3 *s, uint8_t event, const void *data, size_t size)
{
    struct {
        struct mpi3_event_notification_reply reply;
        uint8_t room[FRAME];
    } frame = {
        .reply = {
            .host_tag = MPI3_HOST_TAG_INVALID,
            .function = MPI3_FUNCTION_EVENT_NOTIFICATION,
            .event = event,
            .event_data_length = size / 4,
        },
    };
    size_t head = offsetof(struct mpi3_event_notification_reply, event_data);

    if (mpi3_ready(s) && s->events) {
        memcpy((uint8_t *)&frame + head, data, size);
        mpi3_post_frame(s, &s->admin_reply, &s->admin, &frame,
                        MIN(sizeof(frame.reply) + size, FRAME));
    }
}

static void send_sas_topology(Mpi3 *s, SCSIDevice *d, bool added)
{
    uint8_t rate = mpi3_link_rate(d) & MPI3_EVENT_SAS_TOPO_LR_PREV_MASK;
    struct {
        struct mpi3_event_data_sas_topology_change_list list;
        struct mpi3_event_sas_topo_phy_entry phy;
    } e = {
        .list = {
            .num_phys = s->phys,
            .num_entries = 1,
            .start_phy_num = d->id,
            .io_unit_port = d->id,
            .exp_status = MPI3_EVENT_SAS_TOPO_ES_NO_EXPANDER,
        },
        .phy = {
            .attached_dev_handle = FIRST_HANDLE + d->id,
            .link_rate = added ? rate << MPI3_EVENT_SAS_TOPO_LR_CURRENT_SHIFT : rate,
            .status = added ? MPI3_EVENT_SAS_TOPO_PHY_RC_RESPONDING
                            : MPI3_EVENT_SAS_TOPO_PHY_RC_TARG_NOT_RESPONDING,
        },
    };

    post_event(s, MPI3_EVENT_SAS_TOPOLOGY_CHANGE_LIST, &e, sizeof(e));
}

static void send_pcie_topology(Mpi3 *s, SCSIDevice *d, bool added)
{
    uint8_t link = MPI3_EVENT_PCIE_TOPO_PI_LANES_4 | MPI3_EVENT_PCIE_TOPO_PI_RATE_16_0;
    struct {
        struct mpi3_event_data_pcie_topology_change_list list;
        struct mpi3_event_pcie_topo_port_entry port;
    } e = {
        .list = {
            .num_ports = s->phys,
            .num_entries = 1,
            .start_port_num = d->id,
        },
        .port = {
            .attached_dev_handle = FIRST_HANDLE + d->id,
            .port_status = added ? MPI3_EVENT_PCIE_TOPO_PS_RESPONDING
                                 : MPI3_EVENT_PCIE_TOPO_PS_NOT_RESPONDING,
            .current_port_info = added ? link : 0,
            .previous_port_info = added ? 0 : link,
        },
    };

    post_event(s, MPI3_EVENT_PCIE_TOPOLOGY_CHANGE_LIST, &e, sizeof(e));
}

static void send_volume_gone(Mpi3 *s, SCSIDevice *d)
{
    struct mpi3_event_data_device_status_change e = {
        .dev_handle = FIRST_HANDLE + d->id,
        .wwid = mpi3_wwid(s, d),
        .reason_code = MPI3_EVENT_DEV_STAT_RC_VD_NOT_RESPONDING,
    };

    post_event(s, MPI3_EVENT_DEVICE_STATUS_CHANGE, &e, sizeof(e));
}

static void send_page(Mpi3 *s, uint8_t event, SCSIDevice *d)
{
    struct mpi3_device_page0 page = { 0 };

    mpi3_device_page(s, d, &page);
    post_event(s, event, &page, sizeof(page));
}

void mpi3_announce(Mpi3 *s, SCSIDevice *d)
{
    send_page(s, MPI3_EVENT_DEVICE_ADDED, d);
    switch (tri_kind(d)) {
    case DRIVE_SAS:
    case DRIVE_SATA:
        send_sas_topology(s, d, true);
        break;
    case DRIVE_NVME:
        send_pcie_topology(s, d, true);
        break;
    case DRIVE_VOLUME: /* it hangs on no topology */
        break;
    }
}

void mpi3_announce_gone(Mpi3 *s, SCSIDevice *d)
{
    switch (tri_kind(d)) {
    case DRIVE_SAS:
    case DRIVE_SATA:
        send_sas_topology(s, d, false);
        break;
    case DRIVE_NVME:
        send_pcie_topology(s, d, false);
        break;
    case DRIVE_VOLUME:
        send_volume_gone(s, d);
        break;
    }
}

/* Say that something about a drive has changed: the driver takes the whole page anew. */
void mpi3_announce_changed(Mpi3 *s, SCSIDevice *d)
{
    send_page(s, MPI3_EVENT_DEVICE_INFO_CHANGED, d);
}
