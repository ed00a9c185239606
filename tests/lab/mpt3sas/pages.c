/*
 * What the firmware says of itself, the drives and the phys: configuration pages.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "controller.h"

enum {
    FIRST = 0xffff,               /* the handle that a search begins with */
    MANUFACTURING_11_SIZE = 0x5c, /* struct Mpi2ManufacturingPage11_t of mpt3sas_base.h */
};

/* Which drives have a page of a kind. */
typedef bool Selects(SCSIDevice *d);

static bool on_pcie(SCSIDevice *d)
{
    return tri_kind(d) == DRIVE_NVME;
}

static uint64_t wwid(Mpt *s, SCSIDevice *d)
{
    return d->wwn ? d->wwn : s->sas_address + 0x100 + d->id;
}

static SCSIDevice *on_phy(Mpt *s, unsigned phy)
{
    SCSIDevice *d = tri_drive(&s->drives, phy);

    return d && tri_has_phy(d) ? d : NULL;
}

static uint16_t handle_of(SCSIDevice *d)
{
    return d ? FIRST_HANDLE + d->id : 0;
}

uint8_t mpt_link_rate(SCSIDevice *d)
{
    uint8_t rate = !d ? 0
                   : tri_kind(d) == DRIVE_SATA ? MPI2_SAS_NEG_LINK_RATE_6_0
                                               : MPI25_SAS_NEG_LINK_RATE_12_0;

    return rate << MPI2_SAS_NEG_LINK_RATE_SHIFT_LOGICAL | rate;
}

/* The drive that a page's address names by its handle, or the next one after that handle. */
static SCSIDevice *addressed(Mpt *s, uint32_t address, Selects *selects)
{
    unsigned handle = address & MPI2_SAS_DEVICE_PGAD_HANDLE_MASK;
    SCSIDevice *d = NULL;

    if ((address & MPI2_SAS_DEVICE_PGAD_FORM_MASK) == MPI2_SAS_DEVICE_PGAD_FORM_HANDLE) {
        d = mpt_drive(s, handle);
        return d && selects(d) ? d : NULL;
    }
    handle = handle == FIRST || handle < FIRST_HANDLE ? FIRST_HANDLE : handle + 1;
    for (; handle < FIRST_HANDLE + TARGETS; handle++) {
        d = mpt_drive(s, handle);
        if (d && selects(d)) {
            return d;
        }
    }
    return NULL;
}

static size_t manufacturing_page(MPI2_CONFIG_PAGE_MAN_0 *page)
{
    strcpy((char *)page->ChipName, "SAS3416");
    strcpy((char *)page->ChipRevision, "B0");
    strcpy((char *)page->BoardName, "HBA 9400-16i");
    strcpy((char *)page->BoardAssembly, "LAB");
    strcpy((char *)page->BoardTracerNumber, "LAB");
    return sizeof(*page);
}

static size_t sas_unit_page0(Mpt *s, Mpi2SasIOUnitPage0_t *page)
{
    page->NumPhys = s->phys;
    for (unsigned i = 0; i < s->phys; i++) {
        SCSIDevice *d = on_phy(s, i);

        page->PhyData[i] = (MPI2_SAS_IO_UNIT0_PHY_DATA) {
            .Port = i,
            .NegotiatedLinkRate = mpt_link_rate(d),
            .ControllerPhyDeviceInfo =
                MPI2_SAS_DEVICE_INFO_SSP_INITIATOR | MPI2_SAS_DEVICE_INFO_STP_INITIATOR,
            .AttachedDevHandle = handle_of(d),
            .ControllerDevHandle = CONTROLLER_HANDLE,
        };
    }
    return offsetof(Mpi2SasIOUnitPage0_t, PhyData) + s->phys * sizeof(page->PhyData[0]);
}

static size_t sas_unit_page1(Mpt *s, Mpi2SasIOUnitPage1_t *page)
{
    page->NumPhys = s->phys;
    page->SASNarrowMaxQueueDepth = page->SASWideMaxQueueDepth = s->depth_sas;
    page->SATAMaxQDepth = s->depth_sata;
    for (unsigned i = 0; i < s->phys; i++) {
        page->PhyData[i].Port = i;
    }
    return offsetof(Mpi2SasIOUnitPage1_t, PhyData) + s->phys * sizeof(page->PhyData[0]);
}

