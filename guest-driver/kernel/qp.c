// SPDX-License-Identifier: GPL-2.0
/* Queue pairs. The device keeps their states; the driver translates attributes. */
#include <linux/delay.h>
#include <linux/etherdevice.h>
#include <rdma/ib_cache.h>
#include <rdma/uverbs_ioctl.h>

#include "broken.h"
#include "cm.h"
#include "cmds.h"
#include "cq.h"
#include "iwqp.h"
#include "kchannel.h"
#include "qp.h"
#include "wq.h"

/* Finds a QP, and keeps it from being freed. Can be called from any context. */
struct vrdma_qp *vrdma_qp_get(struct vrdma_dev *dev, u32 qpn)
{
	struct vrdma_qp *qp;
	unsigned long flags;

	xa_lock_irqsave(&dev->qps, flags);
	qp = xa_load(&dev->qps, qpn);
	if (qp)
		refcount_inc(&qp->ref);
	xa_unlock_irqrestore(&dev->qps, flags);
	return qp;
}

void vrdma_qp_put(struct vrdma_qp *qp)
{
	if (refcount_dec_and_test(&qp->ref))
		complete(&qp->unused);
}

static bool is_target(const struct ib_qp *ibqp)
{
	return ibqp->qp_type == IB_QPT_XRC_TGT;
}

/*
 * Checks the attributes of a new QP, which is for a process if @user. The kernel has no verbs to
 * post XRC requests.
 */
static int check_init_attr(struct vrdma_dev *dev, const struct ib_qp_init_attr *attr, bool user)
{
	const struct ib_qp_cap *cap = &attr->cap;

	switch (attr->qp_type) {
	case IB_QPT_XRC_INI:
		if (!user)
			return -EOPNOTSUPP;
		fallthrough;
	case IB_QPT_XRC_TGT:
		if (!(dev->caps.device_cap & VRDMA_CAP_XRC))
			return -EOPNOTSUPP;
		break;
	case IB_QPT_GSI:
	case IB_QPT_RC:
	case IB_QPT_UC:
	case IB_QPT_UD:
		break;
	default:
		return -EOPNOTSUPP;
	}
	if (attr->create_flags || attr->rwq_ind_tbl)
		return -EOPNOTSUPP;
	if (cap->max_send_wr > dev->caps.max_qp_wr ||
	    cap->max_send_sge > dev->caps.max_send_sge ||
	    cap->max_inline_data > dev->caps.max_inline ||
	    cap->max_recv_wr > dev->caps.max_qp_wr ||
	    cap->max_recv_sge > dev->caps.max_recv_sge)
		return -EINVAL;
	return 0;
}

static int create_and_insert(struct vrdma_dev *dev, struct vrdma_qp *qp,
			     const struct ib_qp_init_attr *attr)
{
	bool target = is_target(&qp->ibqp);
	bool has_receives = !target && attr->qp_type != IB_QPT_XRC_INI;
	struct vrdma_create_qp_req req = {
		.context = cpu_to_le32(vrdma_context(qp->uctx)),
		.pdn = cpu_to_le32(target ? VRDMA_NONE : to_vpd(qp->ibqp.pd)->pdn),
		.qp_type = cpu_to_le32(attr->qp_type),
		.send_cqn = cpu_to_le32(target ? VRDMA_NONE : to_vcq(attr->send_cq)->cqn),
		.recv_cqn = cpu_to_le32(has_receives ? to_vcq(attr->recv_cq)->cqn : VRDMA_NONE),
		.xrcdn = cpu_to_le32(target ? to_vxrcd(attr->xrcd)->xrcdn : 0),
		.srqn = cpu_to_le32(attr->srq ? to_vsrq(attr->srq)->srqn : VRDMA_NONE),
		.max_send_wr = cpu_to_le32(qp->cap.max_send_wr),
		.max_recv_wr = cpu_to_le32(qp->cap.max_recv_wr),
		.max_send_sge = cpu_to_le32(qp->cap.max_send_sge),
		.max_recv_sge = cpu_to_le32(qp->cap.max_recv_sge),
		.max_inline = cpu_to_le32(qp->cap.max_inline_data),
	};
	u32 qpn;
	int err;

	err = vrdma_cmd_create_qp(dev, &req, &qpn);
	if (err)
		return err;
	qp->ibqp.qp_num = qpn;
	err = xa_insert_irq(&dev->qps, qpn, qp, GFP_KERNEL);
	if (err)
		vrdma_cmd_destroy_qp(dev, qpn);
	return err;
}

/* The holder may wait for the device for long. mutex_lock() would then report a hung task. */
static void lock_kernel_qps(struct vrdma_dev *dev)
{
	while (!mutex_trylock(&dev->kqp_lock))
		usleep_range(1000, 2000);
}

