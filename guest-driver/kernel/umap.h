/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_UMAP_H
#define VRDMA_UMAP_H

#include <rdma/ib_verbs.h>

/**
 * struct vrdma_umap - pages, or a register, that a process may map
 * @rdma: mmap entry of the core
 * @pfn: number of the first page
 * @io: the page is a register, not memory
 * @free: frees the structure; called once it is removed and nobody maps it any more
 */
struct vrdma_umap {
	struct rdma_user_mmap_entry rdma;
	unsigned long pfn;
	bool io;
	void (*free)(struct vrdma_umap *umap);
};

int vrdma_umap_insert(struct ib_ucontext *ibuctx, struct vrdma_umap *umap, phys_addr_t addr,
		      size_t len);
int vrdma_mmap(struct ib_ucontext *ibuctx, struct vm_area_struct *vma);
void vrdma_mmap_free(struct rdma_user_mmap_entry *rdma);
void vrdma_disassociate_ucontext(struct ib_ucontext *ibuctx);

static inline __le64 vrdma_umap_offset(const struct vrdma_umap *umap)
{
	return cpu_to_le64(rdma_user_mmap_get_offset(&umap->rdma));
}

#endif /* VRDMA_UMAP_H */
