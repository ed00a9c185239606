/*
 * The driver's own headers of the MPI 3.0 protocol, outside of the kernel: every number of the
 * protocol comes from them.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef LAB_MPI3MR_DRIVER_H
#define LAB_MPI3MR_DRIVER_H

#include <linux/types.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;

#ifndef __counted_by
#define __counted_by(member)
#endif

#include "mpi/mpi30_transport.h"
#include "mpi/mpi30_cnfg.h"
#include "mpi/mpi30_image.h"
#include "mpi/mpi30_init.h"
#include "mpi/mpi30_ioc.h"
#include "mpi/mpi30_pci.h"
#include "mpi/mpi30_sas.h"
#include "scsi/scsi_bsg_mpi3mr.h"

#endif
