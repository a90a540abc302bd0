/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_RESIZE_H
#define VRDMA_RESIZE_H

#include "vrdma.h"

int vrdma_resize_cq(struct ib_cq *ibcq, VRDMA_RESIZE_CQ_ENTRIES cqe, struct ib_udata *udata);

#endif /* VRDMA_RESIZE_H */
