# What becomes of QEMU's hw/nvme/ctrl.c: both features can be set, and a reset of the controller
# forgets them. SPDX-License-Identifier: GPL-2.0-or-later

/^static const uint32_t nvme_feature_cap\[/ a\
    [NVME_INTERRUPT_COALESCING] = NVME_FEAT_CAP_CHANGE,\
    [NVME_INTERRUPT_VECTOR_CONF] = NVME_FEAT_CAP_CHANGE,

/^ *result = n->features\.async_config;$/ a\
        goto out;\
    case NVME_INTERRUPT_COALESCING:\
        result = coalescing_get(&n->features.coalescing, fid, dw11);\
        goto out;\
    case NVME_INTERRUPT_VECTOR_CONF:\
        if ((dw11 & 0xffff) > n->conf_ioqpairs) {\
            return NVME_INVALID_FIELD | NVME_DNR;\
        }\
        result = coalescing_get(&n->features.coalescing, fid, dw11);

/^ *n->features\.async_config = dw11;$/ a\
        break;\
    case NVME_INTERRUPT_COALESCING:\
    case NVME_INTERRUPT_VECTOR_CONF:\
        return coalescing_set(&n->features.coalescing, fid, dw11);

/^ *n->qs_created = false;$/ a\
    coalescing_reset(&n->features.coalescing);