static size_t pcie_unit_page1(Mpt *s, Mpi26PCIeIOUnitPage1_t *page)
{
    page->NVMeMaxQueueDepth = s->depth_nvme;
    return offsetof(Mpi26PCIeIOUnitPage1_t, PhyData);
}

static void controller_page(Mpt *s, Mpi2SasDevicePage0_t *page)
{
    page->SASAddress = page->DeviceName = s->sas_address;
    page->DevHandle = CONTROLLER_HANDLE;
    page->Flags = MPI2_SAS_DEVICE0_FLAGS_DEVICE_PRESENT;
    page->DeviceInfo =
        MPI2_SAS_DEVICE_INFO_END_DEVICE | MPI2_SAS_DEVICE_INFO_SSP_INITIATOR |
        MPI2_SAS_DEVICE_INFO_STP_INITIATOR | MPI2_SAS_DEVICE_INFO_SMP_INITIATOR;
}

static void sas_drive_page(Mpt *s, SCSIDevice *d, Mpi2SasDevicePage0_t *page)
{
    bool sata = tri_kind(d) == DRIVE_SATA;

    page->SASAddress = page->DeviceName = wwid(s, d);
    page->ParentDevHandle = CONTROLLER_HANDLE;
    page->DevHandle = handle_of(d);
    page->PhyNum = page->PhysicalPort = d->id;
    page->MaxPortConnections = 1;
    page->Flags = MPI2_SAS_DEVICE0_FLAGS_DEVICE_PRESENT;
    page->DeviceInfo =
        MPI2_SAS_DEVICE_INFO_END_DEVICE | MPI2_SAS_DEVICE_INFO_DIRECT_ATTACH |
        (sata ? MPI2_SAS_DEVICE_INFO_SATA_DEVICE : MPI2_SAS_DEVICE_INFO_SSP_TARGET);
    if (sata) {
        page->Flags |= MPI2_SAS_DEVICE0_FLAGS_SATA_NCQ_SUPPORTED |
                       MPI2_SAS_DEVICE0_FLAGS_SATA_48BIT_LBA_SUPPORTED;
    }
}

static size_t sas_device_page0(Mpt *s, uint32_t address, Mpi2SasDevicePage0_t *page)
{
    SCSIDevice *d = addressed(s, address, tri_has_phy);

    if (d) {
        sas_drive_page(s, d, page);
    } else if (address == (MPI2_SAS_DEVICE_PGAD_FORM_HANDLE | CONTROLLER_HANDLE)) {
        controller_page(s, page);
    } else {
        return 0;
    }
    return sizeof(*page);
}

static size_t sas_phy_page0(Mpt *s, uint32_t address, Mpi2SasPhyPage0_t *page)
{
    SCSIDevice *d = on_phy(s, address & MPI2_SAS_PHY_PGAD_PHY_NUMBER_MASK);

    page->OwnerDevHandle = CONTROLLER_HANDLE;
    page->AttachedDevHandle = handle_of(d);
    page->ProgrammedLinkRate = MPI25_SAS_PRATE_MAX_RATE_12_0 | MPI2_SAS_PRATE_MIN_RATE_3_0;
    page->HwLinkRate = MPI25_SAS_HWRATE_MAX_RATE_12_0 | MPI2_SAS_HWRATE_MIN_RATE_3_0;
    page->NegotiatedLinkRate = mpt_link_rate(d);
    return sizeof(*page);
}

static size_t pcie_device_page0(Mpt *s, uint32_t address, Mpi26PCIeDevicePage0_t *page)
{
    SCSIDevice *d = addressed(s, address, on_pcie);

    if (!d) {
        return 0;
    }
    page->WWID = wwid(s, d);
    page->DevHandle = handle_of(d);
    page->PortNum = page->PhysicalPort = d->id;
    page->DeviceInfo = MPI26_PCIE_DEVINFO_NVME | MPI26_PCIE_DEVINFO_DIRECT_ATTACH;
    page->Flags = MPI26_PCIEDEV0_FLAGS_DEVICE_PRESENT;
    page->SupportedLinkRates = MPI26_PCIEDEV0_LINK_RATE_8_0_SUPPORTED;
    page->MaxPortWidth = page->NegotiatedPortWidth = 4;
    page->NegotiatedLinkRate = MPI26_EVENT_PCIE_TOPO_PI_RATE_8_0;
    return sizeof(*page);
}

