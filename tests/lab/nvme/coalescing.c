/*
 * Interrupt coalescing, set and read: features 08h and 09h of the NVMe base specification. Nothing
 * is gathered, since nothing here measures when an interrupt comes.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "coalescing.h"
#include "block/nvme.h"

enum {
    VECTOR = 0xffff,  /* bits of Interrupt Vector Configuration that name the vector */
    EXEMPT = 1 << 16, /* Coalescing Disable */
};

/* A reset forgets both, but that the admin queue's vector is exempt. */
void coalescing_reset(Coalescing *c)
{
    c->setting = 0;
    bitmap_zero(c->exempt, COALESCED_VECTORS);
    set_bit(0, c->exempt);
}

/* Set either feature; return the status of the command. */
uint16_t coalescing_set(Coalescing *c, uint8_t feature, uint32_t value)
{
    unsigned vector = value & VECTOR;

    if (feature == NVME_INTERRUPT_COALESCING) {
        c->setting = value;
    } else if (vector >= COALESCED_VECTORS) {
        return NVME_INVALID_FIELD | NVME_DNR;
    } else if (value & EXEMPT) {
        set_bit(vector, c->exempt);
    } else {
        clear_bit(vector, c->exempt);
    }
    return NVME_SUCCESS;
}

/* The result of a command that asks for either feature, of a vector if there is one. */
uint32_t coalescing_get(const Coalescing *c, uint8_t feature, uint32_t asked)
{
    unsigned vector = asked & VECTOR;

    if (feature == NVME_INTERRUPT_COALESCING) {
        return c->setting;
    }
    return vector | (vector < COALESCED_VECTORS && test_bit(vector, c->exempt) ? EXEMPT : 0);
}
