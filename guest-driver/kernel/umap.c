// SPDX-License-Identifier: GPL-2.0
/* What a process may map, and for how long: pages of a channel, device memory, and doorbells. */
#include <linux/mm.h>

#include "umap.h"

/**
 * vrdma_umap_insert() - let the processes of a context map pages or a register
 * @ibuctx: the context
 * @umap: the mapping; @io and @free are set
 * @addr: address of the first byte, which starts a page
 * @len: length in bytes, whole pages
 *
 * Afterwards rdma_user_mmap_entry_remove() frees the mapping, after the last user has unmapped it.
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
	/* Used for memory too, so that the core unmaps it when the device is removed. */
	err = rdma_user_mmap_io(ibuctx, vma, umap->pfn, rdma->npages * PAGE_SIZE, prot, rdma);
	rdma_user_mmap_entry_put(rdma);
	return err;
}

/*
 * Has nothing to do: the core has already unmapped all that rdma_user_mmap_io() mapped.
 *
 * By the existence of this function the core knows that the driver can be removed while processes
 * use it.
 */
void vrdma_disassociate_ucontext(struct ib_ucontext *ibuctx)
{
}
