/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_DM_H
#define VRDMA_DM_H

#include <linux/sizes.h>

#include "vrdma.h"

/*
 * Most device memory of a context in bytes, counted in whole pages. Each allocation is in one
 * physical piece, so the limit is low.
 */
#define VRDMA_DM_CONTEXT_BYTES SZ_1M
/* Most device memory of all contexts in bytes. */
#define VRDMA_DM_DEVICE_BYTES SZ_16M

void vrdma_dm_init(struct vrdma_dev *dev);
struct ib_dm *vrdma_alloc_dm(struct ib_device *ibdev, struct ib_ucontext *ibuctx,
			     struct ib_dm_alloc_attr *attr, struct uverbs_attr_bundle *attrs);
int vrdma_dealloc_dm(struct ib_dm *ibdm, struct uverbs_attr_bundle *attrs);

#endif /* VRDMA_DM_H */
