// SPDX-License-Identifier: GPL-2.0
/*
 * Device memory.
 *
 * The device has no memory of its own. The kernel allocates guest memory instead, so that programs
 * written for device memory work.
 *
 * The pages live until the object is gone, no process maps them, and no region uses them. The core
 * frees the regions before the object. If the device may still use a region after that, the pages
 * stay in quarantine with the region.
 */
#include <linux/io.h>
#include <linux/slab.h>

#include "broken.h"
#include "dm.h"
#include "mem.h"
#include "objects.h"

void vrdma_dm_init(struct vrdma_dev *dev)
{
	spin_lock_init(&dev->dm_lock);
}

/* Charges @size bytes to @uctx and to the device, unless that exceeds a limit. */
static bool dm_charge(struct vrdma_dev *dev, struct vrdma_uctx *uctx, size_t size)
{
	bool fits;

	spin_lock(&dev->dm_lock);
	fits = size <= VRDMA_DM_CONTEXT_BYTES - uctx->dm_bytes &&
	       size <= VRDMA_DM_DEVICE_BYTES - dev->dm_bytes;
	if (fits) {
		uctx->dm_bytes += size;
		dev->dm_bytes += size;
	}
	spin_unlock(&dev->dm_lock);
	return fits;
}

static void dm_uncharge(struct vrdma_dev *dev, struct vrdma_uctx *uctx, size_t size)
{
	spin_lock(&dev->dm_lock);
	uctx->dm_bytes -= size;
	dev->dm_bytes -= size;
	spin_unlock(&dev->dm_lock);
}

/* Called when the object is gone and no process maps its pages. The context still exists. */
static void dm_free(struct vrdma_umap *umap)
{
	struct vrdma_dm *dm = container_of(umap, struct vrdma_dm, umap);
	struct vrdma_dev *dev = to_vdev(dm->uctx->ibuctx.device);

	dm_uncharge(dev, dm->uctx, dm->mem->size);
	vrdma_mem_free(dev, dm->mem);
	kfree(dm);
}

struct ib_dm *vrdma_alloc_dm(struct ib_device *ibdev, struct ib_ucontext *ibuctx,
			     struct ib_dm_alloc_attr *attr, struct uverbs_attr_bundle *attrs)
{
	struct vrdma_uctx *uctx = to_vuctx(ibuctx);
	struct vrdma_dev *dev = to_vdev(ibdev);
	struct vrdma_dm *dm;
	size_t size;

	/* The alignment is a power of two, and whole pages are aligned to the page size. */
	if (!attr->length || attr->alignment > PAGE_SHIFT)
		return ERR_PTR(-EINVAL);
	if (attr->length > VRDMA_DM_CONTEXT_BYTES)
		return ERR_PTR(-ENOMEM);
	/* Memory that such a device may still use could not be freed. */
	if (vrdma_broken(dev) || vrdma_stalled(dev))
		return ERR_PTR(-EIO);
	size = PAGE_ALIGN(attr->length);
	if (!dm_charge(dev, uctx, size))
		return ERR_PTR(-ENOMEM);

	dm = kzalloc(sizeof(*dm), GFP_KERNEL_ACCOUNT);
	if (!dm)
		goto err_charge;
	dm->uctx = uctx;
	dm->umap.free = dm_free;
	dm->mem = vrdma_mem_alloc_user(dev, size);
	if (!dm->mem)
		goto err_dm;
	/* From here on a process can map the memory. */
	if (vrdma_umap_insert(ibuctx, &dm->umap, virt_to_phys(dm->mem->vaddr), size))
		goto err_mem;
	return &dm->ibdm;

err_mem:
	vrdma_mem_free(dev, dm->mem);
err_dm:
	kfree(dm);
err_charge:
	dm_uncharge(dev, uctx, size);
	return ERR_PTR(-ENOMEM);
}

int vrdma_dealloc_dm(struct ib_dm *ibdm, struct uverbs_attr_bundle *attrs)
{
	rdma_user_mmap_entry_remove(&to_vdm(ibdm)->umap.rdma);
	return 0;
}
