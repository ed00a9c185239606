/*
 * What the firmware says of the drives and phys: device pages and configuration pages.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "controller.h"

uint64_t mpi3_wwid(Mpi3 *s, SCSIDevice *d)
{
    return d->wwn ? d->wwn : s->sas_address + 0x100 + d->id;
}

static SCSIDevice *on_phy(Mpi3 *s, unsigned phy)
{
    SCSIDevice *d = tri_drive(&s->drives, phy);

    return d && tri_has_phy(d) ? d : NULL;
}

static uint16_t handle_of(SCSIDevice *d)
{
    return d ? FIRST_HANDLE + d->id : 0;
}

uint8_t mpi3_link_rate(SCSIDevice *d)
{
    uint8_t rate = !d ? 0
                   : tri_kind(d) == DRIVE_SATA ? MPI3_SAS_NEG_LINK_RATE_6_0
                                                : MPI3_SAS_NEG_LINK_RATE_12_0;

    return rate << MPI3_SAS_NEG_LINK_RATE_LOGICAL_SHIFT | rate;
}

static void controller_page(Mpi3 *s, struct mpi3_device_page0 *page)
{
    struct mpi3_device0_sas_sata_format *sas = &page->device_specific.sas_sata_format;

    page->slot = page->slot_index = MPI3_SLOT_INVALID;
    page->dev_handle = CONTROLLER_HANDLE;
    page->persistent_id = MPI3_DEVICE0_PERSISTENTID_INVALID;
    page->flags = MPI3_DEVICE0_FLAGS_DEVICE_PRESENT | MPI3_DEVICE0_FLAGS_CONTROLLER_DEV_HANDLE;
    page->wwid = sas->sas_address = s->sas_address;
    sas->device_info =
        MPI3_SAS_DEVICE_INFO_DEVICE_TYPE_END_DEVICE | MPI3_SAS_DEVICE_INFO_SSP_INITIATOR |
        MPI3_SAS_DEVICE_INFO_STP_INITIATOR | MPI3_SAS_DEVICE_INFO_SMP_INITIATOR;
}

static void sas_sata_page(Mpi3 *s, SCSIDevice *d, struct mpi3_device_page0 *page)
{
    struct mpi3_device0_sas_sata_format *sas = &page->device_specific.sas_sata_format;
    bool sata = tri_kind(d) == DRIVE_SATA;

    page->queue_depth = sata ? s->depth_sata : s->depth_sas;
    page->io_unit_port = sas->phy_num = d->id;
    sas->sas_address = mpi3_wwid(s, d);
    sas->device_info =
        MPI3_SAS_DEVICE_INFO_DEVICE_TYPE_END_DEVICE |
        (sata ? MPI3_SAS_DEVICE_INFO_STP_SATA_TARGET : MPI3_SAS_DEVICE_INFO_SSP_TARGET);
    sas->max_port_connections = 1;
    if (sata) {
        sas->flags =
            MPI3_DEVICE0_SASSATA_FLAGS_NCQ_SUPP | MPI3_DEVICE0_SASSATA_FLAGS_48BIT_LBA;
    }
}

static void pcie_page(Mpi3 *s, SCSIDevice *d, struct mpi3_device_page0 *page)
{
    struct mpi3_device0_pcie_format *pcie = &page->device_specific.pcie_format;

    page->device_form = MPI3_DEVICE_DEVFORM_PCIE;
    page->queue_depth = s->depth_nvme;
    pcie->device_info = MPI3_DEVICE0_PCIE_DEVICE_INFO_TYPE_NVME_DEVICE;
    pcie->maximum_data_transfer_size = s->mdts;
    pcie->page_size = 12; /* as a power of two */
    pcie->negotiated_port_width = pcie->max_port_width = 4;
    pcie->negotiated_link_rate = MPI3_EVENT_PCIE_TOPO_PI_RATE_16_0;
    pcie->port_num = d->id;
}

static void volume_page(Mpi3 *s, struct mpi3_device_page0 *page)
{
    page->device_form = MPI3_DEVICE_DEVFORM_VD;
    page->queue_depth = s->depth_volume;
    page->device_specific.vd_format.vd_state = MPI3_DEVICE0_VD_STATE_OPTIMAL;
    page->device_specific.vd_format.raid_level = MPI3_DEVICE0_VD_RAIDLEVEL_RAID_1;
}

