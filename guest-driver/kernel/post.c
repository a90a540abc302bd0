// SPDX-License-Identifier: GPL-2.0
/*
 * Posting to the kernel's own QPs.
 *
 * Requests are built here and go into the kernel's channel. The device does not get the wr_id: a
 * CQE has the index of its request.
 */
#include "broken.h"
#include "fast.h"
#include "kchannel.h"
#include "post.h"
#include "slots.h"
#include "wq.h"

/* Buffer in which a request is built. A READ that invalidates a key takes two requests. */
union wqe_buf {
	struct vrdma_wqe header;
	u8 bytes[(VRDMA_WQE_MAX_UNITS_V1_1 + 1) * VRDMA_WQE_UNIT_SIZE];
};

static void fill_sges(union wqe_buf *wqe, size_t offset, const struct ib_sge *sg_list, int num)
{
	struct vrdma_sge *sge = (struct vrdma_sge *)&wqe->bytes[offset];
	int i;

	for (i = 0; i < num; i++) {
		sge[i].addr = cpu_to_le64(sg_list[i].addr);
		sge[i].length = cpu_to_le32(sg_list[i].length);
		sge[i].lkey = cpu_to_le32(sg_list[i].lkey);
	}
	wqe->header.sge_count = num;
}

/* Returns the number of units of a request with @data bytes after its body. */
static unsigned int wqe_units(size_t data)
{
	return DIV_ROUND_UP(VRDMA_WQE_DATA_OFFSET + data, VRDMA_WQE_UNIT_SIZE);
}

static int fill_inline(struct vrdma_qp *qp, union wqe_buf *wqe, const struct ib_send_wr *wr)
{
	size_t len = 0;
	int i;

	for (i = 0; i < wr->num_sge; i++) {
		const struct ib_sge *sge = &wr->sg_list[i];

		if (sge->length > qp->cap.max_inline_data - len)
			return -EINVAL;
		memcpy(&wqe->bytes[VRDMA_WQE_DATA_OFFSET + len],
		       (void *)(uintptr_t)sge->addr, sge->length);
		len += sge->length;
	}
	wqe->header.inline_len = cpu_to_le16(len);
	wqe->header.units = wqe_units(len);
	return 0;
}

static int fill_atomic(union wqe_buf *wqe, const struct ib_send_wr *wr)
{
	struct vrdma_wqe_rdma *rdma = (void *)&wqe->bytes[VRDMA_WQE_BODY_OFFSET];
	struct vrdma_wqe_atomic *atomic = (void *)&wqe->bytes[VRDMA_WQE_DATA_OFFSET];

	if (wr->num_sge != 1)
		return -EINVAL;
	rdma->remote_addr = cpu_to_le64(atomic_wr(wr)->remote_addr);
	rdma->rkey = cpu_to_le32(atomic_wr(wr)->rkey);
	atomic->compare_add = cpu_to_le64(atomic_wr(wr)->compare_add);
	atomic->swap = cpu_to_le64(atomic_wr(wr)->swap);
	fill_sges(wqe, VRDMA_WQE_ATOMIC_SGE_OFFSET, wr->sg_list, 1);
	wqe->header.units = 1;
	return 0;
}

static void fill_ud(union wqe_buf *wqe, const struct ib_send_wr *wr, __be32 imm)
{
	struct vrdma_wqe_ud *ud = (void *)&wqe->bytes[VRDMA_WQE_BODY_OFFSET];

	ud->ah = cpu_to_le32(to_vah(ud_wr(wr)->ah)->index);
	ud->remote_qpn = cpu_to_le32(ud_wr(wr)->remote_qpn);
	ud->qkey = cpu_to_le32(ud_wr(wr)->remote_qkey);
	ud->imm = imm;
}

