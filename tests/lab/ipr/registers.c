/*
 * The registers: interrupts and their masks, what the driver asks of the card's processor, resets.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "controller.h"
#include "hw/pci/msix.h"

/* Where the driver expects them, for lack of names in its header (ipr.c: ipr_chip_cfg, CRoC). Of
 * those with two halves it is the upper half. */
enum {
    SENSE_INTERRUPT = 0x00,
    CLEAR_INTERRUPT = 0x08,
    SET_MASK = 0x10,
    CLEAR_MASK = 0x18,
    PROCESSOR = 0x24,
    CLEAR_PROCESSOR = 0x2c,
    FEEDBACK = 0x5c,
    REQUEST = 0x70,
    LOWER = 4,
};

/* Interrupt where something is unmasked; all but answers come with the first vector. */
static void interrupt(Ipr *s)
{
    if (s->interrupts.upper & ~s->masks.upper || s->interrupts.lower & ~s->masks.lower) {
        msix_notify(&s->pci, 0);
    }
}

/* Forget what the driver has said, and reset the drives: the built-in self-test, in no time. */
void ipr_stop(Ipr *s)
{
    s->interrupts = (Register) { 0 };
    s->masks = (Register) { .upper = ~0u, .lower = ~0u };
    s->processor = s->feedback = 0;
    s->operational = false;
    s->parked_count = 0;
    memset(s->queue, 0, sizeof(s->queue));
    drives_reset(&s->drives);
}

/* The card's processor has come across what it cannot go on with. */
void ipr_check_unit(Ipr *s)
{
    s->operational = false;
    s->interrupts.lower |= IPR_PCII_IOA_UNIT_CHECKED;
    interrupt(s);
}

static void ask_processor(Ipr *s, uint32_t value)
{
    s->processor |= value;
    if (value & IPR_UPROCI_SIS64_START_BIST) {
        ipr_stop(s);
    } else if ((value & IPR_DOORBELL) == IPR_DOORBELL) {
        s->operational = true;
        s->feedback = IPR_IPL_INIT_STAGE_TRANSOP | IPR_IPL_INIT_MIN_STAGE_TIME;
        s->interrupts.lower |= IPR_PCII_IOA_TRANS_TO_OPER;
        interrupt(s);
    }
}

static uint32_t read_half(Ipr *s, hwaddr at)
{
    switch (at) {
    case SENSE_INTERRUPT:
        return s->interrupts.upper;
    case SENSE_INTERRUPT + LOWER:
        return s->interrupts.lower;
    case SET_MASK:
        return s->masks.upper;
    case SET_MASK + LOWER:
        return s->masks.lower;
    case PROCESSOR:
        return s->processor;
    case FEEDBACK:
        return s->feedback;
    }
    return 0;
}

static void write_half(Ipr *s, hwaddr at, uint32_t value)
{
    switch (at) {
    case SENSE_INTERRUPT + LOWER: /* how the driver tries whether interrupts arrive */
        s->interrupts.lower |= value;
        interrupt(s);
        break;
    case CLEAR_INTERRUPT:
        s->interrupts.upper &= ~value;
        break;
    case CLEAR_INTERRUPT + LOWER:
        s->interrupts.lower &= ~value;
        break;
    case SET_MASK:
        s->masks.upper |= value;
        break;
    case SET_MASK + LOWER:
        s->masks.lower |= value;
        break;
    case CLEAR_MASK:
        s->masks.upper &= ~value;
        interrupt(s);
        break;
    case CLEAR_MASK + LOWER:
        s->masks.lower &= ~value;
        interrupt(s);
        break;
    case PROCESSOR:
        ask_processor(s, value);
        break;
    case CLEAR_PROCESSOR:
        s->processor &= ~value;
        break;
    }
}

static uint64_t read_register(void *opaque, hwaddr at, unsigned size)
{
    Ipr *s = opaque;

    return size == 8 ? (uint64_t)read_half(s, at) << 32 | read_half(s, at + LOWER)
                     : read_half(s, at);
}

static void write_register(void *opaque, hwaddr at, uint64_t value, unsigned size)
{
    Ipr *s = opaque;

    if (at == REQUEST) {
        ipr_take_request(s, value);
    } else if (size == 8) {
        write_half(s, at, value >> 32);
        write_half(s, at + LOWER, value);
    } else {
        write_half(s, at, value);
    }
}

const MemoryRegionOps ipr_registers = {
    .read = read_register,
    .write = write_register,
    .endianness = DEVICE_LITTLE_ENDIAN,
    .valid = { .min_access_size = 4, .max_access_size = 8 },
    .impl = { .min_access_size = 4, .max_access_size = 8 }, /* a request comes as a whole */
};
