// SPDX-License-Identifier: GPL-2.0
/*
 * Multicast groups of QPs.
 *
 * The device delivers packets to a group. The netdev tells the network's switches by IGMP and MLD;
 * rdma_cm joins there too.
 */
#include "cmds.h"
#include "mcast.h"
#include "objects.h"

int vrdma_attach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	return vrdma_cmd_attach_mcast(to_vdev(ibqp->device), ibqp->qp_num, gid);
}

int vrdma_detach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	int err = vrdma_cmd_detach_mcast(to_vdev(ibqp->device), ibqp->qp_num, gid);

	/*
	 * A stalled device executes the command later. After an error the core would never let the
	 * QP go.
	 */
	return err == -EIO ? 0 : err;
}
