// SPDX-License-Identifier: GPL-2.0
/*
 * A user of the verbs inside the kernel, for tests in VMs.
 *
 * On each vrdma device it creates a CQ of the largest size, a QP with a receive, and an SRQ that
 * another QP uses. Before that, it resizes a CQ with completions in it, and has READs flushed
 * that invalidate their local key.
 *
 * The kernel log says what it could not get, when it is ready, when its QP is drained, and when
 * the QP is destroyed.
 */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <rdma/ib_verbs.h>

struct ulp {
	struct ib_device *dev;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp;
	struct ib_srq *srq;
	struct ib_qp *srq_qp;
	void *buf;
	u64 dma;
	struct ib_cqe received;
	bool posted;
	bool completed;
};

static void ulp_received(struct ib_cq *cq, struct ib_wc *wc)
{
	struct ulp *ulp = container_of(wc->wr_cqe, struct ulp, received);

	ulp->completed = true;
	pr_info("vrdma_test_ulp: the receive ends: %s\n", ib_wc_status_msg(wc->status));
}

static int ulp_to_init(struct ib_qp *qp)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_INIT, .port_num = 1 };

	return ib_modify_qp(qp, &attr,
			    IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS);
}

static int ulp_receive(struct ulp *ulp)
{
	struct ib_sge sge = { .length = PAGE_SIZE };
	struct ib_recv_wr wr = { .wr_cqe = &ulp->received, .sg_list = &sge, .num_sge = 1 };
	int err;

	err = ulp_to_init(ulp->qp);
	if (err)
		return err;
	ulp->buf = kzalloc(PAGE_SIZE, GFP_KERNEL);
	if (!ulp->buf)
		return -ENOMEM;
	ulp->dma = ib_dma_map_single(ulp->dev, ulp->buf, PAGE_SIZE, DMA_FROM_DEVICE);
	if (ib_dma_mapping_error(ulp->dev, ulp->dma)) {
		kfree(ulp->buf);
		ulp->buf = NULL;
		return -ENOMEM;
	}
	sge.addr = ulp->dma;
	sge.lkey = ulp->pd->local_dma_lkey;
	ulp->received.done = ulp_received;
	err = ib_post_recv(ulp->qp, &wr, NULL);
	ulp->posted = !err;
	return err;
}

/* Creates an SRQ of two receives, resizes it to three, and creates a QP that uses it. */
static int ulp_share(struct ulp *ulp, struct ib_qp_init_attr *attr)
{
	struct ib_srq_init_attr init = {
		.attr = { .max_wr = 2, .max_sge = 1 },
		.srq_type = IB_SRQT_BASIC,
	};
	struct ib_srq_attr size = { .max_wr = 3 };
	struct ib_recv_wr wr = { .wr_cqe = &ulp->received };
	struct ib_srq *srq;
	struct ib_qp *qp;
	int i, err;

	srq = ib_create_srq(ulp->pd, &init);
	if (IS_ERR(srq))
		return PTR_ERR(srq);
	ulp->srq = srq;
	for (i = 0; i < 3; i++) {
		err = ib_post_srq_recv(srq, &wr, NULL);
		if (err == (i < 2 ? 0 : -ENOMEM))
			continue;
		pr_err("vrdma_test_ulp: receive %d of an SRQ of two has failed: %d\n", i, err);
		return err ?: -EINVAL;
	}
	err = ib_modify_srq(srq, &size, IB_SRQ_MAX_WR);
	if (!err)
		err = ib_post_srq_recv(srq, &wr, NULL);
	if (!err)
		err = ib_query_srq(srq, &size);
	if (err || size.max_wr != 3) {
		pr_err("vrdma_test_ulp: an SRQ of %u has failed: %d\n", size.max_wr, err);
		return err ?: -EINVAL;
	}
	attr->srq = srq;
	qp = ib_create_qp(ulp->pd, attr);
	if (IS_ERR(qp))
		return PTR_ERR(qp);
	ulp->srq_qp = qp;
	return ulp_to_init(qp);
}

static void ulp_unshare(struct ulp *ulp)
{
	if (ulp->srq_qp) {
		/* Waits until the QP takes no more receives from the SRQ. */
		ib_drain_qp(ulp->srq_qp);
		ib_destroy_qp(ulp->srq_qp);
	}
	if (ulp->srq)
		ib_destroy_srq(ulp->srq);
}

