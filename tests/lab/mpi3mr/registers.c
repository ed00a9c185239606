/*
 * The registers: how the driver resets, starts and stops the controller, and rings its doorbells.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "controller.h"
#include "qemu/main-loop.h"

#define READY_TIMEOUT_UNITS 60u /* of two seconds: what the driver waits for a controller */

/* Entries of 2^7 bytes for a request and of 2^4 for a reply descriptor. */
#define ENTRY_SIZES                                           \
    (7u << MPI3_SYSIF_IOC_CONFIG_OPER_REQ_ENT_SZ_SHIFT |      \
     4u << MPI3_SYSIF_IOC_CONFIG_OPER_RPY_ENT_SZ_SHIFT)

uint32_t *mpi3_register(Mpi3 *s, unsigned offset)
{
    return &s->registers[offset / sizeof(uint32_t)];
}

static uint32_t *status(Mpi3 *s)
{
    return mpi3_register(s, MPI3_SYSIF_IOC_STATUS_OFFSET);
}

static uint64_t address(Mpi3 *s, unsigned low)
{
    return *mpi3_register(s, low) | (uint64_t)*mpi3_register(s, low + 4) << 32;
}

bool mpi3_ready(Mpi3 *s)
{
    return *status(s) & MPI3_SYSIF_IOC_STATUS_READY;
}

/* Forget queues, requests and what the driver knows of the drives, and reset those. */
void mpi3_stop(Mpi3 *s)
{
    *status(s) &= ~MPI3_SYSIF_IOC_STATUS_READY;
    s->events = s->ports_enabled = false;
    memset(s->request, 0, sizeof(s->request));
    memset(s->reply, 0, sizeof(s->reply));
    memset(&s->reply_free, 0, sizeof(s->reply_free));
    memset(&s->sense_free, 0, sizeof(s->sense_free));
    s->coalescing = (struct mpi3_ioc_page1) {
        .coalescing_timeout = s->own_timeout,
        .coalescing_depth = s->own_depth,
    };
    drives_reset(&s->drives);
}

/* Take the admin queues that the driver has put into the registers. */
static void start(Mpi3 *s)
{
    uint32_t entries = *mpi3_register(s, MPI3_SYSIF_ADMIN_Q_NUM_ENTRIES_OFFSET);
    uint32_t requests = entries & MPI3_SYSIF_ADMIN_Q_NUM_ENTRIES_REQ_MASK;
    uint32_t replies = (entries & MPI3_SYSIF_ADMIN_Q_NUM_ENTRIES_REPLY_MASK) >>
                       MPI3_SYSIF_ADMIN_Q_NUM_ENTRIES_REPLY_SHIFT;

    s->admin = (RequestQueue) {
        .ring = {
            .base = address(s, MPI3_SYSIF_ADMIN_REQ_Q_ADDR_LOW_OFFSET),
            .size = requests,
            .element = FRAME,
        },
    };
    s->admin_reply = (ReplyQueue) {
        .ring = {
            .base = address(s, MPI3_SYSIF_ADMIN_REPLY_Q_ADDR_LOW_OFFSET),
            .size = replies,
            .element = REPLY_DESCRIPTOR,
        },
        .phase = MPI3_REPLY_DESCRIPT_FLAGS_PHASE_MASK,
        .interrupts = true,
    };
    *status(s) &= ~MPI3_SYSIF_IOC_STATUS_SHUTDOWN_MASK;
    if (requests && replies) {
        *status(s) |= MPI3_SYSIF_IOC_STATUS_READY;
    }
}

static void soft_reset(Mpi3 *s)
{
    mpi3_stop(s);
    memset(s->registers, 0, sizeof(s->registers));
    s->fault = s->key = 0;
    *mpi3_register(s, MPI3_SYSIF_IOC_INFO_LOW_OFFSET) =
        READY_TIMEOUT_UNITS << MPI3_SYSIF_IOC_INFO_LOW_TIMEOUT_SHIFT;
    *mpi3_register(s, offsetof(struct mpi3_sysif_registers, version)) =
        MPI3_VERSION_MAJOR << 24 | MPI3_VERSION_UNIT << 8;
    *mpi3_register(s, MPI3_SYSIF_IOC_CONFIG_OFFSET) = ENTRY_SIZES;
    *status(s) = MPI3_SYSIF_IOC_STATUS_RESET_HISTORY;
}

/* As a soft reset, of which nobody asked for. */
void mpi3_power_on(Mpi3 *s)
{
    soft_reset(s);
    *status(s) = 0;
}

