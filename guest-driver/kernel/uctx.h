/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_UCTX_H
#define VRDMA_UCTX_H

#include <rdma/uverbs_ioctl.h>

#include "vrdma.h"

struct vrdma_uctx;

int vrdma_alloc_ucontext(struct ib_ucontext *ibuctx, struct ib_udata *udata);
void vrdma_dealloc_ucontext(struct ib_ucontext *ibuctx);
int vrdma_query_ucontext(struct ib_ucontext *ibuctx, struct uverbs_attr_bundle *attrs);
void vrdma_uctx_describe(const struct vrdma_uctx *uctx, struct vrdma_uctx_ex_resp *resp);

#endif /* VRDMA_UCTX_H */
