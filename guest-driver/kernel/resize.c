// SPDX-License-Identifier: GPL-2.0
/*
 * Resizing of CQs: the device moves to a new ring, while the CQ is in use.
 *
 * Processes poll their rings in their own memory meanwhile, and users in the kernel poll theirs.
 */
#include <linux/log2.h>

#include "broken.h"
#include "cmds.h"
#include "mem.h"
#include "resize.h"
#include "ring.h"
#include "runs.h"
#include "udata.h"

/* Pins the new memory of a process's CQ, whose provider holds @held CQEs of former rings. */
static int pin_next(struct vrdma_dev *dev, struct vrdma_cq *cq, u32 cqe, struct ib_udata *udata,
		    u32 *entries, u32 *held)
{
	struct vrdma_uresize_cq_req req;
	struct vrdma_mem *mem;
	int err;

	if (udata->inlen < sizeof(req))
		return -EINVAL;
	err = vrdma_udata_read(udata, &req, sizeof(req));
	if (err)
		return err;
	*entries = le32_to_cpu(req.entries);
	*held = le32_to_cpu(req.held);
	mem = vrdma_ring_pin(dev, le64_to_cpu(req.buf), *entries, cqe, cq->timed);
	if (IS_ERR(mem))
		return PTR_ERR(mem);
	cq->next_mem = mem;
	return 0;
}

/* Allocates the new memory of a CQ of the kernel. */
static int alloc_next(struct vrdma_dev *dev, struct vrdma_cq *cq, u32 cqe, u32 *entries, u32 *held)
{
	struct vrdma_mem *mem;
	int err;

	*entries = roundup_pow_of_two(cqe);
	mem = vrdma_ring_alloc(dev, *entries);
	if (IS_ERR(mem))
		return PTR_ERR(mem);
	err = vrdma_ring_begin_resize(cq, mem, *entries, held);
	if (err) {
		vrdma_mem_free(dev, mem);
		return err;
	}
	cq->next_mem = mem;
	return 0;
}

/* Drops the new memory, which the device does not use. */
static void cancel(struct vrdma_dev *dev, struct vrdma_cq *cq)
{
	vrdma_ring_cancel_resize(cq);
	vrdma_mem_free(dev, cq->next_mem);
	cq->next_mem = NULL;
}

static int resize(struct vrdma_dev *dev, struct vrdma_cq *cq, u32 cqe, struct ib_udata *udata)
{
	struct vrdma_resize_cq_req req = { .cqn = cpu_to_le32(cq->cqn) };
	struct vrdma_mem *former = cq->mem;
	struct vrdma_runs *runs;
	u32 entries, held;
	int err;

	/* It is unknown whether the device executed the last resize. */
	if (cq->next_mem)
		return -EIO;
	if (udata)
		err = pin_next(dev, cq, cqe, udata, &entries, &held);
	else
		err = alloc_next(dev, cq, cqe, &entries, &held);
	if (err)
		return err;
	runs = vrdma_mem_runs(dev, cq->next_mem);
	if (IS_ERR(runs)) {
		cancel(dev, cq);
		return PTR_ERR(runs);
	}
	req.entries = cpu_to_le32(entries);
	req.held = cpu_to_le32(held);
	if (cq->timed)
		req.flags = cpu_to_le32(VRDMA_CQ_F_TIMESTAMP);
	err = vrdma_cmd_resize_cq(dev, &req, runs);
	/*
	 * The device may have executed the command, or do so later. So both memories stay until the
	 * CQ is destroyed, and the rings show which one it uses.
	 */
	if (err == -EIO)
		return err;
	if (err) {
		cancel(dev, cq);
		return err;
	}
	if (!udata)
		vrdma_ring_end_resize(cq);
	cq->mem = cq->next_mem;
	cq->next_mem = NULL;
	vrdma_mem_free(dev, former);
	cq->ibcq.cqe = entries;
	return 0;
}

int vrdma_resize_cq(struct ib_cq *ibcq, VRDMA_RESIZE_CQ_ENTRIES cqe, struct ib_udata *udata)
{
	struct vrdma_dev *dev = to_vdev(ibcq->device);
	struct vrdma_cq *cq = to_vcq(ibcq);
	int err;

	/* A negative number is a large one here. */
	if (!cqe || (u32)cqe > dev->caps.max_cqe)
		return -EINVAL;
	/* Checked before memory is pinned: it would stay pinned with such a device. */
	if (vrdma_broken(dev))
		return -EIO;
	/* EIO would mean that the device may have executed the resize. */
	if (vrdma_stalled(dev))
		return -EAGAIN;
	mutex_lock(&cq->resize_lock);
	err = resize(dev, cq, cqe, udata);
	mutex_unlock(&cq->resize_lock);
	return err;
}
