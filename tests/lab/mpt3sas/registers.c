/*
 * The registers: the doorbell with its handshake, resets, and the way in for requests.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "controller.h"

#define REGISTER(name) offsetof(Mpi2SystemInterfaceRegs_t, name)

bool mpt_runs(Mpt *s)
{
    return s->state == MPI2_IOC_STATE_OPERATIONAL && !s->fault;
}

/* Forget queues, requests and what the driver knows of the drives, and reset those. */
void mpt_stop(Mpt *s)
{
    s->state = MPI2_IOC_STATE_READY;
    s->ports_enabled = false;
    s->interrupt_status = 0;
    memset(&s->handshake, 0, sizeof(s->handshake));
    memset(s->event_masks, 0xff, sizeof(s->event_masks));
    memset(s->reply, 0, sizeof(s->reply));
    s->reply_queues = s->reply_free_size = 0;
    s->coalescing = (Mpi2IOCPage1_t) {
        .Flags = MPI2_IOCPAGE1_REPLY_COALESCING,
        .CoalescingTimeout = s->own_timeout,
        .CoalescingDepth = s->own_depth,
        .PCISlotNum = MPI2_IOCPAGE1_PCISLOTNUM_UNKNOWN,
    };
    drives_reset(&s->drives);
}

void mpt_power_on(Mpt *s)
{
    mpt_stop(s);
    s->fault = s->key = s->diagnostic = 0;
}

/* Tell the driver that it finds something in the doorbell. */
static void ring(Mpt *s)
{
    s->interrupt_status |= MPI2_HIS_IOC2SYS_DB_STATUS;
}

static void answer_handshake(Mpt *s)
{
    Handshake *h = &s->handshake;

    h->length = mpt_handshake(s, h->request, h->reply) / sizeof(h->reply[0]);
    h->sent = 0;
    ring(s);
}

static void begin_handshake(Mpt *s, unsigned words)
{
    if (words && words <= ARRAY_SIZE(s->handshake.request)) {
        s->handshake = (Handshake) { .expected = words, .used = true };
        ring(s);
    }
}

static void write_doorbell(Mpt *s, uint32_t value)
{
    Handshake *h = &s->handshake;

    if (s->fault) {
        return;
    }
    if (h->used && h->received < h->expected) {
        h->request[h->received++] = value;
        if (h->received == h->expected) {
            answer_handshake(s);
        }
        return;
    }
    switch (value >> MPI2_DOORBELL_FUNCTION_SHIFT) {
    case MPI2_FUNCTION_HANDSHAKE:
        begin_handshake(s, (value & MPI2_DOORBELL_ADD_DWORDS_MASK) >>
                           MPI2_DOORBELL_ADD_DWORDS_SHIFT);
        break;
    case MPI2_FUNCTION_IOC_MESSAGE_UNIT_RESET:
        mpt_stop(s);
        break;
    }
}

static uint32_t read_doorbell(Mpt *s)
{
    const Handshake *h = &s->handshake;

    if (s->fault) {
        return MPI2_IOC_STATE_FAULT | (s->fault & MPI2_DOORBELL_FAULT_CODE_MASK);
    }
    return s->state | (h->used ? MPI2_DOORBELL_USED : 0) |
           (h->sent < h->length ? h->reply[h->sent] : 0);
}

/* The driver has seen what was in the doorbell: the next half of a word follows, or the end. */
static void acknowledge(Mpt *s)
{
    Handshake *h = &s->handshake;

    s->interrupt_status = 0;
    if (h->sent < h->length) {
        h->sent++;
        h->used = h->sent < h->length;
        ring(s);
    }
}

/* Diagnostic writes, resets among them, are for those who know the sequence. */
static void write_sequence(Mpt *s, uint32_t value)
{
    static const uint8_t sequence[] = {
        MPI2_WRSEQ_1ST_KEY_VALUE, MPI2_WRSEQ_2ND_KEY_VALUE, MPI2_WRSEQ_3RD_KEY_VALUE,
        MPI2_WRSEQ_4TH_KEY_VALUE, MPI2_WRSEQ_5TH_KEY_VALUE, MPI2_WRSEQ_6TH_KEY_VALUE,
    };

    s->key = s->key < sizeof(sequence) && value == sequence[s->key] ? s->key + 1 : 0;
    s->diagnostic = s->key == sizeof(sequence) ? MPI2_DIAG_DIAG_WRITE_ENABLE : 0;
}

static void write_diagnostic(Mpt *s, uint32_t value)
{
    if (s->diagnostic & MPI2_DIAG_DIAG_WRITE_ENABLE && value & MPI2_DIAG_RESET_ADAPTER) {
        mpt_power_on(s);
        s->diagnostic = MPI2_DIAG_RESET_HISTORY;
    }
}

static uint64_t read_register(void *opaque, hwaddr at, unsigned size)
{
    Mpt *s = opaque;

    switch (at) {
    case REGISTER(Doorbell):
        return read_doorbell(s);
    case REGISTER(HostDiagnostic):
        return s->diagnostic;
    case REGISTER(HostInterruptStatus):
        return s->interrupt_status;
    }
    return 0;
}

static void write_register(void *opaque, hwaddr at, uint64_t value, unsigned size)
{
    Mpt *s = opaque;

    switch (at) {
    case REGISTER(Doorbell):
        write_doorbell(s, value);
        break;
    case REGISTER(WriteSequence):
        write_sequence(s, value);
        break;
    case REGISTER(HostDiagnostic):
        write_diagnostic(s, value);
        break;
    case REGISTER(HostInterruptStatus):
        acknowledge(s);
        break;
    case REGISTER(ReplyFreeHostIndex):
        s->reply_free_host_index = value;
        break;
    case REGISTER(RequestDescriptorPostLow):
        mpt_take_request(s, value);
        break;
    }
}

const MemoryRegionOps mpt_registers = {
    .read = read_register,
    .write = write_register,
    .endianness = DEVICE_LITTLE_ENDIAN,
    .valid = { .min_access_size = 4, .max_access_size = 8 },
    .impl = { .min_access_size = 4, .max_access_size = 8 }, /* a descriptor comes as a whole */
};
