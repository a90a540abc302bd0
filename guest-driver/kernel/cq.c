// SPDX-License-Identifier: GPL-2.0
/*
 * Completion queues. A process polls the ring of its CQ itself; the kernel's CQs are polled here.
 */
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/log2.h>
#include <rdma/uverbs_ioctl.h>

#include "broken.h"
#include "cmds.h"
#include "cq.h"
#include "mem.h"
#include "ring.h"
#include "runs.h"
#include "slots.h"
#include "udata.h"
#include "wq.h"

/* Finds a CQ, and keeps it from being freed. Can be called from any context. */
struct vrdma_cq *vrdma_cq_get(struct vrdma_dev *dev, u32 cqn)
{
	struct vrdma_cq *cq;
	unsigned long flags;

	xa_lock_irqsave(&dev->cqs, flags);
	cq = xa_load(&dev->cqs, cqn);
	if (cq)
		refcount_inc(&cq->ref);
	xa_unlock_irqrestore(&dev->cqs, flags);
	return cq;
}

void vrdma_cq_put(struct vrdma_cq *cq)
{
	if (refcount_dec_and_test(&cq->ref))
		complete(&cq->unused);
}

/* Pins the memory of a process's CQ. */
static int cq_pin(struct vrdma_dev *dev, struct vrdma_cq *cq, u32 cqe, struct ib_udata *udata,
		  u32 *entries)
{
	struct vrdma_ucq_req req;
	int err;

	if (udata->inlen < sizeof(req))
		return -EINVAL;
	err = vrdma_udata_read(udata, &req, sizeof(req));
	if (err)
		return err;
	if (req.reserved)
		return -EINVAL;
	*entries = le32_to_cpu(req.entries);
	cq->mem = vrdma_ring_pin(dev, le64_to_cpu(req.buf), *entries, cqe, cq->timed);
	return PTR_ERR_OR_ZERO(cq->mem);
}

/* Allocates the memory of a CQ of the kernel. */
static int cq_alloc(struct vrdma_dev *dev, struct vrdma_cq *cq, u32 cqe, u32 *entries)
{
	*entries = roundup_pow_of_two(cqe);
	cq->mem = vrdma_ring_alloc(dev, *entries);
	if (IS_ERR(cq->mem))
		return PTR_ERR(cq->mem);
	vrdma_ring_start(cq, *entries);
	return 0;
}

/* Creates the CQ in the device, with the memory of @cq, and adds it to the table by its number. */
static int create_and_insert(struct vrdma_dev *dev, struct vrdma_cq *cq,
			     const struct vrdma_create_cq_req *req)
{
	struct vrdma_runs *runs;
	int err, ret;

	runs = vrdma_mem_runs(dev, cq->mem);
	if (IS_ERR(runs)) {
		err = PTR_ERR(runs);
		goto err_mem;
	}
	err = vrdma_cmd_create_cq(dev, req, runs, &cq->cqn, &cq->mem);
	if (err)
		goto err_mem;
	err = xa_insert_irq(&dev->cqs, cq->cqn, cq, GFP_KERNEL);
	if (err)
		goto err_cq;
	return 0;

err_cq:
	ret = vrdma_cmd_destroy_cq(dev, cq->cqn, &cq->mem);
	vrdma_mem_release(dev, cq->mem, ret);
	return err;
err_mem:
	vrdma_mem_release(dev, cq->mem, vrdma_broken(dev) ? err : 0);
	return err;
}

/* Translates the core's @flags to those of the device. */
static int device_flags(const struct vrdma_dev *dev, u32 flags, bool user, u32 *to)
{
	bool overruns = flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN;
	bool timed = flags & IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION;
	u64 cap = dev->caps.device_cap;

	/* Users in the kernel have no way to read a time stamp. */
	if ((overruns && !(cap & VRDMA_CAP_CQ_IGNORE_OVERRUN)) ||
	    (timed && !(user && (cap & VRDMA_CAP_CQ_TIMESTAMP))) ||
	    (flags & ~(IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN |
		       IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION)))
		return -EOPNOTSUPP;
	*to = (overruns ? VRDMA_CQ_F_IGNORE_OVERRUN : 0) | (timed ? VRDMA_CQ_F_TIMESTAMP : 0);
	return 0;
}

