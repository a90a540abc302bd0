// SPDX-License-Identifier: GPL-2.0
/*
 * Memory regions.
 */
#include <linux/slab.h>
#include <rdma/ib_umem.h>

#include "broken.h"
#include "mem.h"
#include "mr.h"
#include "mrcmds.h"
#include "objects.h"
#include "runs.h"

/*
 * Returns the access flags for the device, which has the same numbers.
 *
 * Hints are ignored: huge pages are found without them, and optional flags need no support. Flags
 * that the device lacks (on-demand paging, flush to persistence) yield -EOPNOTSUPP.
 */
static int check_access(const struct vrdma_dev *dev, int access)
{
	int known = VRDMA_ACCESS_V1_0;

	if (dev->caps.device_cap & VRDMA_CAP_WINDOWS)
		known |= VRDMA_ACCESS_MW_BIND;
	if (dev->caps.device_cap & VRDMA_CAP_FLUSH_GLOBAL)
		known |= VRDMA_ACCESS_FLUSH_GLOBAL;
	access &= ~(IB_ACCESS_OPTIONAL | IB_ACCESS_HUGETLB);
	if (access & ~known)
		return -EOPNOTSUPP;
	return access;
}

/* Pins @length bytes from @start, and lists their extents. */
static struct vrdma_mem *pin(struct vrdma_dev *dev, u64 start, u64 length, int access,
			     struct vrdma_runs **runs)
{
	struct vrdma_mem *mem = vrdma_mem_pin(dev, start, length, access);
	int err;

	if (IS_ERR(mem))
		return mem;
	*runs = vrdma_mem_runs(dev, mem);
	if (IS_ERR(*runs)) {
		err = PTR_ERR(*runs);
		vrdma_mem_free(dev, mem);
		return ERR_PTR(err);
	}
	return mem;
}

struct ib_mr *vrdma_get_dma_mr(struct ib_pd *ibpd, int access)
{
	struct vrdma_dev *dev = to_vdev(ibpd->device);
	struct vrdma_mr *mr;
	int err;

	access = check_access(dev, access);
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

/*
 * Registers @mem, and takes its ownership, also on failure.
 *
 * @mem is NULL for a region of length 0, which has keys and no memory. @access has IB_ZERO_BASED if
 * the addresses of the region start at 0.
 */
static struct ib_mr *register_mem(struct ib_pd *ibpd, struct vrdma_mem *mem, u64 iova, u64 length,
				  int access)
{
	struct vrdma_reg_mr_req req = {
		.pdn = cpu_to_le32(to_vpd(ibpd)->pdn),
		.access = cpu_to_le32(access & ~IB_ZERO_BASED),
		.iova = cpu_to_le64(iova),
		.length = cpu_to_le64(length),
	};
	struct vrdma_dev *dev = to_vdev(ibpd->device);
	struct vrdma_runs *runs = NULL;
	struct vrdma_mr *mr;
	int err;

	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr) {
		vrdma_mem_free(dev, mem);
		return ERR_PTR(-ENOMEM);
	}
	if (mem) {
		runs = vrdma_mem_runs(dev, mem);
		if (IS_ERR(runs)) {
			err = PTR_ERR(runs);
			vrdma_mem_free(dev, mem);
			goto err_mr;
		}
	}
	mr->mem = mem;
	err = vrdma_cmd_reg_mr(dev, &req, runs, &mr->ibmr, &mr->mem);
	if (err) {
		vrdma_mem_release(dev, mr->mem, vrdma_broken(dev) ? err : 0);
		goto err_mr;
	}
	mr->ibmr.iova = iova;
	mr->ibmr.length = length;
	mr->iova = iova;
	mr->access = access;
	return &mr->ibmr;

err_mr:
	kfree(mr);
	return ERR_PTR(err);
}

struct ib_mr *vrdma_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length, u64 virt_addr,
				int access, VRDMA_DMAH_PARAM struct ib_udata *udata)
{
	struct vrdma_dev *dev = to_vdev(ibpd->device);
	int zero_based = access & IB_ZERO_BASED;
	struct vrdma_mem *mem = NULL;

	/* The addresses in such a region start at 0. */
	if (zero_based)
		virt_addr = 0;
	access = check_access(dev, access & ~IB_ZERO_BASED);
	if (access < 0)
		return ERR_PTR(access);
	if (length > dev->caps.max_mr_size)
		return ERR_PTR(-EINVAL);
	/* Checked before memory is pinned: it would stay pinned with such a device. */
	if (vrdma_broken(dev) || vrdma_stalled(dev))
		return ERR_PTR(-EIO);
	if (length) {
		mem = vrdma_mem_pin(dev, start, length, access);
		if (IS_ERR(mem))
			return ERR_CAST(mem);
	}
	return register_mem(ibpd, mem, virt_addr, length, access | zero_based);
}

/* The core has checked that the region is within @ibdm, and that its addresses start at 0. */
struct ib_mr *vrdma_reg_dm_mr(struct ib_pd *ibpd, struct ib_dm *ibdm, struct ib_dm_mr_attr *attr,
			      struct uverbs_attr_bundle *attrs)
{
	struct vrdma_dev *dev = to_vdev(ibpd->device);
	int access = check_access(dev, attr->access_flags & ~IB_ZERO_BASED);
	struct vrdma_mem *mem = NULL;

