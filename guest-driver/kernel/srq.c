// SPDX-License-Identifier: GPL-2.0
/*
 * Shared receive queues. The device keeps their receives. The driver keeps wr_ids for kernel SRQs.
 */
#include <rdma/uverbs_ioctl.h>

#include "broken.h"
#include "cmds.h"
#include "kchannel.h"
#include "slots.h"
#include "srq.h"

/* Finds an SRQ, and keeps it from being freed. Can be called from any context. */
struct vrdma_srq *vrdma_srq_get(struct vrdma_dev *dev, u32 srqn)
{
	struct vrdma_srq *srq;
	unsigned long flags;

	xa_lock_irqsave(&dev->srqs, flags);
	srq = xa_load(&dev->srqs, srqn);
	if (srq)
		refcount_inc(&srq->ref);
	xa_unlock_irqrestore(&dev->srqs, flags);
	return srq;
}

void vrdma_srq_put(struct vrdma_srq *srq)
{
	if (refcount_dec_and_test(&srq->ref))
		complete(&srq->unused);
}

static int create_and_insert(struct vrdma_dev *dev, struct vrdma_srq *srq, u32 max_wr)
{
	struct vrdma_create_srq_req req = {
		.context = cpu_to_le32(vrdma_context(srq->uctx)),
		.pdn = cpu_to_le32(to_vpd(srq->ibsrq.pd)->pdn),
		.max_wr = cpu_to_le32(max_wr),
		.max_sge = cpu_to_le32(srq->max_sge),
		.xrcdn = cpu_to_le32(VRDMA_NONE),
		.cqn = cpu_to_le32(VRDMA_NONE),
	};
	struct ib_srq *ibsrq = &srq->ibsrq;
	int err;

	if (ibsrq->srq_type == IB_SRQT_XRC) {
		req.xrcdn = cpu_to_le32(to_vxrcd(ibsrq->ext.xrc.xrcd)->xrcdn);
		req.cqn = cpu_to_le32(to_vcq(ibsrq->ext.cq)->cqn);
	}

	err = vrdma_cmd_create_srq(dev, &req, &srq->srqn);
	if (err)
		return err;
	err = xa_insert_irq(&dev->srqs, srq->srqn, srq, GFP_KERNEL);
	if (err)
		vrdma_cmd_destroy_srq(dev, srq->srqn);
	else if (ibsrq->srq_type == IB_SRQT_XRC)
		ibsrq->ext.xrc.srq_num = srq->srqn;
	return err;
}

int vrdma_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *attr, struct ib_udata *udata)
{
	struct vrdma_dev *dev = to_vdev(ibsrq->device);
	struct vrdma_srq *srq = to_vsrq(ibsrq);
	struct vrdma_usrq_resp resp = {};
	u32 max_wr = attr->attr.max_wr;
	int err;

	/* vrdma_poll_cq() does not handle XRC receives, for which the kernel has no verbs. */
	if (attr->srq_type != IB_SRQT_BASIC &&
	    (attr->srq_type != IB_SRQT_XRC || !udata || !attr->ext.xrc.xrcd ||
	     !(dev->caps.device_cap & VRDMA_CAP_XRC)))
		return -EOPNOTSUPP;
	if (!max_wr || max_wr > dev->caps.max_qp_wr ||
	    attr->attr.max_sge > dev->caps.max_recv_sge)
		return -EINVAL;
	refcount_set(&srq->ref, 1);
	init_completion(&srq->unused);
	spin_lock_init(&srq->lock);
	srq->max_sge = attr->attr.max_sge;

	if (udata) {
		srq->uctx = rdma_udata_to_drv_context(udata, struct vrdma_uctx, ibuctx);
		err = create_and_insert(dev, srq, max_wr);
		if (err)
			return err;
		resp.srqn = cpu_to_le32(srq->srqn);
		err = ib_copy_to_udata(udata, &resp, min(sizeof(resp), udata->outlen));
		if (err)
			vrdma_destroy_srq(ibsrq, udata);
		return err;
	}

	err = vrdma_slots_init(&srq->slots, max_wr);
	if (err)
		return err;
	err = create_and_insert(dev, srq, max_wr);
	if (err)
		vrdma_slots_cleanup(&srq->slots);
	return err;
}

