// SPDX-License-Identifier: GPL-2.0
/*
 * Memory regions.
 */
#include <linux/slab.h>

#include "broken.h"
#include "cmds.h"
#include "mem.h"
#include "mr.h"
#include "objects.h"
#include "runs.h"

/*
 * The access flags for the device, which has the same numbers. Hints are ignored: huge pages are
 * found without them, and optional flags need no support. Those that the device lacks (memory
 * windows, on-demand paging, flush) are -EOPNOTSUPP.
 */
static int check_access(int access)
{
	access &= ~(IB_ACCESS_OPTIONAL | IB_ACCESS_HUGETLB);
	if (access & ~(int)VRDMA_ACCESS_ALL)
		return -EOPNOTSUPP;
	return access;
}

struct ib_mr *vrdma_get_dma_mr(struct ib_pd *ibpd, int access)
{
	struct vrdma_dev *dev = to_vdev(ibpd->device);
	struct vrdma_mr *mr;
	int err;

	access = check_access(access);
	if (access < 0)
		return ERR_PTR(access);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	err = vrdma_cmd_get_dma_mr(dev, to_vpd(ibpd)->pdn, access, &mr->ibmr);
	if (err) {
		kfree(mr);
		return ERR_PTR(err);
	}
	return &mr->ibmr;
}

struct ib_mr *vrdma_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length, u64 virt_addr,
				int access, struct ib_udata *udata)
{
	struct vrdma_dev *dev = to_vdev(ibpd->device);
	struct vrdma_reg_mr_req req = {};
	struct vrdma_runs *runs = NULL;
	struct vrdma_mr *mr;
	int err;

	/* The addresses in such a region start from 0. */
	if (access & IB_ZERO_BASED)
		virt_addr = 0;
	access = check_access(access & ~IB_ZERO_BASED);
	if (access < 0)
		return ERR_PTR(access);
	if (length > dev->caps.max_mr_size)
		return ERR_PTR(-EINVAL);
	/* Checked before memory is pinned, which such a device would keep pinned. */
	if (vrdma_broken(dev) || vrdma_stalled(dev))
		return ERR_PTR(-EIO);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	/* A region of length 0 has keys and no memory. */
	if (length) {
		mr->mem = vrdma_mem_pin(dev, start, length, access);
		if (IS_ERR(mr->mem)) {
			err = PTR_ERR(mr->mem);
			goto err_mr;
		}
		runs = vrdma_mem_runs(dev, mr->mem);
		if (IS_ERR(runs)) {
			err = PTR_ERR(runs);
			vrdma_mem_free(dev, mr->mem);
			goto err_mr;
		}
	}

	req.pdn = cpu_to_le32(to_vpd(ibpd)->pdn);
	req.access = cpu_to_le32(access);
	req.iova = cpu_to_le64(virt_addr);
	req.length = cpu_to_le64(length);
	err = vrdma_cmd_reg_mr(dev, &req, runs, &mr->ibmr, &mr->mem);
	if (err) {
		vrdma_mem_release(dev, mr->mem, vrdma_broken(dev) ? err : 0);
		goto err_mr;
	}
	return &mr->ibmr;

err_mr:
	kfree(mr);
	return ERR_PTR(err);
}

int vrdma_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	struct vrdma_dev *dev = to_vdev(ibmr->device);
	struct vrdma_mr *mr = to_vmr(ibmr);
	int err;

	err = vrdma_cmd_dereg_mr(dev, ibmr->lkey, &mr->mem);
	if (err && err != -EIO)
		ibdev_warn_ratelimited(&dev->ibdev, "MR %#x remains in the device: %d\n",
				       ibmr->lkey, err);
	vrdma_mem_release(dev, mr->mem, err);
	kfree(mr);
	/* A caller cannot handle an error. */
	return 0;
}
