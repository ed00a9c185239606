/*
 * An IBM SAS RAID adapter (CCIN 57B4, 57B5, 57C4, 57CE) as a device of QEMU's: PCI, properties, hot
 * plug. README.md says what it models.
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
    BAR_REGISTERS = 0,
    BAR_SIZE = 0x10000,
    BAR_VECTORS = 2,
    LANES = 8,
};

/* Ids are those of the driver's table (ipr.c: ipr_pci_table). */
static const struct {
    uint16_t ccin, device, subsystem;
    bool cache;
} cards[] = {
    { 0x57b4, PCI_DEVICE_ID_IBM_CROCODILE, IPR_SUBS_DEV_ID_57B4, false },
    { 0x57ce, PCI_DEVICE_ID_IBM_CROCODILE, IPR_SUBS_DEV_ID_57CE, true },
    { 0x57b5, PCI_DEVICE_ID_IBM_CROC_FPGA_E2, IPR_SUBS_DEV_ID_57B5, true },
    { 0x57c4, PCI_DEVICE_ID_IBM_CROC_FPGA_E2, IPR_SUBS_DEV_ID_57C4, false },
};

static void pre_plug(HotplugHandler *handler, DeviceState *dev, Error **errp)
{
    DriveKind kind = tri_kind(SCSI_DEVICE(dev));

    if (kind != DRIVE_SAS) {
        error_setg(errp, "this firmware has SAS drives and volumes alone");
    }
}

static void plug(HotplugHandler *handler, DeviceState *dev, Error **errp)
{
    Ipr *s = IPR(handler);

    if (s->operational && SCSI_DEVICE(dev)->lun == 0) {
        ipr_tell(s, SCSI_DEVICE(dev), false);
    }
}

static void unplug(HotplugHandler *handler, DeviceState *dev, Error **errp)
{
    Ipr *s = IPR(handler);

    if (s->operational && SCSI_DEVICE(dev)->lun == 0) {
        ipr_tell(s, SCSI_DEVICE(dev), true);
    }
    qdev_simple_device_unplug_cb(handler, dev, errp);
}

static bool become_card(Ipr *s, Error **errp)
{
    for (unsigned i = 0; i < ARRAY_SIZE(cards); i++) {
        if (cards[i].ccin == s->ccin) {
            pci_config_set_device_id(s->pci.config, cards[i].device);
            pci_set_word(s->pci.config + PCI_SUBSYSTEM_ID, cards[i].subsystem);
            s->cache = cards[i].cache;
            return true;
        }
    }
    error_setg(errp, "ccin: 0x57b4, 0x57b5, 0x57c4 or 0x57ce");
    return false;
}

static void realize(PCIDevice *pci, Error **errp)
{
    Ipr *s = IPR(pci);

    if (!become_card(s, errp)) {
        return;
    }
    memory_region_init_io(&s->mmio, OBJECT(s), &ipr_registers, s, TYPE_IPR, BAR_SIZE);
    pci_register_bar(pci, BAR_REGISTERS,
                     PCI_BASE_ADDRESS_SPACE_MEMORY | PCI_BASE_ADDRESS_MEM_TYPE_64, &s->mmio);
    if (pcie_endpoint_cap_init(pci, 0) < 0 ||
        msix_init_exclusive_bar(pci, VECTORS, BAR_VECTORS, errp)) {
        return;
    }
    for (unsigned i = 0; i < VECTORS; i++) {
        msix_vector_use(pci, i);
    }
    tri_set_link(pci, LINK_8GT, LANES);
    drives_init(&s->drives, DEVICE(s));
}

static void leave(PCIDevice *pci)
{
    ipr_stop(IPR(pci));
    msix_unuse_all_vectors(pci);
    msix_uninit_exclusive_bar(pci);
}

static void reset(DeviceState *dev)
{
    ipr_stop(IPR(dev));
}

static bool get_fault(Object *object, Error **errp)
{
    return !IPR(object)->operational;
}

static void set_fault(Object *object, bool value, Error **errp)
{
    ipr_check_unit(IPR(object));
}

/* Unlike those below, these may be set while the guest runs, too: qom-set. */
static void init(Object *object)
{
    object_property_add_bool(object, "fault", get_fault, set_fault);
    object_property_add_uint32_ptr(object, "full_at", &IPR(object)->drives.full_at,
                                   OBJ_PROP_FLAG_READWRITE);
}

static const Property properties[] = {
    DEFINE_PROP_UINT32("ccin", Ipr, ccin, 0x57b4),
};

static void class_init(ObjectClass *class, void *data)
{
    PCIDeviceClass *pci = PCI_DEVICE_CLASS(class);
    DeviceClass *device = DEVICE_CLASS(class);
    HotplugHandlerClass *hotplug = HOTPLUG_HANDLER_CLASS(class);

    pci->realize = realize;
    pci->exit = leave;
    pci->vendor_id = pci->subsystem_vendor_id = PCI_VENDOR_ID_IBM;
    pci->device_id = cards[0].device;
    pci->subsystem_id = cards[0].subsystem;
    pci->revision = 1;
    pci->class_id = PCI_CLASS_STORAGE_RAID;
    device_class_set_legacy_reset(device, reset);
    device->desc = "IBM SAS RAID adapter (SIS-64)";
    device_class_set_props(device, properties);
    set_bit(DEVICE_CATEGORY_STORAGE, device->categories);
    hotplug->pre_plug = pre_plug;
    hotplug->plug = plug;
    hotplug->unplug = unplug;
}

static const TypeInfo info = {
    .name = TYPE_IPR,
    .parent = TYPE_PCI_DEVICE,
    .instance_size = sizeof(Ipr),
    .instance_init = init,
    .class_init = class_init,
    .interfaces = (InterfaceInfo[]) { { INTERFACE_PCIE_DEVICE }, { TYPE_HOTPLUG_HANDLER }, { } },
};

static void register_types(void)
{
    type_register_static(&info);
}

type_init(register_types)