int vrdma_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *attr, struct ib_udata *udata)
{
	struct vrdma_dev *dev = to_vdev(ibqp->device);
	struct vrdma_qp *qp = to_vqp(ibqp);
	struct vrdma_uqp_resp resp = {};
	int err;

	/* Capacities of a queue that the QP does not have do not count. */
	if (is_target(ibqp))
		attr->cap = (struct ib_qp_cap){};
	if (attr->srq || attr->qp_type == IB_QPT_XRC_INI) {
		attr->cap.max_recv_wr = 0;
		attr->cap.max_recv_sge = 0;
	}
	err = check_init_attr(dev, attr, udata);
	if (err)
		return err;
	refcount_set(&qp->ref, 1);
	init_completion(&qp->unused);
	qp->cap = attr->cap;
	qp->sig_all = attr->sq_sig_type == IB_SIGNAL_ALL_WR;

	if (udata) {
		qp->uctx = rdma_udata_to_drv_context(udata, struct vrdma_uctx, ibuctx);
		err = create_and_insert(dev, qp, attr);
		if (err)
			return err;
		resp.qpn = cpu_to_le32(ibqp->qp_num);
		err = ib_copy_to_udata(udata, &resp, min(sizeof(resp), udata->outlen));
		if (err)
			vrdma_destroy_qp(ibqp, udata);
		return err;
	}

	/* The kernel owns an XRC target; the core shares it between processes. */
	if (is_target(ibqp))
		return create_and_insert(dev, qp, attr);

	/* The holder of the lock may wait for such a device. */
	if (vrdma_broken(dev) || vrdma_stalled(dev))
		return -EIO;
	err = vrdma_wq_init(&qp->sq, attr->cap.max_send_wr);
	if (!err)
		err = vrdma_wq_init(&qp->rq, attr->cap.max_recv_wr);
	if (!err) {
		lock_kernel_qps(dev);
		err = create_and_insert(dev, qp, attr);
		mutex_unlock(&dev->kqp_lock);
	}
	if (err) {
		vrdma_wq_cleanup(&qp->rq);
		vrdma_wq_cleanup(&qp->sq);
	}
	return err;
}

/* Fills in the path. @dest_qpn is 0 if it is not known. */
static void fill_av(struct vrdma_qp_attr *to, const struct rdma_ah_attr *ah, u32 qpn, u32 dest_qpn)
{
	const struct ib_global_route *grh = rdma_ah_read_grh(ah);
	u16 vlan = 0xffff;

	if (grh->sgid_attr)
		rdma_read_gid_l2_fields(grh->sgid_attr, &vlan, NULL);
	to->sl = rdma_ah_get_sl(ah);
	to->sgid_index = grh->sgid_index;
	memcpy(to->dgid, grh->dgid.raw, sizeof(to->dgid));
	ether_addr_copy(to->dmac, ah->roce.dmac);
	to->hop_limit = grh->hop_limit;
	to->traffic_class = grh->traffic_class;
	to->flow_label = cpu_to_le32(grh->flow_label);
	if (grh->flow_label || dest_qpn)
		to->udp_sport = cpu_to_le16(rdma_get_udp_sport(grh->flow_label, qpn, dest_qpn));
	to->vlan = cpu_to_le16(vlan);
}

/*
 * Translates the attributes in @mask.
 *
 * The numbers of masks, states, access flags and MTUs are those of the verbs.
 */
