/*
 * Events: what the firmware announces of drives that come and go.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "controller.h"

static bool wanted(Mpt *s, unsigned event)
{
    return mpt_runs(s) && !(s->event_masks[event / 32] & 1u << event % 32);
}

static void post_event(Mpt *s, uint16_t event, const void *data, size_t size)
{
    union {
        Mpi2EventNotificationReply_t reply;
        uint8_t room[FRAME];
    } frame = {
        .reply = {
            .Function = MPI2_FUNCTION_EVENT_NOTIFICATION,
            .Event = event,
            .EventDataLength = size / 4,
        },
    };
    size_t head = offsetof(Mpi2EventNotificationReply_t, EventData);

    if (wanted(s, event)) {
        assert(head + size <= sizeof(frame));
        memcpy(frame.room + head, data, size);
        mpt_post_frame(s, (Request) { 0 }, &frame, head + size);
    }
}

static void send_discovery(Mpt *s, uint8_t reason)
{
    Mpi2EventDataSasDiscovery_t e = { .ReasonCode = reason };

    post_event(s, MPI2_EVENT_SAS_DISCOVERY, &e, sizeof(e));
}

static void send_sas_topology(Mpt *s, SCSIDevice *d, bool added)
{
    uint8_t rate = mpt_link_rate(d) & MPI2_EVENT_SAS_TOPO_LR_PREV_MASK;
    struct {
        Mpi2EventDataSasTopologyChangeList_t list;
        MPI2_EVENT_SAS_TOPO_PHY_ENTRY phy;
    } e = {
        .list = {
            .NumPhys = s->phys,
            .NumEntries = 1,
            .StartPhyNum = d->id,
            .ExpStatus = MPI2_EVENT_SAS_TOPO_ES_NO_EXPANDER,
            .PhysicalPort = d->id,
        },
        .phy = {
            .AttachedDevHandle = FIRST_HANDLE + d->id,
            .LinkRate = added ? rate << MPI2_EVENT_SAS_TOPO_LR_CURRENT_SHIFT : rate,
            .PhyStatus = added ? MPI2_EVENT_SAS_TOPO_RC_TARG_ADDED
                               : MPI2_EVENT_SAS_TOPO_RC_TARG_NOT_RESPONDING,
        },
    };

    post_event(s, MPI2_EVENT_SAS_TOPOLOGY_CHANGE_LIST, &e, sizeof(e));
}

static void send_pcie_topology(Mpt *s, SCSIDevice *d, bool added)
{
    uint8_t link = MPI26_EVENT_PCIE_TOPO_PI_4_LANES | MPI26_EVENT_PCIE_TOPO_PI_RATE_8_0;
    struct {
        Mpi26EventDataPCIeTopologyChangeList_t list;
        MPI26_EVENT_PCIE_TOPO_PORT_ENTRY port;
    } e = {
        .list = {
            .NumPorts = TARGETS,
            .NumEntries = 1,
            .StartPortNum = d->id,
            .SwitchStatus = MPI26_EVENT_PCIE_TOPO_SS_NO_PCIE_SWITCH,
            .PhysicalPort = d->id,
        },
        .port = {
            .AttachedDevHandle = FIRST_HANDLE + d->id,
            .PortStatus = added ? MPI26_EVENT_PCIE_TOPO_PS_DEV_ADDED
                                : MPI26_EVENT_PCIE_TOPO_PS_NOT_RESPONDING,
            .CurrentPortInfo = added ? link : 0,
            .PreviousPortInfo = added ? 0 : link,
        },
    };

    post_event(s, MPI2_EVENT_PCIE_TOPOLOGY_CHANGE_LIST, &e, sizeof(e));
}

static void send_topology(Mpt *s, SCSIDevice *d, bool added)
{
    if (tri_has_phy(d)) {
        send_sas_topology(s, d, added);
    } else {
        send_pcie_topology(s, d, added);
    }
}

void mpt_announce(Mpt *s, SCSIDevice *d)
{
    send_topology(s, d, true);
}

void mpt_announce_gone(Mpt *s, SCSIDevice *d)
{
    send_topology(s, d, false);
}

/* What a port enable finds: the driver looks at the phys when discovery has begun. */
void mpt_announce_all(Mpt *s)
{
    send_discovery(s, MPI2_EVENT_SAS_DISC_RC_STARTED);
    for (unsigned target = 0; target < TARGETS; target++) {
        SCSIDevice *d = tri_drive(&s->drives, target);

        if (d) {
            mpt_announce(s, d);
        }
    }
    send_discovery(s, MPI2_EVENT_SAS_DISC_RC_COMPLETED);
}
