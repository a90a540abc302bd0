/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_MCAST_H
#define VRDMA_MCAST_H

#include <rdma/ib_verbs.h>

int vrdma_attach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);
int vrdma_detach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);

#endif /* VRDMA_MCAST_H */
