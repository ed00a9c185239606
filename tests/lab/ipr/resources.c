/*
 * Resources, as the card calls all that it has: itself, drives, volumes, and the members of these.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "controller.h"
#include "scsi/constants.h"

/* Handles are the card's own: of a drive or volume by its SCSI id, of a member by its volume's. */
enum {
    DRIVE = 0x10000,
    MEMBER = 0x20000,
    KIND = 0xff0000,
    PATH_DRIVES = 0x00, /* first bytes of resource paths */
    PATH_VOLUMES = 0xfc,
    PATH_CARD = 0xfe,
    PATH_END = 0xff,
};

#define DEVICE_IDS 0x5005076c00000000ull

/* Drives in an array of each RAID level (document 004: IBM AIX Performance). */
static const struct {
    unsigned level, members;
} arrays[] = { { 0, 1 }, { 5, 3 }, { 6, 4 }, { 10, 2 } };

/* The number of drives in a volume; 0 for what is no volume. A volume is called IPR-LEVEL. */
static unsigned members_of(SCSIDevice *d)
{
    g_autofree char *product = object_property_get_str(OBJECT(d), "product", NULL);
    unsigned level;

    if (product && sscanf(product, "IPR-%u", &level) == 1) {
        for (unsigned i = 0; i < ARRAY_SIZE(arrays); i++) {
            if (arrays[i].level == level) {
                return arrays[i].members;
            }
        }
    }
    return 0;
}

bool ipr_is_volume(SCSIDevice *d)
{
    return members_of(d) > 0;
}

/* The drive or volume with this handle. */
SCSIDevice *ipr_drive(Ipr *s, uint32_t handle)
{
    return (handle & KIND) == DRIVE ? tri_drive(&s->drives, handle & 0xff) : NULL;
}

/* Whether a handle is the card's, or of a drive in an array: no drive of QEMU's stands behind. */
bool ipr_is_own(Ipr *s, uint32_t handle)
{
    SCSIDevice *volume = ipr_drive(s, DRIVE | (handle >> 8 & 0xff));

    return handle == IPR_IOA_RES_HANDLE ||
           ((handle & ~0xffffu) == MEMBER && volume && (handle & 0xff) < members_of(volume));
}

static void copy_padded(uint8_t *to, size_t size, const char *text)
{
    memset(to, ' ', size);
    memcpy(to, text, MIN(strlen(text), size));
}

/* Fill in what a resource says to INQUIRY. */
void ipr_standard_inquiry(Ipr *s, uint32_t handle, struct ipr_std_inq_data *data)
{
    SCSIDevice *d = ipr_drive(s, handle);
    g_autofree char *card = g_strdup_printf("%04X001SISIOA", s->ccin);
    g_autofree char *vendor = d ? object_property_get_str(OBJECT(d), "vendor", NULL) : NULL;
    g_autofree char *product = d ? object_property_get_str(OBJECT(d), "product", NULL) : NULL;
    bool own = handle == IPR_IOA_RES_HANDLE;

    *data = (struct ipr_std_inq_data) {
        .peri_qual_dev_type = own ? TYPE_NO_LUN & 0x1f : TYPE_DISK,
        .version = 4,
        .aen_naca_fmt = 2,
        .additional_len = sizeof(*data) - 5,
    };
    copy_padded(data->vpids.vendor_id, sizeof(data->vpids.vendor_id), vendor ?: "IBM");
    copy_padded(data->vpids.product_id, sizeof(data->vpids.product_id),
                product ?: own ? card : "LAB-MEMBER");
    copy_padded(data->serial_num, sizeof(data->serial_num), "LAB");
}

static void describe(Ipr *s, uint32_t handle, uint8_t type, const uint8_t path[IPR_RES_PATH_BYTES],
                     struct ipr_config_table_entry64 *entry)
{
    *entry = (struct ipr_config_table_entry64) {
        .res_type = type,
        .res_handle = cpu_to_be32(handle),
        .dev_id = cpu_to_be64(DEVICE_IDS | handle),
    };
    memcpy(&entry->res_path, path, IPR_RES_PATH_BYTES);
    ipr_standard_inquiry(s, handle, &entry->std_inq_data);
}

static void describe_drive(Ipr *s, SCSIDevice *d, struct ipr_config_table_entry64 *entry)
{
    bool volume = ipr_is_volume(d);
    uint8_t path[IPR_RES_PATH_BYTES] = {
        volume ? PATH_VOLUMES : PATH_DRIVES, 0, d->id, PATH_END,
    };

    describe(s, DRIVE | d->id, volume ? IPR_RES_TYPE_VOLUME_SET : IPR_RES_TYPE_GENERIC_SCSI, path,
             entry);
}

static void describe_member(Ipr *s, SCSIDevice *volume, unsigned which,
                            struct ipr_config_table_entry64 *entry)
{
    uint8_t path[IPR_RES_PATH_BYTES] = { PATH_DRIVES, 1, volume->id, which, PATH_END };

    describe(s, MEMBER | volume->id << 8 | which, IPR_RES_TYPE_AF_DASD, path, entry);
}

/* Make the table of all resources; return its size. */
size_t ipr_config_table(Ipr *s, struct ipr_config_table64 **table)
{
    const uint8_t path[IPR_RES_PATH_BYTES] = { PATH_CARD, PATH_END };
    struct ipr_config_table_entry64 *entry;
    size_t count;

    *table = g_malloc0(sizeof(**table) + IPR_DEFAULT_SIS64_DEVS * sizeof(*entry));
    entry = (*table)->dev;
    describe(s, IPR_IOA_RES_HANDLE, IPR_RES_TYPE_IOAFP, path, entry++);
    for (unsigned id = 0; id < TARGETS; id++) {
        SCSIDevice *d = tri_drive(&s->drives, id);

        if (d) {
            describe_drive(s, d, entry++);
            for (unsigned which = 0; which < members_of(d); which++) {
                describe_member(s, d, which, entry++);
            }
        }
    }
    count = entry - (*table)->dev;
    (*table)->hdr64.num_entries = cpu_to_be16(count);
    return sizeof(**table) + count * sizeof(*entry);
}

/* Tell the driver that a drive has come or gone, if it has left a command for that. */
void ipr_tell(Ipr *s, SCSIDevice *d, bool gone)
{
    struct ipr_hcam news = {
        .op_code = IPR_HOST_RCB_OP_CODE_CONFIG_CHANGE,
        .notify_type = gone ? IPR_HOST_RCB_NOTIF_TYPE_REM_ENTRY : IPR_HOST_RCB_NOTIF_TYPE_NEW_ENTRY,
        .length = cpu_to_be32(sizeof(news.u.ccn)),
    };

    describe_drive(s, d, &news.u.ccn.u.cfgte64);
    ipr_answer_parked(s, IPR_HCAM_CDB_OP_CODE_CONFIG_CHANGE, &news,
                      offsetof(struct ipr_hcam, u) + sizeof(news.u.ccn.u.cfgte64));
}