static int send_opcode(const struct ib_send_wr *wr)
{
	switch (wr->opcode) {
	case IB_WR_RDMA_WRITE:
		return VRDMA_WR_RDMA_WRITE;
	case IB_WR_RDMA_WRITE_WITH_IMM:
		return VRDMA_WR_RDMA_WRITE_WITH_IMM;
	case IB_WR_SEND:
		return VRDMA_WR_SEND;
	case IB_WR_SEND_WITH_IMM:
		return VRDMA_WR_SEND_WITH_IMM;
	case IB_WR_SEND_WITH_INV:
		return VRDMA_WR_SEND_WITH_INV;
	case IB_WR_LOCAL_INV:
		return VRDMA_WR_LOCAL_INV;
	case IB_WR_REG_MR:
		return VRDMA_WR_REG_MR;
	case IB_WR_RDMA_READ:
	case IB_WR_RDMA_READ_WITH_INV:
		return VRDMA_WR_RDMA_READ;
	case IB_WR_ATOMIC_CMP_AND_SWP:
		return VRDMA_WR_ATOMIC_CMP_AND_SWP;
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		return VRDMA_WR_ATOMIC_FETCH_AND_ADD;
	default:
		/* In Linux 6.1 it is no value of the type. */
		return wr->opcode == IB_WR_ATOMIC_WRITE ? VRDMA_WR_ATOMIC_WRITE : -EOPNOTSUPP;
	}
}

/* Checks that the QP takes this kind of request, as far as the device does not check it itself. */
static int check_send(const struct vrdma_qp *qp, const struct ib_send_wr *wr)
{
	bool ud = qp->ibqp.qp_type == IB_QPT_UD || qp->ibqp.qp_type == IB_QPT_GSI;
	u64 invalidates = VRDMA_CAP_MEM_WINDOW_TYPE_2B | VRDMA_CAP_MEM_MGT_EXTENSIONS;

	if (wr->num_sge < 0 || wr->num_sge > qp->cap.max_send_sge)
		return -EINVAL;
	if (ud && wr->opcode != IB_WR_SEND && wr->opcode != IB_WR_SEND_WITH_IMM)
		return -EINVAL;
	if (wr->opcode != IB_WR_LOCAL_INV && wr->opcode != IB_WR_SEND_WITH_INV &&
	    wr->opcode != IB_WR_RDMA_READ_WITH_INV)
		return 0;
	if (!(to_vdev(qp->ibqp.device)->caps.device_cap & invalidates))
		return -EOPNOTSUPP;
	if (wr->opcode == IB_WR_LOCAL_INV)
		return wr->num_sge ? -EINVAL : 0;
	if (wr->opcode == IB_WR_RDMA_READ_WITH_INV && wr->num_sge != 1)
		return -EINVAL;
	return qp->ibqp.qp_type == IB_QPT_RC ? 0 : -EINVAL;
}

/* Fills in the peer's memory that a request of a connected QP names, or its key. */
static void fill_rdma(union wqe_buf *wqe, const struct ib_send_wr *wr, __be32 imm)
{
	struct vrdma_wqe_rdma *rdma = (void *)&wqe->bytes[VRDMA_WQE_BODY_OFFSET];

	rdma->imm = imm;
	switch (wr->opcode) {
	case IB_WR_SEND:
	case IB_WR_SEND_WITH_IMM:
		break;
	case IB_WR_SEND_WITH_INV:
	case IB_WR_LOCAL_INV:
		rdma->rkey = cpu_to_le32(wr->ex.invalidate_rkey);
		break;
	default:
		rdma->remote_addr = cpu_to_le64(rdma_wr(wr)->remote_addr);
		rdma->rkey = cpu_to_le32(rdma_wr(wr)->rkey);
	}
}

