// SPDX-License-Identifier: GPL-2.0
/*
 * What a change of a QP of iWARP means: it is connected by the device (see cm.c), never by its
 * attributes.
 */
#include <linux/sched.h>

#include "cmcmds.h"
#include "iwqp.h"
#include "objects.h"

/* What peers may do is decided by regions and windows: rdma_cm gives a QP that connects no
 * rights. */
u32 vrdma_iw_access(const struct ib_qp *ibqp)
{
	if (!to_vdev(ibqp->device)->iwarp)
		return 0;
	return IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC;
}

/**
 * vrdma_iw_mask() - what of a change the device is told
 * @ibqp: the QP
 * @attr: its new attributes; what the device wants beside them is added
 * @mask: those that are given
 *
 * Return: which attributes the device is told; 0 if it is done, or an error
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
		/* rdma_cm does so at once before it connects a QP of the kernel: see
		 * may_connect() of cm.c. */
		WRITE_ONCE(to_vqp(ibqp)->connecter, current);
		return 0;
	case IB_QPS_RTS:
		/* It is when it is connected. */
		return 0;
	case IB_QPS_SQD:
		/* How iw_cm ends a connection in order; it may have ended already. */
		vrdma_cmd_cm_disconnect(to_vdev(ibqp->device), ibqp->qp_num);
		return 0;
	default:
		return IB_QP_STATE;
	}
}
