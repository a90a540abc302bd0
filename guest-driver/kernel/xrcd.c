// SPDX-License-Identifier: GPL-2.0
/*
 * XRC domains.
 *
 * They belong to the kernel's context, because the core shares them, and the XRC targets in them,
 * between processes.
 */
#include "cmds.h"
#include "objects.h"
#include "xrcd.h"

int vrdma_alloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata)
{
	return vrdma_cmd_alloc_xrcd(to_vdev(ibxrcd->device), &to_vxrcd(ibxrcd)->xrcdn);
}

int vrdma_dealloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata)
{
	struct vrdma_dev *dev = to_vdev(ibxrcd->device);
	struct vrdma_xrcd *xrcd = to_vxrcd(ibxrcd);
	int err;

	err = vrdma_cmd_dealloc_xrcd(dev, xrcd->xrcdn);
	if (err && err != -EIO)
		ibdev_warn_ratelimited(&dev->ibdev, "XRC domain %u remains in the device: %d\n",
				       xrcd->xrcdn, err);
	/* A caller cannot handle an error. */
	return 0;
}
