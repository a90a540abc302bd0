/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_CQ_H
#define VRDMA_CQ_H

#include "objects.h"
#include "vrdma.h"

struct vrdma_cq *vrdma_cq_get(struct vrdma_dev *dev, u32 cqn);
void vrdma_cq_put(struct vrdma_cq *cq);
int vrdma_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		    struct vrdma_cq_attrs *attrs);
int vrdma_modify_cq(struct ib_cq *ibcq, u16 count, u16 period);
int vrdma_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata);
int vrdma_poll_cq(struct ib_cq *ibcq, int num, struct ib_wc *wc);
int vrdma_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags);
void vrdma_cq_clean(struct vrdma_cq *cq, struct vrdma_qp *qp);
void vrdma_cqs_flush(struct vrdma_dev *dev);

#endif /* VRDMA_CQ_H */