static size_t pcie_device_page2(Mpt *s, uint32_t address, Mpi26PCIeDevicePage2_t *page)
{
    SCSIDevice *d = addressed(s, address, on_pcie);

    if (!d) {
        return 0;
    }
    page->DevHandle = handle_of(d);
    page->MaximumDataTransferSize = s->mdts;
    return sizeof(*page);
}

static size_t extended_page(Mpt *s, const Mpi2ConfigRequest_t *r, void *page)
{
    uint32_t address = r->PageAddress;

#define PAGE(type, number) ((MPI2_CONFIG_EXTPAGETYPE_##type) << 8 | (number))
    switch (r->ExtPageType << 8 | r->Header.PageNumber) {
    case PAGE(SAS_IO_UNIT, 0):
        return sas_unit_page0(s, page);
    case PAGE(SAS_IO_UNIT, 1):
        return sas_unit_page1(s, page);
    case PAGE(PCIE_IO_UNIT, 1):
        return pcie_unit_page1(s, page);
    case PAGE(SAS_DEVICE, 0):
        return sas_device_page0(s, address, page);
    case PAGE(SAS_PHY, 0):
        return sas_phy_page0(s, address, page);
    case PAGE(SAS_PHY, 1): /* error counters: none has counted anything */
        return sizeof(Mpi2SasPhyPage1_t);
    case PAGE(PCIE_DEVICE, 0):
        return pcie_device_page0(s, address, page);
    case PAGE(PCIE_DEVICE, 2):
        return pcie_device_page2(s, address, page);
    }
#undef PAGE
    return 0;
}

/* A page that has its size alone: nothing in it matters. */
static size_t other_page(const Mpi2ConfigRequest_t *r)
{
#define PAGE(type, number) ((MPI2_CONFIG_PAGETYPE_##type) << 8 | (number))
    switch ((r->Header.PageType & MPI2_CONFIG_PAGETYPE_MASK) << 8 | r->Header.PageNumber) {
    case PAGE(MANUFACTURING, 11):
        return MANUFACTURING_11_SIZE;
    case PAGE(BIOS, 2):
        return sizeof(Mpi2BiosPage2_t);
    case PAGE(BIOS, 3):
        return sizeof(Mpi2BiosPage3_t);
    case PAGE(IOC, 8):
        return sizeof(Mpi2IOCPage8_t);
    case PAGE(IO_UNIT, 0):
        return sizeof(Mpi2IOUnitPage0_t);
    case PAGE(IO_UNIT, 1):
        return sizeof(Mpi2IOUnitPage1_t);
    case PAGE(IO_UNIT, 8):
        return sizeof(Mpi2IOUnitPage8_t);
    }
#undef PAGE
    return 0;
}

/* The size of a page that each drive has one of: the driver asks for it before it names a drive. */
static size_t size_of_addressed(const Mpi2ConfigRequest_t *r)
{
    switch (r->ExtPageType << 8 | r->Header.PageNumber) {
    case MPI2_CONFIG_EXTPAGETYPE_SAS_DEVICE << 8 | 0:
        return sizeof(Mpi2SasDevicePage0_t);
    case MPI2_CONFIG_EXTPAGETYPE_PCIE_DEVICE << 8 | 0:
        return sizeof(Mpi26PCIeDevicePage0_t);
    case MPI2_CONFIG_EXTPAGETYPE_PCIE_DEVICE << 8 | 2:
        return sizeof(Mpi26PCIeDevicePage2_t);
    }
    return 0;
}

/* Fill in a configuration page, but for its head; return its size, 0 for one there is not. */
size_t mpt_config_page(Mpt *s, const Mpi2ConfigRequest_t *r, void *page)
{
    unsigned type = r->Header.PageType & MPI2_CONFIG_PAGETYPE_MASK;
    size_t size = r->Action == MPI2_CONFIG_ACTION_PAGE_HEADER ? size_of_addressed(r) : 0;

    if (type == MPI2_CONFIG_PAGETYPE_EXTENDED) {
        return size ?: extended_page(s, r, page);
    }
    if (type == MPI2_CONFIG_PAGETYPE_IOC && r->Header.PageNumber == 1) {
        memcpy(page, &s->coalescing, sizeof(s->coalescing));
        return sizeof(s->coalescing);
    }
    if (type == MPI2_CONFIG_PAGETYPE_MANUFACTURING && r->Header.PageNumber == 0) {
        return manufacturing_page(page);
    }
    return other_page(r);
}
