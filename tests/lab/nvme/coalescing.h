/*
 * Interrupt coalescing as a controller's features have it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef LAB_NVME_COALESCING_H
#define LAB_NVME_COALESCING_H

#include "qemu/osdep.h"
#include "qemu/bitmap.h"

enum { COALESCED_VECTORS = 2048 }; /* the most that MSI-X has */

typedef struct Coalescing {
    uint16_t setting;                             /* time in 100 us, and threshold */
    DECLARE_BITMAP(exempt, COALESCED_VECTORS);
} Coalescing;

void coalescing_reset(Coalescing *c);
uint16_t coalescing_set(Coalescing *c, uint8_t feature, uint32_t value);
uint32_t coalescing_get(const Coalescing *c, uint8_t feature, uint32_t asked);

#endif
