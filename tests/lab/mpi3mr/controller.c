/*
 * A Broadcom tri-mode controller (SAS4116: eHBA 9600-24i) as a device of QEMU's: PCI, properties,
 * hot plug. README.md says what it models.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "controller.h"
#include "hw/hotplug.h"
#include "hw/pci/msix.h"
#include "hw/qdev-properties.h"
#include "qapi/error.h"
#include "qemu/main-loop.h"
#include "qemu/module.h"

enum {
    CARD_9600_24I = 0x4660, /* subsystem */
    BAR_REGISTERS = 0,
    BAR_SIZE = 0x4000,
    BAR_VECTORS = 2,
    LANES = 8,
    /* The driver refuses a controller whose serial number does not say that it is secure. */
    SERIAL_SECURE = 0x8,
};

SCSIDevice *mpi3_drive(Mpi3 *s, unsigned handle)
{
    return handle >= FIRST_HANDLE ? tri_drive(&s->drives, handle - FIRST_HANDLE) : NULL;
}

static void pre_plug(HotplugHandler *handler, DeviceState *dev, Error **errp)
{
    Mpi3 *s = MPI3(handler);
    SCSIDevice *d = SCSI_DEVICE(dev);

    if (!s->multipath && tri_has_phy(d) && d->id != -1 && d->id >= s->phys) {
        error_setg(errp, "a SAS or SATA drive needs a phy: scsi-id below %u", s->phys);
    }
}

static void plug(HotplugHandler *handler, DeviceState *dev, Error **errp)
{
    Mpi3 *s = MPI3(handler);

    if (s->ports_enabled && SCSI_DEVICE(dev)->lun == 0) {
        mpi3_announce(s, SCSI_DEVICE(dev));
    }
}

static void unplug(HotplugHandler *handler, DeviceState *dev, Error **errp)
{
    Mpi3 *s = MPI3(handler);

    if (s->ports_enabled && SCSI_DEVICE(dev)->lun == 0) {
        mpi3_announce_gone(s, SCSI_DEVICE(dev));
    }
    qdev_simple_device_unplug_cb(handler, dev, errp);
}

/* Whatever it is set to: say of all drives that something about them has changed. */
static void set_inform(Object *object, bool value, Error **errp)
{
    Mpi3 *s = MPI3(object);

    for (unsigned target = 0; s->ports_enabled && target < TARGETS; target++) {
        SCSIDevice *d = tri_drive(&s->drives, target);

        if (d) {
            mpi3_announce_changed(s, d);
        }
    }
}

static bool get_multipath(Object *object, Error **errp)
{
    return MPI3(object)->multipath;
}

static void set_multipath(Object *object, bool value, Error **errp)
{
    MPI3(object)->multipath = value;
}

static bool check_properties(Mpi3 *s, Error **errp)
{
    if (s->vectors < 1 || s->vectors > 1024 || s->queue_pairs < 1 ||
        s->queue_pairs > QUEUE_PAIRS || s->phys < 1 || s->phys > MAX_PHYS ||
        s->max_requests < 64 || s->max_requests > 16384) {
        error_setg(errp, "vectors, queue_pairs, phys or max_requests out of range");
        return false;
    }
    return true;
}

static void realize(PCIDevice *pci, Error **errp)
{
    Mpi3 *s = MPI3(pci);

    if (!check_properties(s, errp)) {
        return;
    }
    memory_region_init_io(&s->mmio, OBJECT(s), &mpi3_registers, s, TYPE_MPI3, BAR_SIZE);
    pci_register_bar(pci, BAR_REGISTERS,
                     PCI_BASE_ADDRESS_SPACE_MEMORY | PCI_BASE_ADDRESS_MEM_TYPE_64, &s->mmio);
    if (pcie_endpoint_cap_init(pci, 0) < 0 ||
        msix_init_exclusive_bar(pci, s->vectors, BAR_VECTORS, errp)) {
        return;
    }
    for (unsigned i = 0; i < s->vectors; i++) {
        msix_vector_use(pci, i);
    }
    tri_set_link(pci, LINK_16GT, LANES);
    pcie_dev_ser_num_init(pci, PCI_CONFIG_SPACE_SIZE, (s->sas_address & ~0xfull) | SERIAL_SECURE);
    s->work = qemu_bh_new_guarded(mpi3_work, s, &DEVICE(s)->mem_reentrancy_guard);
    drives_init(&s->drives, DEVICE(s));
}