/*
 * Resizes a kernel SRQ, so that never more receives are posted than the device takes.
 *
 * Others may post meanwhile. As with all verbs, nobody else modifies the SRQ.
 */
static int resize_kernel_srq(struct vrdma_dev *dev, struct vrdma_srq *srq,
			     const struct vrdma_modify_srq_req *req, u32 max_wr)
{
	u32 before = srq->slots.max;
	unsigned long flags;
	int err;

	err = vrdma_slots_grow(&srq->slots, max_wr);
	if (err)
		return err;
	/* Under the lock, each request that has a slot is in the channel or in the backlog. */
	spin_lock_irqsave(&srq->lock, flags);
	vrdma_slots_limit(&srq->slots, min(before, max_wr));
	spin_unlock_irqrestore(&srq->lock, flags);
	vrdma_backlog_wait(dev);
	err = vrdma_cmd_modify_srq(dev, req);
	if (!err)
		vrdma_slots_limit(&srq->slots, max_wr);
	else if (err != -EIO)
		vrdma_slots_limit(&srq->slots, before);
	/* After -EIO the device may have resized it, or do so later. So the lower limit stays. */
	return err;
}

int vrdma_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr,
		     enum ib_srq_attr_mask mask, struct ib_udata *udata)
{
	struct vrdma_dev *dev = to_vdev(ibsrq->device);
	struct vrdma_srq *srq = to_vsrq(ibsrq);
	struct vrdma_modify_srq_req req = {
		.srqn = cpu_to_le32(srq->srqn),
		.mask = cpu_to_le32(mask),
		.max_wr = cpu_to_le32(attr->max_wr),
		.limit = cpu_to_le32(attr->srq_limit),
	};
	bool resize = mask & IB_SRQ_MAX_WR;

	if (mask & ~(IB_SRQ_MAX_WR | IB_SRQ_LIMIT))
		return -EINVAL;
	if (resize && !(dev->caps.device_cap & VRDMA_CAP_SRQ_RESIZE))
		return -EOPNOTSUPP;
	if (resize && (!attr->max_wr || attr->max_wr > dev->caps.max_qp_wr))
		return -EINVAL;
	if (resize && !srq->uctx)
		return resize_kernel_srq(dev, srq, &req, attr->max_wr);
	/* Receives that were posted before this command take effect before it. */
	if (!srq->uctx)
		vrdma_backlog_wait(dev);
	return vrdma_cmd_modify_srq(dev, &req);
}

int vrdma_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr)
{
	struct vrdma_query_srq_resp resp;
	int err;

	err = vrdma_cmd_query_srq(to_vdev(ibsrq->device), to_vsrq(ibsrq)->srqn, &resp);
	if (err)
		return err;
	attr->max_wr = le32_to_cpu(resp.max_wr);
	attr->max_sge = le32_to_cpu(resp.max_sge);
	attr->srq_limit = le32_to_cpu(resp.limit);
	return 0;
}

int vrdma_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata)
{
	struct vrdma_dev *dev = to_vdev(ibsrq->device);
	struct vrdma_srq *srq = to_vsrq(ibsrq);
	int err;

	/* From here on the device may give the number to another SRQ. */
	xa_erase_irq(&dev->srqs, srq->srqn);
	vrdma_kernel_settle(dev, &srq->target);
	/*
	 * Buffers of a process stay pinned in their regions. Buffers of the kernel could be freed.
	 */
	err = srq->uctx ? vrdma_cmd_destroy_srq(dev, srq->srqn) :
			  vrdma_cmd_destroy_srq_no_timeout(dev, srq->srqn);
	if (err && err != -EIO)
		ibdev_warn_ratelimited(&dev->ibdev, "SRQ %u remains in the device: %d\n",
				       srq->srqn, err);
	vrdma_srq_put(srq);
	wait_for_completion(&srq->unused);
	vrdma_slots_cleanup(&srq->slots);
	/* The caller cannot handle an error. */
	return 0;
}