/* Fill in the page of a drive, or of the controller itself for none. */
void mpi3_device_page(Mpi3 *s, SCSIDevice *d, struct mpi3_device_page0 *page)
{
    if (!d) {
        controller_page(s, page);
        return;
    }
    page->parent_dev_handle = CONTROLLER_HANDLE;
    page->slot = page->slot_index = d->id;
    page->dev_handle = handle_of(d);
    page->persistent_id = d->id;
    page->wwid = mpi3_wwid(s, d);
    page->flags =
        MPI3_DEVICE0_FLAGS_DEVICE_PRESENT | MPI3_DEVICE0_FLAGS_ATT_METHOD_DIR_ATTACHED;
    switch (tri_kind(d)) {
    case DRIVE_SAS:
    case DRIVE_SATA:
        sas_sata_page(s, d, page);
        break;
    case DRIVE_NVME:
        pcie_page(s, d, page);
        break;
    case DRIVE_VOLUME:
        volume_page(s, page);
        break;
    }
}

/* The drive that a page's address names by its handle, or the next one after that handle. */
static SCSIDevice *addressed(Mpi3 *s, uint32_t page_address)
{
    unsigned handle = page_address & MPI3_DEVICE_PGAD_HANDLE_MASK;
    SCSIDevice *d = NULL;

    if ((page_address & MPI3_DEVICE_PGAD_FORM_MASK) == MPI3_DEVICE_PGAD_FORM_HANDLE) {
        return mpi3_drive(s, handle);
    }
    /* The search begins with the invalid handle. */
    bool begins = handle == MPI3_DEVICE_PGAD_HANDLE_MASK || handle < FIRST_HANDLE;
    unsigned target = begins ? 0 : handle - FIRST_HANDLE + 1;
    while (target < TARGETS && !(d = tri_drive(&s->drives, target))) {
        target++;
    }
    return d;
}

static size_t device_config_page(Mpi3 *s, const struct mpi3_config_request *r, void *page)
{
    if (r->action != MPI3_CONFIG_ACTION_PAGE_HEADER) {
        SCSIDevice *d = addressed(s, r->page_address);

        if (!d && (r->page_address & MPI3_DEVICE_PGAD_HANDLE_MASK) != CONTROLLER_HANDLE) {
            return 0;
        }
        mpi3_device_page(s, d, page);
    }
    return sizeof(struct mpi3_device_page0);
}

static size_t io_unit_page(Mpi3 *s, struct mpi3_sas_io_unit_page0 *page)
{
    page->num_phys = s->phys;
    for (unsigned i = 0; i < s->phys; i++) {
        SCSIDevice *d = on_phy(s, i);

        page->phy_data[i] = (struct mpi3_sas_io_unit0_phy_data) {
            .io_unit_port = i,
            .negotiated_link_rate = mpi3_link_rate(d),
            .controller_dev_handle = CONTROLLER_HANDLE,
            .attached_dev_handle = handle_of(d),
        };
    }
    return sizeof(*page) + s->phys * sizeof(page->phy_data[0]);
}

static size_t phy_page(Mpi3 *s, uint32_t page_address, struct mpi3_sas_phy_page0 *page)
{
    SCSIDevice *d = on_phy(s, page_address & MPI3_SAS_PHY_PGAD_PHY_NUMBER_MASK);

    page->owner_dev_handle = CONTROLLER_HANDLE;
    page->attached_dev_handle = handle_of(d);
    page->programmed_link_rate = MPI3_SAS_PRATE_MAX_RATE_12_0 | MPI3_SAS_PRATE_MIN_RATE_3_0;
    page->hw_link_rate = MPI3_SAS_HWRATE_MAX_RATE_12_0 | MPI3_SAS_HWRATE_MIN_RATE_3_0;
    page->negotiated_link_rate = mpi3_link_rate(d);
    return sizeof(*page);
}

#define PAGE(type, number) ((MPI3_CONFIG_PAGETYPE_##type) << 8 | (number))

/* Fill in a configuration page, but for its header; return its size, 0 for one there is not. */
size_t mpi3_config_page(Mpi3 *s, const struct mpi3_config_request *r, void *page)
{
    switch (r->page_type << 8 | r->page_number) {
    case PAGE(DEVICE, 0):
        return device_config_page(s, r, page);
    case PAGE(IOC, 1):
        memcpy(page, &s->coalescing, sizeof(s->coalescing));
        return sizeof(s->coalescing);
    case PAGE(SAS_IO_UNIT, 0):
        return io_unit_page(s, page);
    case PAGE(SAS_PHY, 0):
        return phy_page(s, r->page_address, page);
    case PAGE(SAS_PHY, 1): /* error counters: none has counted anything */
        return sizeof(struct mpi3_sas_phy_page1);
    case PAGE(SAS_EXPANDER, 0): /* there is such a page, but no expander */
        return r->action == MPI3_CONFIG_ACTION_PAGE_HEADER
                   ? sizeof(struct mpi3_sas_expander_page0) : 0;
    case PAGE(DRIVER, 1):
        return sizeof(struct mpi3_driver_page1);
    case PAGE(DRIVER, 2):
        return sizeof(struct mpi3_driver_page2);
    }
    return 0;
}
