/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_SRQ_H
#define VRDMA_SRQ_H

#include "objects.h"
#include "vrdma.h"

struct vrdma_srq *vrdma_srq_get(struct vrdma_dev *dev, u32 srqn);
void vrdma_srq_put(struct vrdma_srq *srq);
int vrdma_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *attr,
		     struct ib_udata *udata);
int vrdma_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr,
		     enum ib_srq_attr_mask mask, struct ib_udata *udata);
int vrdma_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr);
int vrdma_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata);

#endif /* VRDMA_SRQ_H */
