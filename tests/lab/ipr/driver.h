/*
 * The driver's own header, outside of the kernel: every structure and number that its card and it
 * share comes from there. build.sh leaves out what is the driver's alone, and what it includes.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef LAB_IPR_DRIVER_H
#define LAB_IPR_DRIVER_H

#include <linux/types.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;

/* What structures of the driver's own are made of that stand between those of the card. */
typedef int spinlock_t;
struct list_head {
    struct list_head *next, *prev;
};
struct irq_poll {
    int weight;
};

#define __packed __attribute__((packed))
#define SCSI_SENSE_BUFFERSIZE 96

#include "ipr_interface.h"

#endif