int vrdma_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		    struct vrdma_cq_attrs *attrs)
{
	struct ib_udata *udata = vrdma_cq_udata(attrs);
	struct vrdma_dev *dev = to_vdev(ibcq->device);
	struct vrdma_cq *cq = to_vcq(ibcq);
	struct vrdma_ucq_resp resp = {};
	struct vrdma_uctx *uctx = NULL;
	struct vrdma_create_cq_req req = {};
	u32 entries, flags;
	int err;

	err = device_flags(dev, attr->flags, udata, &flags);
	if (err)
		return err;
	if (!attr->cqe || attr->cqe > dev->caps.max_cqe ||
	    attr->comp_vector >= ibcq->device->num_comp_vectors)
		return -EINVAL;
	/* Checked before memory is pinned: it would stay pinned with such a device. */
	if (vrdma_broken(dev) || vrdma_stalled(dev))
		return -EIO;

	refcount_set(&cq->ref, 1);
	init_completion(&cq->unused);
	spin_lock_init(&cq->lock);
	mutex_init(&cq->resize_lock);
	cq->timed = flags & VRDMA_CQ_F_TIMESTAMP;
	if (udata) {
		uctx = rdma_udata_to_drv_context(udata, struct vrdma_uctx, ibuctx);
		err = cq_pin(dev, cq, attr->cqe, udata, &entries);
	} else {
		err = cq_alloc(dev, cq, attr->cqe, &entries);
	}
	if (err)
		return err;
	req.context = cpu_to_le32(vrdma_context(uctx));
	req.entries = cpu_to_le32(entries);
	req.vector = cpu_to_le32(attr->comp_vector);
	req.flags = cpu_to_le32(flags);
	err = create_and_insert(dev, cq, &req);
	if (err)
		return err;
	ibcq->cqe = entries;
	if (!udata)
		return 0;
	resp.cqn = cpu_to_le32(cq->cqn);
	err = ib_copy_to_udata(udata, &resp, min(sizeof(resp), udata->outlen));
	if (err)
		vrdma_destroy_cq(ibcq, udata);
	return err;
}

/* @period is in microseconds. */
int vrdma_modify_cq(struct ib_cq *ibcq, u16 count, u16 period)
{
	return vrdma_cmd_modify_cq(to_vdev(ibcq->device), to_vcq(ibcq)->cqn, count, period);
}

int vrdma_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata)
{
	struct vrdma_dev *dev = to_vdev(ibcq->device);
	struct vrdma_cq *cq = to_vcq(ibcq);
	int err;

	/*
	 * This is first, because the device may give the number of a destroyed CQ to another one.
	 */
	xa_erase_irq(&dev->cqs, cq->cqn);
	/*
	 * The command may take over the memory, because nobody polls a CQ that is being destroyed.
	 */
	err = vrdma_cmd_destroy_cq(dev, cq->cqn, &cq->mem);
	if (err && err != -EIO)
		ibdev_warn_ratelimited(&dev->ibdev, "CQ %u remains in the device: %d\n", cq->cqn,
				       err);
	vrdma_cq_put(cq);
	wait_for_completion(&cq->unused);
	vrdma_mem_release(dev, cq->mem, err);
	/* An unanswered resize comes before this command. */
	vrdma_mem_release(dev, cq->next_mem, err);
	vrdma_ring_cleanup(cq);
	/* The caller cannot handle an error. */
	return 0;
}

static enum ib_wc_opcode wc_opcode(const struct vrdma_cqe *cqe)
{
	/* A failed request has no valid opcode. */
	if (cqe->status != VRDMA_WC_SUCCESS)
		return cqe->flags & VRDMA_CQE_F_RECV ? IB_WC_RECV : IB_WC_SEND;
	switch (cqe->opcode) {
	case VRDMA_WC_OP_RDMA_WRITE:
		return IB_WC_RDMA_WRITE;
	case VRDMA_WC_OP_RDMA_READ:
		return IB_WC_RDMA_READ;
	case VRDMA_WC_OP_COMP_SWAP:
		return IB_WC_COMP_SWAP;
	case VRDMA_WC_OP_FETCH_ADD:
		return IB_WC_FETCH_ADD;
	case VRDMA_WC_OP_LOCAL_INV:
		return IB_WC_LOCAL_INV;
	case VRDMA_WC_OP_REG_MR:
		return IB_WC_REG_MR;
	case VRDMA_WC_OP_ATOMIC_WRITE:
		return IB_WC_ATOMIC_WRITE;
	case VRDMA_WC_OP_RECV:
		return IB_WC_RECV;
	case VRDMA_WC_OP_RECV_RDMA_WITH_IMM:
		return IB_WC_RECV_RDMA_WITH_IMM;
	default:
		return IB_WC_SEND;
	}
}