static void fill_attr(struct vrdma_qp_attr *to, const struct ib_qp_attr *from, int mask,
		      const struct ib_qp *ibqp)
{
	u64 cap = to_vdev(ibqp->device)->caps.device_cap;
	u32 rights = cap & VRDMA_CAP_FLUSH_GLOBAL ? VRDMA_ACCESS_QP : VRDMA_ACCESS_V1_0;

	if (mask & IB_QP_STATE)
		to->state = from->qp_state;
	if (mask & IB_QP_CUR_STATE)
		to->cur_state = from->cur_qp_state;
	if (mask & IB_QP_EN_SQD_ASYNC_NOTIFY)
		to->en_sqd_async_notify = !!from->en_sqd_async_notify;
	if (mask & IB_QP_ACCESS_FLAGS)
		/* The device has no requests that need the other rights. */
		to->access = cpu_to_le32((from->qp_access_flags |
					  vrdma_iw_access(ibqp)) & rights);
	if (mask & IB_QP_PKEY_INDEX)
		to->pkey_index = cpu_to_le16(from->pkey_index);
	if (mask & IB_QP_PORT)
		to->port = from->port_num;
	if (mask & IB_QP_QKEY)
		to->qkey = cpu_to_le32(from->qkey);
	if (mask & IB_QP_AV)
		fill_av(to, &from->ah_attr, ibqp->qp_num,
			mask & IB_QP_DEST_QPN ? from->dest_qp_num : 0);
	if (mask & IB_QP_PATH_MTU)
		to->path_mtu = from->path_mtu;
	if (mask & IB_QP_TIMEOUT)
		to->timeout = from->timeout;
	if (mask & IB_QP_RETRY_CNT)
		to->retry_cnt = from->retry_cnt;
	if (mask & IB_QP_RNR_RETRY)
		to->rnr_retry = from->rnr_retry;
	if (mask & IB_QP_RQ_PSN)
		to->rq_psn = cpu_to_le32(from->rq_psn);
	if (mask & IB_QP_MAX_QP_RD_ATOMIC)
		to->max_rd_atomic = from->max_rd_atomic;
	if (mask & IB_QP_MIN_RNR_TIMER)
		to->min_rnr_timer = from->min_rnr_timer;
	if (mask & IB_QP_SQ_PSN)
		to->sq_psn = cpu_to_le32(from->sq_psn);
	if (mask & IB_QP_MAX_DEST_RD_ATOMIC)
		to->max_dest_rd_atomic = from->max_dest_rd_atomic;
	if (mask & IB_QP_DEST_QPN)
		to->dest_qpn = cpu_to_le32(from->dest_qp_num);
}

/* Removes the CQEs of a kernel QP that is destroyed or reset. */
static void clean_cqs(struct vrdma_qp *qp)
{
	vrdma_cq_clean(to_vcq(qp->ibqp.send_cq), qp);
	vrdma_cq_clean(to_vcq(qp->ibqp.recv_cq), qp);
}

/*
 * Reports for a broken device that the QP takes no more from its SRQ. ib_drain_qp() waits for this.
 */
static void tell_last_wqe(struct vrdma_qp *qp)
{
	struct ib_event event = {
		.device = qp->ibqp.device,
		.element.qp = &qp->ibqp,
		.event = IB_EVENT_QP_LAST_WQE_REACHED,
	};

	if (qp->ibqp.srq && qp->ibqp.event_handler)
		qp->ibqp.event_handler(&event, qp->ibqp.qp_context);
}

int vrdma_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		    struct ib_udata *udata)
{
	struct vrdma_dev *dev = to_vdev(ibqp->device);
	struct vrdma_modify_qp_req req = { .qpn = cpu_to_le32(ibqp->qp_num) };
	struct vrdma_qp *qp = to_vqp(ibqp);
	bool kernel_to_error;
	int err, to;

	if (mask & ~IB_QP_ATTR_STANDARD_BITS)
		return -EOPNOTSUPP;
	if (dev->iwarp) {
		mask = vrdma_iw_mask(ibqp, attr, mask);
		if (mask <= 0)
			return mask;
	}
	if (mask & (IB_QP_ALT_PATH | IB_QP_CAP))
		return -EOPNOTSUPP;
	if ((mask & IB_QP_AV) && attr->ah_attr.type != RDMA_AH_ATTR_TYPE_ROCE)
		return -EINVAL;
	/* There is no alternate path. */
	if ((mask & IB_QP_PATH_MIG_STATE) && attr->path_mig_state != IB_MIG_MIGRATED)
		return -EINVAL;
	if ((mask & IB_QP_ACCESS_FLAGS) && (attr->qp_access_flags & ~IB_ACCESS_SUPPORTED))
		return -EINVAL;
	req.mask = cpu_to_le32(mask);
	fill_attr(&req.attr, attr, mask, ibqp);
	/* Requests that were posted before this command take effect before it. */
	if (vrdma_is_of_kernel(qp))
		vrdma_backlog_wait(dev);
	to = mask & IB_QP_STATE ? (int)attr->qp_state : -1;
	kernel_to_error = vrdma_is_of_kernel(qp) && to == IB_QPS_ERR;
	/* After an error ib_drain_qp() does not wait, and buffers in use would be freed. */
	err = kernel_to_error ? vrdma_cmd_modify_qp_no_timeout(dev, &req) :
				vrdma_cmd_modify_qp(dev, &req);
	/* On a broken device each QP is in error. vrdma_poll_cq() flushes its requests. */
	if (err && vrdma_broken(dev) && kernel_to_error) {
		tell_last_wqe(qp);
		return 0;
	}
	if (!err && (to == IB_QPS_ERR || to == IB_QPS_RESET))
		vrdma_cm_qp_ended(dev, qp);
	if (!err && vrdma_is_of_kernel(qp) && to == IB_QPS_RESET) {
		clean_cqs(qp);
		/* The indices are not reset, so that no old CQE matches a new request. */
		WRITE_ONCE(qp->sq.tail, qp->sq.head);
		WRITE_ONCE(qp->rq.tail, qp->rq.head);
	}
	return err;
}

