# What becomes of QEMU's hw/nvme/nvme.h: names of its own beside QEMU's, and where the features are.
# SPDX-License-Identifier: GPL-2.0-or-later

s/^#define \(TYPE_NVME[A-Z_]*\) "nvme/#define \1 "lab-nvme/

/^#include "block\/nvme\.h"$/ a\
#include "coalescing.h"

/^ *NvmeHostBehaviorSupport hbs;$/ a\
        Coalescing coalescing;