static int fill_send(struct vrdma_qp *qp, union wqe_buf *wqe, const struct ib_send_wr *wr)
{
	bool ud = qp->ibqp.qp_type == IB_QPT_UD || qp->ibqp.qp_type == IB_QPT_GSI;
	int opcode = send_opcode(wr);
	__be32 imm = 0;
	u16 flags = 0;
	int err;

	if (opcode < 0)
		return opcode;
	err = check_send(qp, wr);
	if (err)
		return err;

	memset(wqe, 0, sizeof(*wqe));
	wqe->header.opcode = opcode;
	wqe->header.object = cpu_to_le32(qp->ibqp.qp_num);
	if (qp->sig_all || (wr->send_flags & IB_SEND_SIGNALED))
		flags |= VRDMA_WQE_F_SIGNALED;
	if (wr->send_flags & IB_SEND_SOLICITED)
		flags |= VRDMA_WQE_F_SOLICITED;
	if (wr->send_flags & IB_SEND_FENCE)
		flags |= VRDMA_WQE_F_FENCE;
	if (wr->opcode == IB_WR_SEND_WITH_IMM || wr->opcode == IB_WR_RDMA_WRITE_WITH_IMM)
		imm = wr->ex.imm_data;

	wqe->header.flags = cpu_to_le16(flags);
	if (opcode == VRDMA_WR_ATOMIC_CMP_AND_SWP || opcode == VRDMA_WR_ATOMIC_FETCH_AND_ADD)
		return fill_atomic(wqe, wr);
	if (opcode == VRDMA_WR_REG_MR)
		return vrdma_fill_reg(wqe->bytes, wr);
	if (ud)
		fill_ud(wqe, wr, imm);
	else
		fill_rdma(wqe, wr, imm);
	if ((wr->send_flags & IB_SEND_INLINE) && opcode != VRDMA_WR_RDMA_READ &&
	    opcode != VRDMA_WR_LOCAL_INV) {
		wqe->header.flags |= cpu_to_le16(VRDMA_WQE_F_INLINE);
		return fill_inline(qp, wqe, wr);
	}
	fill_sges(wqe, VRDMA_WQE_DATA_OFFSET, wr->sg_list, wr->num_sge);
	wqe->header.units = wqe_units(wr->num_sge * sizeof(struct vrdma_sge));
	return 0;
}

/*
 * Makes the READ in @wqe invalidate the key of its buffer when it has ended.
 *
 * A second request after it does so, and completes for both. The key is the buffer's, as in all
 * iWARP drivers, and not ex.invalidate_rkey, which rdma_rw may have set to an older key.
 */
static void add_invalidation(union wqe_buf *wqe, u32 key)
{
	struct vrdma_wqe *second = (void *)&wqe->bytes[wqe->header.units * VRDMA_WQE_UNIT_SIZE];
	struct vrdma_wqe_rdma *rdma = (void *)second + VRDMA_WQE_BODY_OFFSET;
	u16 flags = le16_to_cpu(wqe->header.flags) & VRDMA_WQE_F_SIGNALED;

	wqe->header.flags &= ~cpu_to_le16(VRDMA_WQE_F_SIGNALED);
	second->opcode = VRDMA_WR_LOCAL_INV;
	second->object = wqe->header.object;
	second->flags = cpu_to_le16(flags | VRDMA_WQE_F_FENCE);
	second->units = wqe_units(0);
	rdma->rkey = cpu_to_le32(key);
}

/* Posts @count requests, which are contiguous and complete as one in @ibcq. The queue is locked. */
static int post(struct vrdma_dev *dev, struct vrdma_qp *qp, struct vrdma_wq *wq,
		struct ib_cq *ibcq, union wqe_buf *wqe, u32 count, u64 wr_id)
{
	struct vrdma_cq *cq = to_vcq(ibcq);
	unsigned int units = 0;
	struct vrdma_wqe *part;
	int err;
	u32 i;

	for (i = 0; i < count; i++) {
		part = (void *)&wqe->bytes[units * VRDMA_WQE_UNIT_SIZE];
		part->wqe_id = cpu_to_le32(wq->head + i);
		units += part->units;
	}
	vrdma_wq_posted(wq, wr_id, count);
	err = vrdma_kernel_post(dev, &qp->target, wqe, units);
	if (!err)
		return 0;

	/* Under the lock the request is not flushed while it is removed again. */
	spin_lock(&cq->lock);
	if (vrdma_broken(dev)) {
		/*
		 * The caller may wait for its completion to drain the QP. So the request is
		 * flushed.
		 */
		queue_work(dev->wq, &dev->fatal_work);
		err = 0;
	} else {
		WRITE_ONCE(wq->head, wq->head - count);
	}
	spin_unlock(&cq->lock);
	return err;
}

/* Posts a request to a QP whose send queue is locked. */
static int post_one_send(struct vrdma_dev *dev, struct vrdma_qp *qp, const struct ib_send_wr *wr)
{
	u32 count = wr->opcode == IB_WR_RDMA_READ_WITH_INV ? 2 : 1;
	union wqe_buf wqe;
	int err;

	if (!vrdma_wq_has_room(&qp->sq, count))
		return -ENOMEM;
	err = fill_send(qp, &wqe, wr);
	if (err)
		return err;
	if (count == 2)
		add_invalidation(&wqe, wr->sg_list[0].lkey);
	return post(dev, qp, &qp->sq, qp->ibqp.send_cq, &wqe, count, wr->wr_id);
}

