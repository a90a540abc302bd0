// SPDX-License-Identifier: GPL-2.0
/*
 * Completion queues. A process polls its ring in its own memory; the kernel's rings are polled
 * here.
 */
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/log2.h>
#include <rdma/uverbs_ioctl.h>

#include "barrier.h"
#include "broken.h"
#include "cmds.h"
#include "cq.h"
#include "mem.h"
#include "post.h"
#include "runs.h"
#include "slots.h"
#include "udata.h"

static size_t cq_bytes(u32 entries)
{
	return (size_t)entries * sizeof(struct vrdma_cqe) + sizeof(struct vrdma_cq_record);
}

/* Finds a CQ and keeps it from being freed; from any context. */
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

/* Memory of a process's CQ. */
static int cq_pin(struct vrdma_dev *dev, struct vrdma_cq *cq, u32 cqe, struct ib_udata *udata)
{
	struct vrdma_ucq_req req;
	int err;

	if (udata->inlen < sizeof(req))
		return -EINVAL;
	err = vrdma_udata_read(udata, &req, sizeof(req));
	if (err)
		return err;
	cq->entries = le32_to_cpu(req.entries);
	if (req.reserved || !PAGE_ALIGNED(le64_to_cpu(req.buf)) ||
	    !is_power_of_2(cq->entries) || cq->entries < cqe ||
	    cq->entries > dev->caps.max_cqe)
		return -EINVAL;
	cq->mem = vrdma_mem_pin(dev, le64_to_cpu(req.buf), cq_bytes(cq->entries),
				IB_ACCESS_LOCAL_WRITE);
	if (IS_ERR(cq->mem)) {
		err = PTR_ERR(cq->mem);
		cq->mem = NULL;
		return err;
	}
	return 0;
}

/* Memory of a CQ of the kernel; in pages, since a large one may not fit in one piece. */
static int cq_alloc(struct vrdma_dev *dev, struct vrdma_cq *cq, u32 cqe)
{
	cq->entries = roundup_pow_of_two(cqe);
	cq->mem = vrdma_mem_alloc_pages(dev, cq_bytes(cq->entries));
	if (!cq->mem)
		return -ENOMEM;
	cq->ring = cq->mem->vaddr;
	cq->rec = (struct vrdma_cq_record *)(cq->ring + cq->entries);
	return 0;
}

/* Creates the CQ in the device, with the memory that it has, and makes it known by its number. */
static int create_and_insert(struct vrdma_dev *dev, struct vrdma_cq *cq, u32 context, u32 vector)
{
	struct vrdma_runs *runs;
	int err, ret;

	runs = vrdma_mem_runs(dev, cq->mem);
	if (IS_ERR(runs)) {
		err = PTR_ERR(runs);
		goto err_mem;
	}
	err = vrdma_cmd_create_cq(dev, context, cq->entries, vector, runs, &cq->cqn, &cq->mem);
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

int vrdma_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		    struct uverbs_attr_bundle *attrs)
{
	struct ib_udata *udata = attrs ? &attrs->driver_udata : NULL;
	struct vrdma_dev *dev = to_vdev(ibcq->device);
	struct vrdma_cq *cq = to_vcq(ibcq);
	struct vrdma_ucq_resp resp = {};
	struct vrdma_uctx *uctx = NULL;
	int err;

	if (attr->flags)
		return -EOPNOTSUPP;
	if (!attr->cqe || attr->cqe > dev->caps.max_cqe ||
	    attr->comp_vector >= ibcq->device->num_comp_vectors)
		return -EINVAL;
	/* Checked before memory is pinned, which such a device would keep pinned. */
	if (vrdma_broken(dev) || vrdma_stalled(dev))
		return -EIO;

	refcount_set(&cq->ref, 1);
	init_completion(&cq->unused);
	spin_lock_init(&cq->lock);
	if (udata) {
		uctx = rdma_udata_to_drv_context(udata, struct vrdma_uctx, ibuctx);
		err = cq_pin(dev, cq, attr->cqe, udata);
	} else {
		err = cq_alloc(dev, cq, attr->cqe);
	}
	if (err)
		return err;
	err = create_and_insert(dev, cq, vrdma_context(uctx), attr->comp_vector);
	if (err)
		return err;
	ibcq->cqe = cq->entries;
	if (!udata)
		return 0;
	resp.cqn = cpu_to_le32(cq->cqn);
	err = ib_copy_to_udata(udata, &resp, min(sizeof(resp), udata->outlen));
	if (err)
		vrdma_destroy_cq(ibcq, udata);
	return err;
}

int vrdma_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata)
{
	struct vrdma_dev *dev = to_vdev(ibcq->device);
	struct vrdma_cq *cq = to_vcq(ibcq);
	int err;

	/* First, since the device may give the number of a destroyed CQ to another. */
	xa_erase_irq(&dev->cqs, cq->cqn);
	/* The command may take the memory over: nobody polls a CQ that is being destroyed. */
	err = vrdma_cmd_destroy_cq(dev, cq->cqn, &cq->mem);
	if (err && err != -EIO)
		ibdev_warn_ratelimited(&dev->ibdev, "CQ %u remains in the device: %d\n", cq->cqn,
				       err);
	vrdma_cq_put(cq);
	wait_for_completion(&cq->unused);
	vrdma_mem_release(dev, cq->mem, err);
	/* A caller cannot handle an error. */
	return 0;
}