static void leave(PCIDevice *pci)
{
    Mpi3 *s = MPI3(pci);

    mpi3_stop(s);
    qemu_bh_delete(s->work);
    msix_unuse_all_vectors(pci);
    msix_uninit_exclusive_bar(pci);
}

static void reset(DeviceState *dev)
{
    mpi3_power_on(MPI3(dev));
}

/* Unlike those below, these may be set while the guest runs, too: qom-set. */
static void init(Object *object)
{
    Mpi3 *s = MPI3(object);
    const struct {
        const char *name;
        uint32_t *value;
    } numbers[] = {
        { "fault", &s->fault },
        { "full_at", &s->drives.full_at },
        { "depth_sas", &s->depth_sas }, /* 0: the driver takes its own, 32 */
        { "depth_sata", &s->depth_sata },
        { "depth_nvme", &s->depth_nvme },
        { "depth_volume", &s->depth_volume },
        { "page", &s->page },
        { "page_requests", &s->page_requests },
        { "timeout", &s->coalescing.coalescing_timeout },
    };

    for (unsigned i = 0; i < ARRAY_SIZE(numbers); i++) {
        object_property_add_uint32_ptr(object, numbers[i].name, numbers[i].value,
                                       OBJ_PROP_FLAG_READWRITE);
    }
    object_property_add_uint8_ptr(object, "depth", &s->coalescing.coalescing_depth,
                                  OBJ_PROP_FLAG_READ);
    object_property_add_bool(object, "inform", NULL, set_inform);
    object_property_add_bool(object, "multipath", get_multipath, set_multipath);
}

static const Property properties[] = {
    DEFINE_PROP_UINT32("vectors", Mpi3, vectors, 128),
    DEFINE_PROP_UINT32("queue_pairs", Mpi3, queue_pairs, QUEUE_PAIRS),
    DEFINE_PROP_UINT32("max_requests", Mpi3, max_requests, 8023),
    DEFINE_PROP_UINT32("phys", Mpi3, phys, 24),
    DEFINE_PROP_UINT32("mdts", Mpi3, mdts, 1024 * 1024),
    DEFINE_PROP_UINT32("coalescing_timeout", Mpi3, own_timeout, 16),
    DEFINE_PROP_UINT32("coalescing_depth", Mpi3, own_depth, 4),
    DEFINE_PROP_UINT64("sas_address", Mpi3, sas_address, 0x500062b200000000),
};

static void class_init(ObjectClass *class, void *data)
{
    PCIDeviceClass *pci = PCI_DEVICE_CLASS(class);
    DeviceClass *device = DEVICE_CLASS(class);
    HotplugHandlerClass *hotplug = HOTPLUG_HANDLER_CLASS(class);

    pci->realize = realize;
    pci->exit = leave;
    pci->vendor_id = pci->subsystem_vendor_id = MPI3_MFGPAGE_VENDORID_BROADCOM;
    pci->device_id = MPI3_MFGPAGE_DEVID_SAS4116;
    pci->subsystem_id = CARD_9600_24I;
    pci->revision = 1;
    pci->class_id = PCI_CLASS_SAS;
    device_class_set_legacy_reset(device, reset);
    device->desc = "Broadcom SAS4116 tri-mode controller (eHBA 9600-24i)";
    device_class_set_props(device, properties);
    set_bit(DEVICE_CATEGORY_STORAGE, device->categories);
    hotplug->pre_plug = pre_plug;
    hotplug->plug = plug;
    hotplug->unplug = unplug;
}

static const TypeInfo info = {
    .name = TYPE_MPI3,
    .parent = TYPE_PCI_DEVICE,
    .instance_size = sizeof(Mpi3),
    .instance_init = init,
    .class_init = class_init,
    .interfaces = (InterfaceInfo[]) { { INTERFACE_PCIE_DEVICE }, { TYPE_HOTPLUG_HANDLER }, { } },
};

static void register_types(void)
{
    type_register_static(&info);
}

type_init(register_types)