static void write_config(Mpi3 *s, uint32_t value)
{
    uint32_t *config = mpi3_register(s, MPI3_SYSIF_IOC_CONFIG_OFFSET);
    bool was_enabled = *config & MPI3_SYSIF_IOC_CONFIG_ENABLE_IOC;
    bool enabled = value & MPI3_SYSIF_IOC_CONFIG_ENABLE_IOC;

    if (value & MPI3_SYSIF_IOC_CONFIG_SHUTDOWN_NORMAL) {
        value &= ~(MPI3_SYSIF_IOC_CONFIG_SHUTDOWN_MASK |
                   MPI3_SYSIF_IOC_CONFIG_DEVICE_SHUTDOWN_SEND_REQ);
        *status(s) |= MPI3_SYSIF_IOC_STATUS_SHUTDOWN_COMPLETE;
    }
    *config = value;
    if (enabled && !was_enabled) {
        start(s);
    } else if (was_enabled && !enabled) {
        mpi3_stop(s);
        *status(s) |= MPI3_SYSIF_IOC_STATUS_RESET_HISTORY;
    }
}

/* Diagnostic writes, resets among them, are for those who know the sequence. */
static void write_sequence(Mpi3 *s, uint32_t value)
{
    static const uint8_t sequence[] = {
        MPI3_SYSIF_WRITE_SEQUENCE_KEY_VALUE_1ST, MPI3_SYSIF_WRITE_SEQUENCE_KEY_VALUE_2ND,
        MPI3_SYSIF_WRITE_SEQUENCE_KEY_VALUE_3RD, MPI3_SYSIF_WRITE_SEQUENCE_KEY_VALUE_4TH,
        MPI3_SYSIF_WRITE_SEQUENCE_KEY_VALUE_5TH, MPI3_SYSIF_WRITE_SEQUENCE_KEY_VALUE_6TH,
    };

    s->key = s->key < sizeof(sequence) && value == sequence[s->key] ? s->key + 1 : 0;
    *mpi3_register(s, MPI3_SYSIF_HOST_DIAG_OFFSET) =
        s->key == sizeof(sequence) ? MPI3_SYSIF_HOST_DIAG_DIAG_WRITE_ENABLE : 0;
}

static void write_diagnostic(Mpi3 *s, uint32_t value)
{
    if (!(*mpi3_register(s, MPI3_SYSIF_HOST_DIAG_OFFSET) &
          MPI3_SYSIF_HOST_DIAG_DIAG_WRITE_ENABLE)) {
        return;
    }
    switch (value & MPI3_SYSIF_HOST_DIAG_RESET_ACTION_MASK) {
    case MPI3_SYSIF_HOST_DIAG_RESET_ACTION_SOFT_RESET:
        soft_reset(s);
        break;
    case MPI3_SYSIF_HOST_DIAG_RESET_ACTION_DIAG_FAULT:
        s->fault = MPI3_SYSIF_FAULT_CODE_DIAG_FAULT_RESET;
        break;
    }
}

static bool is_doorbell(hwaddr at)
{
    return at >= MPI3_SYSIF_ADMIN_REQ_Q_PI_OFFSET &&
           at < MPI3_SYSIF_OPER_REQ_Q_N_PI_OFFSET(QUEUE_PAIRS + 1);
}

static uint64_t read_register(void *opaque, hwaddr at, unsigned size)
{
    Mpi3 *s = opaque;

    if (at >= REGISTERS) {
        return 0;
    }
    if (at == MPI3_SYSIF_FAULT_OFFSET) {
        return s->fault;
    }
    if (at == MPI3_SYSIF_IOC_STATUS_OFFSET && s->fault) {
        return (*status(s) & ~MPI3_SYSIF_IOC_STATUS_READY) | MPI3_SYSIF_IOC_STATUS_FAULT;
    }
    return *mpi3_register(s, at);
}

static void write_register(void *opaque, hwaddr at, uint64_t value, unsigned size)
{
    Mpi3 *s = opaque;

    switch (at) {
    case MPI3_SYSIF_IOC_CONFIG_OFFSET:
        write_config(s, value);
        break;
    case MPI3_SYSIF_IOC_STATUS_OFFSET:
        *status(s) &= ~(value & MPI3_SYSIF_IOC_STATUS_RESET_HISTORY);
        break;
    case MPI3_SYSIF_WRITE_SEQUENCE_OFFSET:
        write_sequence(s, value);
        break;
    case MPI3_SYSIF_HOST_DIAG_OFFSET:
        write_diagnostic(s, value);
        break;
    default:
        if (at < REGISTERS) {
            *mpi3_register(s, at) = value;
        }
        if (is_doorbell(at)) {
            qemu_bh_schedule(s->work);
        }
    }
}

const MemoryRegionOps mpi3_registers = {
    .read = read_register,
    .write = write_register,
    .endianness = DEVICE_LITTLE_ENDIAN,
    .valid = { .min_access_size = 4, .max_access_size = 8 },
    .impl = { .min_access_size = 4, .max_access_size = 4 },
};