static bool cqe_valid(const struct vrdma_cq *cq, u32 index)
{
	const struct vrdma_cqe *cqe = &cq->ring[index & (cq->entries - 1)];

	return !!(READ_ONCE(cqe->phase) & 1) != !!(index & cq->entries);
}

static enum ib_wc_opcode wc_opcode(const struct vrdma_cqe *cqe)
{
	/* The opcode of a failed request is not valid. */
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

/* Takes the completion of a request of @qp, whose CQ is locked; false if there is no such one. */
static bool complete_request(struct vrdma_qp *qp, const struct vrdma_cqe *cqe, u64 *wr_id)
{
	u32 wqe_id = le32_to_cpu(cqe->wqe_id);

	if (!(cqe->flags & VRDMA_CQE_F_RECV))
		return vrdma_wq_complete(&qp->sq, wqe_id, wr_id);
	if (qp->ibqp.srq)
		return vrdma_slots_complete(&to_vsrq(qp->ibqp.srq)->slots, wqe_id, wr_id);
	return vrdma_wq_complete(&qp->rq, wqe_id, wr_id);
}

/* Translates @cqe to @wc; returns false if no outstanding request belongs to it. */
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
 * Flushes requests that complete in @cq, which is locked: the device is broken and completes
 * nothing any more.
 */
static int flush_wcs(struct vrdma_dev *dev, struct vrdma_cq *cq, int num, struct ib_wc *wc)
{
	unsigned long flags, qpn;
	struct vrdma_qp *qp;
	int n = 0;
	u64 wr_id;

	/* The lock keeps the QPs from being freed, those of other CQs too. */
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

/* The device is broken: notifies the users of the kernel's CQs, who poll flushed requests. */
void vrdma_cqs_flush(struct vrdma_dev *dev)
{
	unsigned long cqn;
	struct vrdma_cq *cq;

	xa_for_each(&dev->cqs, cqn, cq) {
		cq = vrdma_cq_get(dev, cqn);
		if (!cq)
			continue;
		/* A user that never requested an event polls without. */
		if (cq->ring && READ_ONCE(cq->armed) && cq->ibcq.comp_handler)
			cq->ibcq.comp_handler(&cq->ibcq, cq->ibcq.cq_context);
		vrdma_cq_put(cq);
	}
}

int vrdma_poll_cq(struct ib_cq *ibcq, int num, struct ib_wc *wc)
{
	struct vrdma_dev *dev = to_vdev(ibcq->device);
	struct vrdma_cq *cq = to_vcq(ibcq);
	unsigned long flags;
	u32 first;
	int n = 0;

	if (!cq->ring)
		return -EOPNOTSUPP;
	spin_lock_irqsave(&cq->lock, flags);
	first = cq->consumer;
	/* At most the whole ring in one call, however fast the device fills it. */
	while (n < num && cq->consumer - first < cq->entries && cqe_valid(cq, cq->consumer)) {
		/* The rest of the CQE is read after its phase. */
		virt_rmb();
		if (cqe_to_wc(dev, cq, &cq->ring[cq->consumer & (cq->entries - 1)], &wc[n]))
			n++;
		cq->consumer++;
	}
	if (cq->consumer != first)
		/* Release: the device overwrites CQEs only after they have been read. */
		virt_store_release(&cq->rec->consumer, cpu_to_le32(cq->consumer));
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
	__le32 *word;
	int ret = 0;

	if (!cq->ring)
		return -EOPNOTSUPP;
	spin_lock_irqsave(&cq->lock, irq_flags);
	WRITE_ONCE(cq->armed, true);
	if ((flags & IB_CQ_SOLICITED_MASK) == IB_CQ_SOLICITED)
		word = &cq->rec->arm_solicited;
	else
		word = &cq->rec->arm_next;
	WRITE_ONCE(*word, cpu_to_le32(le32_to_cpu(*word) + 1));
	/* Either the device sees the request, or we see its CQE. */
	vrdma_mb();
	if (flags & IB_CQ_REPORT_MISSED_EVENTS)
		ret = cqe_valid(cq, cq->consumer);
	spin_unlock_irqrestore(&cq->lock, irq_flags);
	return ret;
}

/**
 * vrdma_cq_clean() - invalidate the CQEs of a QP
 * @cq: CQ of the kernel
 * @qp: a QP that the device has destroyed or reset
 *
 * The receives of its SRQ among them are not outstanding any more.
 */
void vrdma_cq_clean(struct vrdma_cq *cq, struct vrdma_qp *qp)
{
	unsigned long flags;
	u64 wr_id;
	u32 i;

	if (!cq->ring)
		return;
	spin_lock_irqsave(&cq->lock, flags);
	for (i = cq->consumer; i - cq->consumer < cq->entries && cqe_valid(cq, i); i++) {
		struct vrdma_cqe *cqe = &cq->ring[i & (cq->entries - 1)];

		/* As in vrdma_poll_cq(). */
		virt_rmb();
		if (cqe->qpn != cpu_to_le32(qp->ibqp.qp_num))
			continue;
		if (qp->ibqp.srq && (cqe->flags & VRDMA_CQE_F_RECV))
			complete_request(qp, cqe, &wr_id);
		cqe->qpn = cpu_to_le32(VRDMA_NONE);
	}
	spin_unlock_irqrestore(&cq->lock, flags);
}