static void ulp_free(struct ulp *ulp)
{
	ulp_unshare(ulp);
	if (ulp->qp) {
		/* From here on the buffer belongs to this module alone. */
		ib_drain_qp(ulp->qp);
		if (ulp->posted && !ulp->completed)
			pr_err("vrdma_test_ulp: drained, and the receive has failed to end\n");
		pr_info("vrdma_test_ulp: the QP is drained\n");
		ib_destroy_qp(ulp->qp);
		pr_info("vrdma_test_ulp: the QP is destroyed\n");
	}
	if (ulp->buf) {
		ib_dma_unmap_single(ulp->dev, ulp->dma, PAGE_SIZE, DMA_FROM_DEVICE);
		kfree(ulp->buf);
	}
	if (ulp->cq)
		ib_free_cq(ulp->cq);
	if (ulp->pd)
		ib_dealloc_pd(ulp->pd);
	kfree(ulp);
}

struct flushed {
	struct ib_cqe cqe;
	int count;
};

static void flushed_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct flushed *flushed = container_of(wc->wr_cqe, struct flushed, cqe);

	if (wc->status == IB_WC_WR_FLUSH_ERR)
		flushed->count++;
}

/* Posts @num receives that are flushed at once. */
static int post_flushed(struct ib_qp *qp, struct flushed *flushed, int num)
{
	struct ib_recv_wr wr = { .wr_cqe = &flushed->cqe };
	int err = 0;

	while (num-- && !err)
		err = ib_post_recv(qp, &wr, NULL);
	return err;
}

/* Polls until @num receives have been flushed in all. */
static int poll_flushed(struct ib_cq *cq, struct flushed *flushed, int num)
{
	int i;

	for (i = 0; i < 1000 && flushed->count < num; i++) {
		ib_process_cq_direct(cq, -1);
		msleep(1);
	}
	return flushed->count == num ? 0 : -ETIMEDOUT;
}

static int resize_with(struct ib_cq *cq, struct ib_qp *qp)
{
	struct flushed flushed = { .cqe = { .done = flushed_done } };
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };
	int err;

	err = ulp_to_init(qp) ?: ib_modify_qp(qp, &attr, IB_QP_STATE);
	/* Four completions are in the CQ, or come during the resize. Eight more exceed its old
	 * size. */
	err = err ?: post_flushed(qp, &flushed, 4);
	err = err ?: ib_resize_cq(cq, 10);
	err = err ?: cq->cqe == 16 ? 0 : -EINVAL;
	err = err ?: post_flushed(qp, &flushed, 8);
	err = err ?: poll_flushed(cq, &flushed, 12);
	/* The CQ is empty here. */
	err = err ?: ib_resize_cq(cq, 2);
	err = err ?: post_flushed(qp, &flushed, 2);
	err = err ?: poll_flushed(cq, &flushed, 14);
	err = err ?: ib_resize_cq(cq, 0) == -EINVAL ? 0 : -EINVAL;
	return err;
}

static int ulp_resize(struct ulp *ulp)
{
	struct ib_qp_init_attr attr = {
		.cap = { .max_send_wr = 1, .max_recv_wr = 16, .max_recv_sge = 1 },
		.qp_type = IB_QPT_RC,
	};
	struct ib_cq *cq;
	struct ib_qp *qp;
	int err;

	cq = ib_alloc_cq(ulp->dev, NULL, 4, 0, IB_POLL_DIRECT);
	if (IS_ERR(cq))
		return PTR_ERR(cq);
	attr.send_cq = cq;
	attr.recv_cq = cq;
	qp = ib_create_qp(ulp->pd, &attr);
	if (IS_ERR(qp)) {
		ib_free_cq(cq);
		return PTR_ERR(qp);
	}
	err = resize_with(cq, qp);
	if (err)
		pr_err("vrdma_test_ulp: a resize of a CQ has failed: %d\n", err);
	ib_destroy_qp(qp);
	ib_free_cq(cq);
	return err;
}

/* Posts READs that invalidate: each takes two entries of the send queue, and completes once. */
static int flush_reads(struct ib_cq *cq, struct ib_qp *qp)
{
	struct flushed flushed = { .cqe = { .done = flushed_done } };
	struct ib_sge sge = { .length = 8 };
	struct ib_rdma_wr wr = { .wr = { .wr_cqe = &flushed.cqe, .sg_list = &sge, .num_sge = 1 } };
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };
	int i, err;

	err = ulp_to_init(qp) ?: ib_modify_qp(qp, &attr, IB_QP_STATE);
	for (i = 1; i <= 3 && !err; i++) {
		wr.wr.opcode = IB_WR_RDMA_READ_WITH_INV;
		err = ib_post_send(qp, &wr.wr, NULL);
		err = err ?: ib_post_send(qp, &wr.wr, NULL) == -ENOMEM ? 0 : -EINVAL;
		wr.wr.opcode = IB_WR_RDMA_READ;
		err = err ?: ib_post_send(qp, &wr.wr, NULL);
		err = err ?: poll_flushed(cq, &flushed, 2 * i);
	}
	wr.wr.opcode = IB_WR_RDMA_READ_WITH_INV;
	wr.wr.num_sge = 0;
	return err ?: ib_post_send(qp, &wr.wr, NULL) == -EINVAL ? 0 : -EINVAL;
}

