/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_QP_H
#define VRDMA_QP_H

#include "objects.h"
#include "vrdma.h"

struct vrdma_qp *vrdma_qp_get(struct vrdma_dev *dev, u32 qpn);
void vrdma_qp_put(struct vrdma_qp *qp);
int vrdma_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *attr, struct ib_udata *udata);
int vrdma_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		    struct ib_udata *udata);
int vrdma_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		   struct ib_qp_init_attr *init_attr);
int vrdma_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata);

#endif /* VRDMA_QP_H */
