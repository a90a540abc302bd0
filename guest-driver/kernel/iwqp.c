// SPDX-License-Identifier: GPL-2.0
/* Modification of an iWARP QP. The device connects it (see cm.c), not its attributes. */
#include <linux/sched.h>

#include "cmcmds.h"
#include "iwqp.h"
#include "objects.h"

/*
 * Returns the rights that an iWARP QP gets anyway: all of them, so that regions and windows decide.
 * rdma_cm gives no rights to a QP that connects. For RoCE there are none.
 */
u32 vrdma_iw_access(const struct ib_qp *ibqp)
{
	if (!to_vdev(ibqp->device)->iwarp)
		return 0;
	return IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC;
}

/**
 * vrdma_iw_mask() - select the attributes of a modification that the device needs
 * @ibqp: the QP
 * @attr: new attributes; those that the device needs in addition are set
 * @mask: the attributes that are given
 *
 * Return: mask of the attributes for the device; 0 if nothing is left to do, or an error
 */
int vrdma_iw_mask(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask)
{
	if (!(mask & IB_QP_STATE))
		return 0;
	switch (attr->qp_state) {
	case IB_QPS_INIT:
		attr->pkey_index = 0;
		attr->port_num = VRDMA_PORT;
		if (!(mask & IB_QP_ACCESS_FLAGS))
			attr->qp_access_flags = 0;
		return IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS;
	case IB_QPS_RTR:
		/*
		 * rdma_cm does so in the same call before it connects a QP of the kernel: see
		 * may_connect() of cm.c.
		 */
		WRITE_ONCE(to_vqp(ibqp)->connecter, current);
		return 0;
	case IB_QPS_RTS:
		/* The device moves the QP to RTS when it is connected. */
		return 0;
	case IB_QPS_SQD:
		/*
		 * This is how iw_cm ends a connection in order. The connection may have ended
		 * already.
		 */
		vrdma_cmd_cm_disconnect(to_vdev(ibqp->device), ibqp->qp_num);
		return 0;
	default:
		return IB_QP_STATE;
	}
}
