/*
 * The driver's own headers of the MPI 2.6 protocol, outside of the kernel: every number of the
 * protocol comes from them.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef LAB_MPT3SAS_DRIVER_H
#define LAB_MPT3SAS_DRIVER_H

#include <linux/types.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;

#ifndef __counted_by_le
#define __counted_by_le(member)
#endif
#ifndef __counted_by
#define __counted_by(member)
#endif

#include "mpi/mpi2_type.h"
#include "mpi/mpi2.h"
#include "mpi/mpi2_ioc.h"
#include "mpi/mpi2_cnfg.h"
#include "mpi/mpi2_init.h"
#include "mpi/mpi2_raid.h"
#include "mpi/mpi2_sas.h"
#include "mpi/mpi2_pci.h"
#include "mpi/mpi2_image.h"

#endif
