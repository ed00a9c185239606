/*
 * A Broadcom tri-mode controller (SAS3416: HBA 9400-16i) as a device of QEMU's: PCI, properties,
 * hot plug. README.md says what it models.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "controller.h"
#include "hw/hotplug.h"
#include "hw/pci/msix.h"
#include "hw/qdev-properties.h"
#include "qapi/error.h"
#include "qemu/module.h"

enum {
    CARD_9400_16I = 0x3000, /* subsystem */
    BAR_REGISTERS = 0,
    BAR_SIZE = 0x10000,
    BAR_VECTORS = 2,
    LANES = 8,
};

SCSIDevice *mpt_drive(Mpt *s, unsigned handle)
{
    return handle >= FIRST_HANDLE ? tri_drive(&s->drives, handle - FIRST_HANDLE) : NULL;
}

static void pre_plug(HotplugHandler *handler, DeviceState *dev, Error **errp)
{
    Mpt *s = MPT(handler);
    SCSIDevice *d = SCSI_DEVICE(dev);

    if (tri_kind(d) == DRIVE_VOLUME) {
        error_setg(errp, "this firmware has no RAID volumes");
    } else if (tri_has_phy(d) && d->id != -1 && d->id >= s->phys) {
        error_setg(errp, "a SAS or SATA drive needs a phy: scsi-id below %u", s->phys);
    }
}

static void plug(HotplugHandler *handler, DeviceState *dev, Error **errp)
{
    Mpt *s = MPT(handler);

    if (s->ports_enabled && SCSI_DEVICE(dev)->lun == 0) {
        mpt_announce(s, SCSI_DEVICE(dev));
    }
}

static void unplug(HotplugHandler *handler, DeviceState *dev, Error **errp)
{
    Mpt *s = MPT(handler);

    if (s->ports_enabled && SCSI_DEVICE(dev)->lun == 0) {
        mpt_announce_gone(s, SCSI_DEVICE(dev));
    }
    qdev_simple_device_unplug_cb(handler, dev, errp);
}

static void realize(PCIDevice *pci, Error **errp)
{
    Mpt *s = MPT(pci);

    if (s->vectors < 1 || s->vectors > VECTORS || s->phys < 1 || s->phys > MAX_PHYS ||
        s->max_requests < 256 || s->max_requests > 30000) {
        error_setg(errp, "vectors, phys or max_requests out of range");
        return;
    }
    memory_region_init_io(&s->mmio, OBJECT(s), &mpt_registers, s, TYPE_MPT, BAR_SIZE);
    pci_register_bar(pci, BAR_REGISTERS,
                     PCI_BASE_ADDRESS_SPACE_MEMORY | PCI_BASE_ADDRESS_MEM_TYPE_64, &s->mmio);
    if (pcie_endpoint_cap_init(pci, 0) < 0 ||
        msix_init_exclusive_bar(pci, s->vectors, BAR_VECTORS, errp)) {
        return;
    }
    for (unsigned i = 0; i < s->vectors; i++) {
        msix_vector_use(pci, i);
    }
    tri_set_link(pci, LINK_8GT, LANES);
    drives_init(&s->drives, DEVICE(s));
}

static void leave(PCIDevice *pci)
{
    mpt_stop(MPT(pci));
    msix_unuse_all_vectors(pci);
    msix_uninit_exclusive_bar(pci);
}

static void reset(DeviceState *dev)
{
    mpt_power_on(MPT(dev));
}

/* Unlike those below, these may be set while the guest runs, too: qom-set. */
static void init(Object *object)
{
    Mpt *s = MPT(object);
    const struct {
        const char *name;
        uint32_t *value;
    } numbers[] = {
        { "fault", &s->fault },
        { "full_at", &s->drives.full_at },
        { "depth_sas", &s->depth_sas }, /* 0: the driver takes its own: 254, 32 and 128 */
        { "depth_sata", &s->depth_sata },
        { "depth_nvme", &s->depth_nvme },
        { "page", &s->page },
        { "page_requests", &s->page_requests },
        { "timeout", &s->coalescing.CoalescingTimeout },
        { "flags", &s->coalescing.Flags },
    };

    for (unsigned i = 0; i < ARRAY_SIZE(numbers); i++) {
        object_property_add_uint32_ptr(object, numbers[i].name, numbers[i].value,
                                       OBJ_PROP_FLAG_READWRITE);
    }
    object_property_add_uint8_ptr(object, "depth", &s->coalescing.CoalescingDepth,
                                  OBJ_PROP_FLAG_READ);
}

static const Property properties[] = {
    DEFINE_PROP_UINT32("vectors", Mpt, vectors, VECTORS),
    DEFINE_PROP_UINT32("max_requests", Mpt, max_requests, 4000),
    DEFINE_PROP_UINT32("phys", Mpt, phys, MAX_PHYS),
    DEFINE_PROP_UINT32("mdts", Mpt, mdts, 1024 * 1024),
    DEFINE_PROP_UINT32("coalescing_timeout", Mpt, own_timeout, 16),
    DEFINE_PROP_UINT32("coalescing_depth", Mpt, own_depth, 4),
    DEFINE_PROP_UINT64("sas_address", Mpt, sas_address, 0x500605b000000000),
};

static void class_init(ObjectClass *class, void *data)
{
    PCIDeviceClass *pci = PCI_DEVICE_CLASS(class);
    DeviceClass *device = DEVICE_CLASS(class);
    HotplugHandlerClass *hotplug = HOTPLUG_HANDLER_CLASS(class);

    pci->realize = realize;
    pci->exit = leave;
    pci->vendor_id = pci->subsystem_vendor_id = MPI2_MFGPAGE_VENDORID_LSI;
    pci->device_id = MPI26_MFGPAGE_DEVID_SAS3416;
    pci->subsystem_id = CARD_9400_16I;
    pci->revision = 1;
    pci->class_id = PCI_CLASS_SAS;
    device_class_set_legacy_reset(device, reset);
    device->desc = "Broadcom SAS3416 tri-mode controller (HBA 9400-16i)";
    device_class_set_props(device, properties);
    set_bit(DEVICE_CATEGORY_STORAGE, device->categories);
    hotplug->pre_plug = pre_plug;
    hotplug->plug = plug;
    hotplug->unplug = unplug;
}

static const TypeInfo info = {
    .name = TYPE_MPT,
    .parent = TYPE_PCI_DEVICE,
    .instance_size = sizeof(Mpt),
    .instance_init = init,
    .class_init = class_init,
    .interfaces = (InterfaceInfo[]) { { INTERFACE_PCIE_DEVICE }, { TYPE_HOTPLUG_HANDLER }, { } },
};

static void register_types(void)
{
    type_register_static(&info);
}

type_init(register_types)