/*
 * Takes the completion of a request of @qp, whose CQ is locked. Returns false if there is no such
 * request.
 */
static bool complete_request(struct vrdma_qp *qp, const struct vrdma_cqe *cqe, u64 *wr_id)
{
	u32 wqe_id = le32_to_cpu(cqe->wqe_id);

	if (!(cqe->flags & VRDMA_CQE_F_RECV))
		return vrdma_wq_complete(&qp->sq, wqe_id, wr_id);
	if (qp->ibqp.srq)
		return vrdma_slots_complete(&to_vsrq(qp->ibqp.srq)->slots, wqe_id, wr_id);
	return vrdma_wq_complete(&qp->rq, wqe_id, wr_id);
}

/* Translates @cqe to @wc. Returns false if no outstanding request belongs to it. */
static bool cqe_to_wc(struct vrdma_dev *dev, struct vrdma_cq *cq, const struct vrdma_cqe *cqe,
		      struct ib_wc *wc)
{
	bool recv = cqe->flags & VRDMA_CQE_F_RECV;
	struct vrdma_qp *qp;
	u64 wr_id;

	/* The QP stays while the lock of its CQ is held: see vrdma_destroy_qp(). */
	qp = xa_load(&dev->qps, le32_to_cpu(cqe->qpn));
	if (!qp || qp->uctx || (recv ? qp->ibqp.recv_cq : qp->ibqp.send_cq) != &cq->ibcq ||
	    !complete_request(qp, cqe, &wr_id))
		return false;

	memset(wc, 0, sizeof(*wc));
	wc->wr_id = wr_id;
	wc->status = cqe->status <= VRDMA_WC_GENERAL_ERR ? cqe->status : IB_WC_GENERAL_ERR;
	wc->opcode = wc_opcode(cqe);
	wc->byte_len = le32_to_cpu(cqe->byte_len);
	wc->qp = &qp->ibqp;
	wc->src_qp = le32_to_cpu(cqe->src_qpn);
	wc->port_num = VRDMA_PORT;
	if (cqe->flags & VRDMA_CQE_F_IMM) {
		wc->wc_flags |= IB_WC_WITH_IMM;
		wc->ex.imm_data = cqe->imm;
	}
	if (cqe->flags & VRDMA_CQE_F_INV) {
		wc->wc_flags |= IB_WC_WITH_INVALIDATE;
		wc->ex.invalidate_rkey = be32_to_cpu(cqe->imm);
	}
	if (cqe->flags & VRDMA_CQE_F_GRH)
		wc->wc_flags |= IB_WC_GRH;
	if (recv && (qp->ibqp.qp_type == IB_QPT_UD || qp->ibqp.qp_type == IB_QPT_GSI)) {
		ether_addr_copy(wc->smac, cqe->smac);
		wc->wc_flags |= IB_WC_WITH_SMAC;
		wc->vlan_id = le16_to_cpu(cqe->vlan);
		if (wc->vlan_id < VLAN_N_VID)
			wc->wc_flags |= IB_WC_WITH_VLAN;
	}
	return true;
}

/*
 * Flushes requests that complete in @cq, which is locked.
 *
 * The device is broken, and completes nothing any more.
 */
