/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_UCTX_H
#define VRDMA_UCTX_H

#include <rdma/uverbs_ioctl.h>

#include "vrdma.h"

extern const struct uapi_definition vrdma_uapi_defs[];
int vrdma_alloc_ucontext(struct ib_ucontext *ibuctx, struct ib_udata *udata);
void vrdma_dealloc_ucontext(struct ib_ucontext *ibuctx);
int vrdma_mmap(struct ib_ucontext *ibuctx, struct vm_area_struct *vma);
void vrdma_mmap_free(struct rdma_user_mmap_entry *rdma);
void vrdma_disassociate_ucontext(struct ib_ucontext *ibuctx);

#endif /* VRDMA_UCTX_H */