static int ulp_flush_reads(struct ulp *ulp)
{
	struct ib_qp_init_attr attr = {
		.cap = { .max_send_wr = 3, .max_recv_wr = 1, .max_send_sge = 1 },
		.qp_type = IB_QPT_RC,
		.sq_sig_type = IB_SIGNAL_ALL_WR,
	};
	struct ib_cq *cq;
	struct ib_qp *qp;
	int err;

	cq = ib_alloc_cq(ulp->dev, NULL, 4, 0, IB_POLL_DIRECT);
	if (IS_ERR(cq))
		return PTR_ERR(cq);
	attr.send_cq = cq;
	attr.recv_cq = cq;
	qp = ib_create_qp(ulp->pd, &attr);
	if (IS_ERR(qp)) {
		ib_free_cq(cq);
		return PTR_ERR(qp);
	}
	err = flush_reads(cq, qp);
	if (err)
		pr_err("vrdma_test_ulp: a flush of READs that invalidate has failed: %d\n", err);
	ib_destroy_qp(qp);
	ib_free_cq(cq);
	return err;
}

static int ulp_alloc(struct ulp *ulp)
{
	struct ib_qp_init_attr attr = {
		/* ib_drain_qp() posts one request to each queue. */
		.cap = { .max_send_wr = 1, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IB_QPT_RC,
		.sq_sig_type = IB_SIGNAL_ALL_WR,
	};
	struct ib_cq *cq;
	struct ib_pd *pd;
	struct ib_qp *qp;
	int err;

	pd = ib_alloc_pd(ulp->dev, 0);
	if (IS_ERR(pd))
		return PTR_ERR(pd);
	ulp->pd = pd;
	cq = ib_alloc_cq(ulp->dev, NULL, ulp->dev->attrs.max_cqe, 0, IB_POLL_DIRECT);
	if (IS_ERR(cq)) {
		pr_err("vrdma_test_ulp: no CQ of %d entries: %ld\n", ulp->dev->attrs.max_cqe,
		       PTR_ERR(cq));
		return PTR_ERR(cq);
	}
	ulp->cq = cq;
	attr.send_cq = cq;
	attr.recv_cq = cq;
	qp = ib_create_qp(pd, &attr);
	if (IS_ERR(qp))
		return PTR_ERR(qp);
	ulp->qp = qp;
	err = ulp_receive(ulp);
	err = err ?: ulp_resize(ulp);
	err = err ?: ulp_flush_reads(ulp);
	return err ?: ulp_share(ulp, &attr);
}

static struct ib_client ulp_client;

static int ulp_add(struct ib_device *dev)
{
	struct ulp *ulp;
	int err;

	if (strncmp(dev_name(&dev->dev), "vrdma", 5))
		return -EOPNOTSUPP;
	ulp = kzalloc(sizeof(*ulp), GFP_KERNEL);
	if (!ulp)
		return -ENOMEM;
	ulp->dev = dev;
	err = ulp_alloc(ulp);
	if (err) {
		pr_err("vrdma_test_ulp: %s: %d\n", dev_name(&dev->dev), err);
		ulp_free(ulp);
		return err;
	}
	ib_set_client_data(dev, &ulp_client, ulp);
	pr_info("vrdma_test_ulp: ready, CQ of %d entries\n", ulp->cq->cqe);
	return 0;
}

static void ulp_remove(struct ib_device *dev, void *data)
{
	ulp_free(data);
}

static struct ib_client ulp_client = {
	.name = "vrdma_test_ulp",
	.add = ulp_add,
	.remove = ulp_remove,
};

static int __init ulp_init(void)
{
	return ib_register_client(&ulp_client);
}

static void __exit ulp_exit(void)
{
	ib_unregister_client(&ulp_client);
}

module_init(ulp_init);
module_exit(ulp_exit);

MODULE_DESCRIPTION("Test of the vrdma driver by a user inside the kernel");
MODULE_AUTHOR("The vrdma authors");
MODULE_LICENSE("GPL");