static int flush_wcs(struct vrdma_dev *dev, struct vrdma_cq *cq, int num, struct ib_wc *wc)
{
	unsigned long flags, qpn;
	struct vrdma_qp *qp;
	int n = 0;
	u64 wr_id;

	/* The lock keeps all QPs from being freed, including those of other CQs. */
	xa_lock_irqsave(&dev->qps, flags);
	xa_for_each(&dev->qps, qpn, qp) {
		bool send = !qp->uctx && qp->ibqp.send_cq == &cq->ibcq;
		bool recv = !qp->uctx && qp->ibqp.recv_cq == &cq->ibcq;

		while (n < num && ((send && vrdma_wq_flush(&qp->sq, &wr_id)) ||
				   (recv && vrdma_wq_flush(&qp->rq, &wr_id)))) {
			memset(&wc[n], 0, sizeof(wc[n]));
			wc[n].wr_id = wr_id;
			wc[n].status = IB_WC_WR_FLUSH_ERR;
			wc[n].qp = &qp->ibqp;
			n++;
		}
	}
	xa_unlock_irqrestore(&dev->qps, flags);
	return n;
}

/* Notifies the users of the kernel's CQs, who then poll flushed requests. The device is broken. */
void vrdma_cqs_flush(struct vrdma_dev *dev)
{
	unsigned long cqn;
	struct vrdma_cq *cq;

	xa_for_each(&dev->cqs, cqn, cq) {
		cq = vrdma_cq_get(dev, cqn);
		if (!cq)
			continue;
		/* A user that never requested an event polls anyway. */
		if (cq->ring.cqe && READ_ONCE(cq->armed) && cq->ibcq.comp_handler)
			cq->ibcq.comp_handler(&cq->ibcq, cq->ibcq.cq_context);
		vrdma_cq_put(cq);
	}
}

int vrdma_poll_cq(struct ib_cq *ibcq, int num, struct ib_wc *wc)
{
	struct vrdma_dev *dev = to_vdev(ibcq->device);
	struct vrdma_cq *cq = to_vcq(ibcq);
	u32 bound, taken = 0;
	struct vrdma_cqe *cqe;
	unsigned long flags;
	int n = 0;

	if (!cq->ring.cqe)
		return -EOPNOTSUPP;
	spin_lock_irqsave(&cq->lock, flags);
	/* At most the whole ring in one call, however fast the device fills it. */
	bound = cq->held_end - cq->held_first + cq->ring.entries;
	while (n < num && taken < bound && (cqe = vrdma_ring_take(cq))) {
		if (cqe_to_wc(dev, cq, cqe, &wc[n]))
			n++;
		taken++;
	}
	if (taken)
		vrdma_ring_publish(cq);
	/* Not while the device may still use the buffers of the requests. */
	if (n < num && vrdma_broken(dev) && !vrdma_may_resume(dev))
		n += flush_wcs(dev, cq, num - n, wc + n);
	spin_unlock_irqrestore(&cq->lock, flags);
	return n;
}

int vrdma_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags)
{
	struct vrdma_cq *cq = to_vcq(ibcq);
	unsigned long irq_flags;
	int ret = 0;

	if (!cq->ring.cqe)
		return -EOPNOTSUPP;
	spin_lock_irqsave(&cq->lock, irq_flags);
	WRITE_ONCE(cq->armed, true);
	vrdma_ring_arm(cq, (flags & IB_CQ_SOLICITED_MASK) == IB_CQ_SOLICITED);
	if (flags & IB_CQ_REPORT_MISSED_EVENTS)
		ret = vrdma_ring_ready(cq);
	spin_unlock_irqrestore(&cq->lock, irq_flags);
	return ret;
}

static void clean_cqe(struct vrdma_cqe *cqe, void *arg)
{
	struct vrdma_qp *qp = arg;
	u64 wr_id;

	if (cqe->qpn != cpu_to_le32(qp->ibqp.qp_num))
		return;
	if (qp->ibqp.srq && (cqe->flags & VRDMA_CQE_F_RECV))
		complete_request(qp, cqe, &wr_id);
	cqe->qpn = cpu_to_le32(VRDMA_NONE);
}

/**
 * vrdma_cq_clean() - invalidate the CQEs of a QP
 * @cq: CQ of the kernel
 * @qp: a QP that the device has destroyed or reset
 *
 * Receives from the QP's SRQ that these CQEs complete are not outstanding any more.
 */
void vrdma_cq_clean(struct vrdma_cq *cq, struct vrdma_qp *qp)
{
	unsigned long flags;

	if (!cq->ring.cqe)
		return;
	spin_lock_irqsave(&cq->lock, flags);
	vrdma_ring_visit(cq, clean_cqe, qp);
	spin_unlock_irqrestore(&cq->lock, flags);
}
