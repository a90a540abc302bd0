// SPDX-License-Identifier: GPL-2.0
/*
 * What a process may map, and until when: pages of a channel or of device memory, and doorbells.
 */
#include <linux/mm.h>

#include "umap.h"

/**
 * vrdma_umap_insert() - let the processes of a context map something
 * @ibuctx: the context
 * @umap: it; @io and @free are set
 * @addr: its first byte, in a page of its own
 * @len: bytes, whole pages
 *
 * From then on it is freed by rdma_user_mmap_entry_remove(), after the last mapping is gone.
 */
int vrdma_umap_insert(struct ib_ucontext *ibuctx, struct vrdma_umap *umap, phys_addr_t addr,
		      size_t len)
{
	umap->pfn = PHYS_PFN(addr);
	return rdma_user_mmap_entry_insert(ibuctx, &umap->rdma, len);
}

void vrdma_mmap_free(struct rdma_user_mmap_entry *rdma)
{
	struct vrdma_umap *umap = container_of(rdma, struct vrdma_umap, rdma);

	umap->free(umap);
}

int vrdma_mmap(struct ib_ucontext *ibuctx, struct vm_area_struct *vma)
{
	struct rdma_user_mmap_entry *rdma;
	struct vrdma_umap *umap;
	pgprot_t prot;
	int err;

	rdma = rdma_user_mmap_entry_get(ibuctx, vma);
	if (!rdma)
		return -EINVAL;
	umap = container_of(rdma, struct vrdma_umap, rdma);
	prot = umap->io ? pgprot_device(vma->vm_page_prot) : vma->vm_page_prot;
	/* For memory too, so that the core unmaps it when the device is removed. */
	err = rdma_user_mmap_io(ibuctx, vma, umap->pfn, rdma->npages * PAGE_SIZE, prot, rdma);
	rdma_user_mmap_entry_put(rdma);
	return err;
}

/*
 * The core has already removed what rdma_user_mmap_io() mapped, which is all. That this function
 * exists tells the core that the driver can be removed while processes use it.
 */
void vrdma_disassociate_ucontext(struct ib_ucontext *ibuctx)
{
}