int vrdma_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		   struct ib_qp_init_attr *init_attr)
{
	struct vrdma_qp *qp = to_vqp(ibqp);
	struct vrdma_qp_attr from;
	union ib_gid dgid;
	int err;

	err = vrdma_cmd_query_qp(to_vdev(ibqp->device), ibqp->qp_num, &from);
	if (err)
		return err;

	memset(attr, 0, sizeof(*attr));
	attr->qp_state = from.state;
	attr->cur_qp_state = from.state;
	attr->en_sqd_async_notify = from.en_sqd_async_notify;
	attr->sq_draining = from.sq_draining;
	attr->qp_access_flags = le32_to_cpu(from.access);
	attr->pkey_index = le16_to_cpu(from.pkey_index);
	attr->port_num = from.port;
	attr->path_mtu = from.path_mtu;
	attr->path_mig_state = IB_MIG_MIGRATED;
	attr->qkey = le32_to_cpu(from.qkey);
	attr->rq_psn = le32_to_cpu(from.rq_psn);
	attr->sq_psn = le32_to_cpu(from.sq_psn);
	attr->dest_qp_num = le32_to_cpu(from.dest_qpn);
	attr->max_rd_atomic = from.max_rd_atomic;
	attr->max_dest_rd_atomic = from.max_dest_rd_atomic;
	attr->min_rnr_timer = from.min_rnr_timer;
	attr->timeout = from.timeout;
	attr->retry_cnt = from.retry_cnt;
	attr->rnr_retry = from.rnr_retry;
	attr->cap = qp->cap;

	attr->ah_attr.type = RDMA_AH_ATTR_TYPE_ROCE;
	memcpy(dgid.raw, from.dgid, sizeof(dgid.raw));
	rdma_ah_set_grh(&attr->ah_attr, &dgid, le32_to_cpu(from.flow_label), from.sgid_index,
			from.hop_limit, from.traffic_class);
	rdma_ah_set_port_num(&attr->ah_attr, VRDMA_PORT);
	rdma_ah_set_sl(&attr->ah_attr, from.sl);
	ether_addr_copy(attr->ah_attr.roce.dmac, from.dmac);

	init_attr->cap = qp->cap;
	init_attr->qp_type = ibqp->qp_type;
	init_attr->send_cq = ibqp->send_cq;
	init_attr->recv_cq = ibqp->recv_cq;
	init_attr->srq = ibqp->srq;
	init_attr->event_handler = ibqp->event_handler;
	init_attr->qp_context = ibqp->qp_context;
	init_attr->sq_sig_type = qp->sig_all ? IB_SIGNAL_ALL_WR : IB_SIGNAL_REQ_WR;
	return 0;
}

int vrdma_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata)
{
	struct vrdma_dev *dev = to_vdev(ibqp->device);
	struct vrdma_qp *qp = to_vqp(ibqp);
	int err;

	if (vrdma_is_of_kernel(qp))
		lock_kernel_qps(dev);
	/* From here on the device may give the number to another QP. */
	xa_erase_irq(&dev->qps, ibqp->qp_num);
	/* iw_cm may just have found the QP, and takes a reference with interrupts disabled. */
	if (dev->iwarp)
		synchronize_rcu_expedited();
	vrdma_kernel_settle(dev, &qp->target);
	/*
	 * Buffers of a process stay pinned in their regions. Buffers of the kernel could be freed.
	 */
	err = vrdma_is_of_kernel(qp) ? vrdma_cmd_destroy_qp_no_timeout(dev, ibqp->qp_num) :
				 vrdma_cmd_destroy_qp(dev, ibqp->qp_num);
	if (err && err != -EIO)
		ibdev_warn_ratelimited(&dev->ibdev, "QP %u remains in the device: %d\n",
				       ibqp->qp_num, err);
	if (vrdma_is_of_kernel(qp)) {
		/* Takes the locks of the CQs, under which vrdma_poll_cq() may use the QP. */
		clean_cqs(qp);
		mutex_unlock(&dev->kqp_lock);
	}
	/* iw_cm gives its reference back. */
	vrdma_cm_qp_ended(dev, qp);
	vrdma_qp_put(qp);
	wait_for_completion(&qp->unused);
	vrdma_wq_cleanup(&qp->sq);
	vrdma_wq_cleanup(&qp->rq);
	/* The caller cannot handle an error. */
	return 0;
}
