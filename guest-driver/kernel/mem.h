/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_MEM_H
#define VRDMA_MEM_H

#include <linux/list.h>
#include <linux/refcount.h>
#include <linux/scatterlist.h>

#include "vrdma.h"

struct ib_umem;

/**
 * struct vrdma_mem - memory of an object that the device may touch
 * @ref: references of the owner and of the parts
 * @node: node in &vrdma_dev.quarantine, if the device may still touch it after the object is gone
 * @former: former memory of the object, if the device may still touch it; else NULL
 * @umem: pinned memory of a process, or NULL
 * @whole: the memory that this one is a part of, or NULL
 * @vaddr: memory of the kernel, or NULL
 * @user: @vaddr is whole pages, which processes map too
 * @dma: bus address of @vaddr or of the part, if the memory is in one piece
 * @sgt: scatterlist of the pages of @vaddr, if the memory is in pages
 * @size: size in bytes
 */
struct vrdma_mem {
	refcount_t ref;
	struct list_head node;
	struct vrdma_mem *former;
	struct ib_umem *umem;
	struct vrdma_mem *whole;
	void *vaddr;
	bool user;
	dma_addr_t dma;
	struct sg_table sgt;
	size_t size;
};

struct vrdma_mem *vrdma_mem_alloc(struct vrdma_dev *dev, size_t size, gfp_t gfp);
struct vrdma_mem *vrdma_mem_alloc_pages(struct vrdma_dev *dev, size_t size);
struct vrdma_mem *vrdma_mem_alloc_user(struct vrdma_dev *dev, size_t size);
struct vrdma_mem *vrdma_mem_part(struct vrdma_mem *mem, u64 offset, u64 len);
struct vrdma_mem *vrdma_mem_pin(struct vrdma_dev *dev, u64 addr, u64 len, int access);
void vrdma_mem_free(struct vrdma_dev *dev, struct vrdma_mem *mem);
void vrdma_mem_release(struct vrdma_dev *dev, struct vrdma_mem *mem, int err);
void vrdma_quarantine_init(struct vrdma_dev *dev);
void vrdma_quarantine_cleanup(struct vrdma_dev *dev);

#endif /* VRDMA_MEM_H */
