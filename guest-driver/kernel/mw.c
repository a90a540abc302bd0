// SPDX-License-Identifier: GPL-2.0
/* Memory windows. Requests bind and invalidate them, and the device checks these requests. */
#include "broken.h"
#include "mrcmds.h"
#include "mw.h"
#include "objects.h"

int vrdma_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata)
{
	struct vrdma_dev *dev = to_vdev(ibmw->device);
	bool type_1 = ibmw->type == IB_MW_TYPE_1;
	u64 cap = type_1 ? VRDMA_CAP_MEM_WINDOW : VRDMA_CAP_MEM_WINDOW_TYPE_2B;

	if (!(dev->caps.device_cap & cap))
		return -EOPNOTSUPP;
	return vrdma_cmd_alloc_mw(dev, to_vpd(ibmw->pd)->pdn,
				  type_1 ? VRDMA_MW_TYPE_TYPE_1 : VRDMA_MW_TYPE_TYPE_2B,
				  &ibmw->rkey);
}

int vrdma_dealloc_mw(struct ib_mw *ibmw)
{
	struct vrdma_dev *dev = to_vdev(ibmw->device);
	int err;

	/* The window may have another key tag already, which does not matter to the device. */
	err = vrdma_cmd_dealloc_mw(dev, ibmw->rkey);
	if (err == -ENOENT)
		/* A window that the device does not have is not bound, and blocks no region. */
		ibdev_warn_ratelimited(&dev->ibdev, "the device has no window %#x\n", ibmw->rkey);
	else if (err && err != -EIO)
		/*
		 * The caller cannot handle an error. The window's region could never be
		 * deregistered, nor its pages unpinned. No process can cause this: the device has
		 * to deallocate every window.
		 */
		vrdma_set_broken(dev, "a memory window cannot be deallocated");
	return 0;
}