	if (access < 0)
		return ERR_PTR(access);
	if (vrdma_broken(dev) || vrdma_stalled(dev))
		return ERR_PTR(-EIO);
	if (attr->length) {
		mem = vrdma_mem_part(to_vdm(ibdm)->mem, attr->offset, attr->length);
		if (!mem)
			return ERR_PTR(-ENOMEM);
	}
	return register_mem(ibpd, mem, 0, attr->length, access | IB_ZERO_BASED);
}

/*
 * Changes the region in the device.
 *
 * If @req has a new translation, @mem is the new memory, which refers to the former one. Otherwise
 * @mem is NULL.
 */
static int rereg(struct vrdma_dev *dev, struct vrdma_mr *mr, const struct vrdma_rereg_mr_req *req,
		 struct vrdma_mem *mem, struct vrdma_runs *runs)
{
	struct vrdma_mem *all = mem ?: mr->mem;
	bool pending = false, submitted = false;
	int err;

	if (mem)
		mem->former = mr->mem;
	err = vrdma_cmd_rereg_mr(dev, req, runs, &mr->ibmr, &all, &pending, &submitted);
	if (pending) {
		/* abandoned.c destroys the region after the device has answered. */
		mr->mem = NULL;
		mr->lost = true;
		return err;
	}
	if (!mem)
		return err;
	if (err == -EIO && submitted) {
		/* The device may use either memory, and the key of the region may be unknown. */
		vrdma_mem_release(dev, mem, err);
		mr->mem = NULL;
		mr->lost = true;
		return err;
	}
	mem->former = NULL;
	if (err) {
		vrdma_mem_free(dev, mem);
		return err;
	}
	vrdma_mem_free(dev, mr->mem);
	mr->mem = mem;
	return 0;
}

/*
 * Changes a region in place.
 *
 * The start of its addresses, and whether that is 0, changes only with IB_MR_REREG_TRANS.
 */
struct ib_mr *vrdma_rereg_user_mr(struct ib_mr *ibmr, int flags, u64 start, u64 length,
				  u64 virt_addr, int access, struct ib_pd *ibpd,
				  struct ib_udata *udata)
{
	struct vrdma_dev *dev = to_vdev(ibmr->device);
	struct vrdma_mr *mr = to_vmr(ibmr);
	struct ib_umem *umem = mr->mem ? mr->mem->umem : NULL;
	struct vrdma_rereg_mr_req req = {};
	struct vrdma_runs *runs = NULL;
	struct vrdma_mem *mem = NULL;
	int zero_based, err;

	if (!(flags & IB_MR_REREG_ACCESS))
		access = mr->access;
	zero_based = (flags & IB_MR_REREG_TRANS ? access : mr->access) & IB_ZERO_BASED;
	access = check_access(dev, access & ~IB_ZERO_BASED);
	if (access < 0)
		return ERR_PTR(access);
	if ((flags & IB_MR_REREG_TRANS) && (!length || length > dev->caps.max_mr_size))
		return ERR_PTR(-EINVAL);
	/* Checked before memory is pinned: it would stay pinned with such a device. */
	if (mr->lost || vrdma_broken(dev) || vrdma_stalled(dev))
		return ERR_PTR(-EIO);
	/* The core clears IB_MR_REREG_PD if the region already has that PD. */
	if (!flags)
		return NULL;

	if (flags & IB_MR_REREG_TRANS) {
		virt_addr = zero_based ? 0 : virt_addr;
	} else if (ib_umem_check_rereg(umem, flags, access)) {
		/* The region becomes writable, but was pinned read-only. So it is pinned again. */
		if (umem->owning_mm != current->mm)
			return ERR_PTR(-EACCES);
		start = umem->address;
		length = umem->length;
		virt_addr = mr->iova;
		flags |= IB_MR_REREG_TRANS;
	}
	req.lkey = cpu_to_le32(ibmr->lkey);
	req.flags = cpu_to_le32(flags);
	if (flags & IB_MR_REREG_PD)
		req.pdn = cpu_to_le32(to_vpd(ibpd)->pdn);
	if (flags & IB_MR_REREG_ACCESS)
		req.access = cpu_to_le32(access);
	if (flags & IB_MR_REREG_TRANS) {
		mem = pin(dev, start, length, access, &runs);
		if (IS_ERR(mem))
			return ERR_CAST(mem);
		req.iova = cpu_to_le64(virt_addr);
		req.length = cpu_to_le64(length);
	}
	err = rereg(dev, mr, &req, mem, runs);
	if (err)
		return ERR_PTR(err);
	if (flags & IB_MR_REREG_TRANS)
		mr->iova = virt_addr;
	mr->access = access | zero_based;
	return NULL;
}

int vrdma_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	struct vrdma_dev *dev = to_vdev(ibmr->device);
	struct vrdma_mr *mr = to_vmr(ibmr);
	int err;

	if (mr->lost)
		goto out;
	err = vrdma_cmd_dereg_mr(dev, ibmr->lkey, &mr->mem);
	/* Windows are bound to the region. The core tries again after it has destroyed them. */
	if (err == -EBUSY && udata)
		return err;
	if (err && err != -EIO)
		ibdev_warn_ratelimited(&dev->ibdev, "MR %#x remains in the device: %d\n",
				       ibmr->lkey, err);
	vrdma_mem_release(dev, mr->mem, err);
out:
	kfree(mr);
	/* The caller cannot handle any other error. */
	return 0;
}
