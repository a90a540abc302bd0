/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_MEM_H
#define VRDMA_MEM_H

#include <linux/list.h>
#include <linux/scatterlist.h>

#include "vrdma.h"

struct ib_umem;

/**
 * struct vrdma_mem - memory of an object that the device may touch
 * @node: in &vrdma_dev.quarantine, if the device may still touch it after the object is gone
 * @umem: pinned memory of a process, or NULL
 * @vaddr: memory of the kernel, or NULL
 * @dma: bus address of @vaddr, if it is in one piece
 * @sgt: the pages of @vaddr, if it is in pages
 * @size: bytes at @vaddr
 */
struct vrdma_mem {
	struct list_head node;
	struct ib_umem *umem;
	void *vaddr;
	dma_addr_t dma;
	struct sg_table sgt;
	size_t size;
};

struct vrdma_mem *vrdma_mem_alloc(struct vrdma_dev *dev, size_t size, gfp_t gfp);
struct vrdma_mem *vrdma_mem_alloc_pages(struct vrdma_dev *dev, size_t size);
struct vrdma_mem *vrdma_mem_pin(struct vrdma_dev *dev, u64 addr, u64 len, int access);
void vrdma_mem_free(struct vrdma_dev *dev, struct vrdma_mem *mem);
void vrdma_mem_release(struct vrdma_dev *dev, struct vrdma_mem *mem, int err);
void vrdma_quarantine_init(struct vrdma_dev *dev);
void vrdma_quarantine_cleanup(struct vrdma_dev *dev);

#endif /* VRDMA_MEM_H */
