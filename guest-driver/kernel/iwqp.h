/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_IWQP_H
#define VRDMA_IWQP_H

#include "vrdma.h"

u32 vrdma_iw_access(const struct ib_qp *ibqp);
int vrdma_iw_mask(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask);

#endif /* VRDMA_IWQP_H */