int vrdma_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
		    const struct ib_send_wr **bad_wr)
{
	struct vrdma_dev *dev = to_vdev(ibqp->device);
	struct vrdma_qp *qp = to_vqp(ibqp);
	unsigned long flags;
	int err = 0;

	/* A process posts to its own channel, or by VRDMA_METHOD_POST. */
	if (!vrdma_is_of_kernel(qp)) {
		*bad_wr = wr;
		return -EOPNOTSUPP;
	}
	spin_lock_irqsave(&qp->sq.lock, flags);
	for (; wr; wr = wr->next) {
		err = post_one_send(dev, qp, wr);
		if (err) {
			*bad_wr = wr;
			break;
		}
	}
	spin_unlock_irqrestore(&qp->sq.lock, flags);
	return err;
}

/* Builds a receive of at most @max_sge SGEs for the QP or SRQ @object. */
static int fill_recv(union wqe_buf *wqe, u8 opcode, u32 object, u32 max_sge,
		     const struct ib_recv_wr *wr)
{
	if (wr->num_sge < 0 || wr->num_sge > max_sge)
		return -EINVAL;
	memset(wqe, 0, sizeof(*wqe));
	wqe->header.opcode = opcode;
	wqe->header.object = cpu_to_le32(object);
	fill_sges(wqe, VRDMA_WQE_DATA_OFFSET, wr->sg_list, wr->num_sge);
	wqe->header.units = wqe_units(wr->num_sge * sizeof(struct vrdma_sge));
	return 0;
}

int vrdma_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
		    const struct ib_recv_wr **bad_wr)
{
	struct vrdma_dev *dev = to_vdev(ibqp->device);
	struct vrdma_qp *qp = to_vqp(ibqp);
	union wqe_buf wqe;
	unsigned long flags;
	int err = 0;

	if (!vrdma_is_of_kernel(qp) || ibqp->srq) {
		*bad_wr = wr;
		return ibqp->srq ? -EINVAL : -EOPNOTSUPP;
	}
	spin_lock_irqsave(&qp->rq.lock, flags);
	for (; wr; wr = wr->next) {
		err = -ENOMEM;
		if (vrdma_wq_has_room(&qp->rq, 1))
			err = fill_recv(&wqe, VRDMA_WR_RECV, ibqp->qp_num, qp->cap.max_recv_sge,
					wr);
		if (!err)
			err = post(dev, qp, &qp->rq, ibqp->recv_cq, &wqe, 1, wr->wr_id);
		if (err) {
			*bad_wr = wr;
			break;
		}
	}
	spin_unlock_irqrestore(&qp->rq.lock, flags);
	return err;
}

/* Posts a receive to an SRQ, which is locked. */
static int post_srq(struct vrdma_dev *dev, struct vrdma_srq *srq, union wqe_buf *wqe, u64 wr_id)
{
	u32 slot;
	int err;

	if (!vrdma_slots_take(&srq->slots, wr_id, &slot))
		return -ENOMEM;
	wqe->header.wqe_id = cpu_to_le32(slot);
	err = vrdma_kernel_post(dev, &srq->target, wqe, wqe->header.units);
	if (err)
		vrdma_slots_complete(&srq->slots, slot, &wr_id);
	return err;
}

int vrdma_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
			const struct ib_recv_wr **bad_wr)
{
	struct vrdma_dev *dev = to_vdev(ibsrq->device);
	struct vrdma_srq *srq = to_vsrq(ibsrq);
	union wqe_buf wqe;
	unsigned long flags;
	int err = 0;

	if (srq->uctx) {
		*bad_wr = wr;
		return -EOPNOTSUPP;
	}
	spin_lock_irqsave(&srq->lock, flags);
	for (; wr; wr = wr->next) {
		err = fill_recv(&wqe, VRDMA_WR_SRQ_RECV, srq->srqn, srq->max_sge, wr);
		if (!err)
			err = post_srq(dev, srq, &wqe, wr->wr_id);
		if (err) {
			*bad_wr = wr;
			break;
		}
	}
	spin_unlock_irqrestore(&srq->lock, flags);
	return err;
}
