// SPDX-License-Identifier: GPL-2.0
/* The additional verbs of an iWARP device. */
#include <linux/etherdevice.h>
#include <rdma/iw_cm.h>

#include "cm.h"
#include "cmlisten.h"
#include "iw.h"
#include "objects.h"
#include "qp.h"

/* Returns the only GID, which is made from the MAC address, as rdma_cm expects of iWARP devices. */
static int vrdma_iw_query_gid(struct ib_device *ibdev, u32 port, int index, union ib_gid *gid)
{
	if (index)
		return -EINVAL;
	memset(gid, 0, sizeof(*gid));
	memcpy(gid, to_vdev(ibdev)->mac, ETH_ALEN);
	return 0;
}

/*
 * Finds a QP for iw_cm.
 *
 * The caller has disabled interrupts until iw_cm has taken its own reference. vrdma_destroy_qp()
 * waits for that.
 */
static struct ib_qp *vrdma_iw_get_qp(struct ib_device *ibdev, int qpn)
{
	struct vrdma_qp *qp = xa_load(&to_vdev(ibdev)->qps, qpn);

	return qp ? &qp->ibqp : NULL;
}

static void vrdma_iw_add_ref(struct ib_qp *ibqp)
{
	refcount_inc(&to_vqp(ibqp)->ref);
}

static void vrdma_iw_rem_ref(struct ib_qp *ibqp)
{
	vrdma_qp_put(to_vqp(ibqp));
}

static const struct ib_device_ops vrdma_iw_ops = {
	.iw_accept = vrdma_iw_accept,
	.iw_add_ref = vrdma_iw_add_ref,
	.iw_connect = vrdma_iw_connect,
	.iw_create_listen = vrdma_iw_create_listen,
	.iw_destroy_listen = vrdma_iw_destroy_listen,
	.iw_get_qp = vrdma_iw_get_qp,
	.iw_reject = vrdma_iw_reject,
	.iw_rem_ref = vrdma_iw_rem_ref,
	.query_gid = vrdma_iw_query_gid,
};

/* Fills in a verbs device that is an iWARP device. */
void vrdma_iw_init(struct ib_device *ibdev)
{
	ibdev->node_type = RDMA_NODE_RNIC;
	/* The device uses the TCP ports of the guest. */
	ibdev->iw_driver_flags = IW_F_NO_PORT_MAP;
	ib_set_device_ops(ibdev, &vrdma_iw_ops);
}
