// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that the device may touch: how it is allocated or pinned, and when it may be freed.
 */
#include <linux/dma-mapping.h>
#include <linux/gfp.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <rdma/ib_umem.h>

#include "compat.h"
#include "mem.h"

static struct vrdma_mem *mem_new(size_t size)
{
	struct vrdma_mem *mem = kzalloc(sizeof(*mem), GFP_KERNEL);

	if (!mem)
		return NULL;
	refcount_set(&mem->ref, 1);
	mem->size = size;
	return mem;
}

/**
 * vrdma_mem_alloc() - allocate zeroed kernel memory that the device can reach
 * @dev: the device
 * @size: size in bytes
 * @gfp: allocation flags
 */
struct vrdma_mem *vrdma_mem_alloc(struct vrdma_dev *dev, size_t size, gfp_t gfp)
{
	struct vrdma_mem *mem;

	mem = mem_new(size);
	if (!mem)
		return NULL;
	mem->vaddr = dma_alloc_coherent(dev->dma_dev, mem->size, &mem->dma, gfp);
	if (!mem->vaddr) {
		kfree(mem);
		return NULL;
	}
	return mem;
}

static int map_pages(struct vrdma_dev *dev, struct vrdma_mem *mem)
{
	size_t i, nr = DIV_ROUND_UP(mem->size, PAGE_SIZE);
	struct page **pages;
	int err;

	pages = kvmalloc_array(nr, sizeof(*pages), GFP_KERNEL);
	if (!pages)
		return -ENOMEM;
	for (i = 0; i < nr; i++)
		pages[i] = vmalloc_to_page(mem->vaddr + i * PAGE_SIZE);
	err = sg_alloc_table_from_pages(&mem->sgt, pages, nr, 0, mem->size, GFP_KERNEL);
	kvfree(pages);
	if (err)
		return err;
	err = dma_map_sgtable(dev->dma_dev, &mem->sgt, DMA_BIDIRECTIONAL, 0);
	if (err)
		sg_free_table(&mem->sgt);
	return err;
}

/**
 * vrdma_mem_alloc_pages() - allocate zeroed kernel memory that the device can reach, in pages
 * @dev: the device
 * @size: size in bytes; may be more than the kernel has in one piece
 */
struct vrdma_mem *vrdma_mem_alloc_pages(struct vrdma_dev *dev, size_t size)
{
	struct vrdma_mem *mem;

	mem = mem_new(size);
	if (!mem)
		return NULL;
	mem->vaddr = __vmalloc(size, GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN);
	if (!mem->vaddr)
		goto err_mem;
	if (map_pages(dev, mem))
		goto err_vaddr;
	return mem;

err_vaddr:
	vfree(mem->vaddr);
err_mem:
	kfree(mem);
	return NULL;
}

/**
 * vrdma_mem_alloc_user() - allocate zeroed memory that device and processes can reach
 * @dev: the device
 * @size: size in bytes, whole pages
 *
 * The memory is in one piece, and charged to the memory cgroup of the calling process.
 */
struct vrdma_mem *vrdma_mem_alloc_user(struct vrdma_dev *dev, size_t size)
{
	gfp_t gfp = GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN | __GFP_RETRY_MAYFAIL;
	struct vrdma_mem *mem;

	mem = mem_new(size);
	if (!mem)
		return NULL;
	mem->vaddr = alloc_pages_exact(size, gfp);
	if (!mem->vaddr)
		goto err_mem;
	mem->user = true;
	mem->dma = dma_map_single(dev->dma_dev, mem->vaddr, size, DMA_BIDIRECTIONAL);
	if (dma_mapping_error(dev->dma_dev, mem->dma))
		goto err_vaddr;
	return mem;

err_vaddr:
	free_pages_exact(mem->vaddr, size);
err_mem:
	kfree(mem);
	return NULL;
}

/**
 * vrdma_mem_part() - make a part of memory the memory of an object
 * @mem: memory from vrdma_mem_alloc_user(), which is not freed before its parts
 * @offset: offset of the first byte in @mem
 * @len: length in bytes, within @mem
 */
struct vrdma_mem *vrdma_mem_part(struct vrdma_mem *mem, u64 offset, u64 len)
{
	struct vrdma_mem *part = mem_new(len);

	if (!part)
		return NULL;
	refcount_inc(&mem->ref);
	part->whole = mem;
	part->dma = mem->dma + offset;
	return part;
}

/**
 * vrdma_mem_pin() - pin memory of the calling process
 * @dev: the device
 * @addr: address of the first byte
 * @len: length in bytes
 * @access: IB_ACCESS_*
 */
struct vrdma_mem *vrdma_mem_pin(struct vrdma_dev *dev, u64 addr, u64 len, int access)
{
	struct vrdma_mem *mem;
	int err;

	mem = mem_new(len);
	if (!mem)
		return ERR_PTR(-ENOMEM);
	mem->umem = vrdma_umem_get(&dev->ibdev, addr, len, access);
	if (IS_ERR(mem->umem)) {
		err = PTR_ERR(mem->umem);
		kfree(mem);
		return ERR_PTR(err);
	}
	return mem;
}

/* Drops a reference. The last one may be dropped only when the device cannot touch it any more. */
void vrdma_mem_free(struct vrdma_dev *dev, struct vrdma_mem *mem)
{
	if (!mem || !refcount_dec_and_test(&mem->ref))
		return;
	vrdma_mem_free(dev, mem->former);
	vrdma_mem_free(dev, mem->whole);
	if (mem->umem)
		ib_umem_release(mem->umem);
	if (mem->user) {
		dma_unmap_single(dev->dma_dev, mem->dma, mem->size, DMA_BIDIRECTIONAL);
		free_pages_exact(mem->vaddr, mem->size);
	} else if (mem->sgt.sgl) {
		dma_unmap_sgtable(dev->dma_dev, &mem->sgt, DMA_BIDIRECTIONAL, 0);
		sg_free_table(&mem->sgt);
		vfree(mem->vaddr);
	} else if (mem->vaddr) {
		dma_free_coherent(dev->dma_dev, mem->size, mem->vaddr, mem->dma);
	}
	kfree(mem);
}

/**
 * vrdma_mem_release() - free the memory of an object
 * @dev: the device
 * @mem: the memory
 * @err: result of the command that destroyed the object, or that failed to create it
 *
 * After an error the device may still have the object. Then the memory is kept until the device is
 * reset.
 */
void vrdma_mem_release(struct vrdma_dev *dev, struct vrdma_mem *mem, int err)
{
	if (!mem)
		return;
	if (!err) {
		vrdma_mem_free(dev, mem);
		return;
	}
	spin_lock(&dev->quarantine_lock);
	list_add(&mem->node, &dev->quarantine);
	spin_unlock(&dev->quarantine_lock);
}

void vrdma_quarantine_init(struct vrdma_dev *dev)
{
	spin_lock_init(&dev->quarantine_lock);
	INIT_LIST_HEAD(&dev->quarantine);
}

/* Called after the device has been reset. */
void vrdma_quarantine_cleanup(struct vrdma_dev *dev)
{
	struct vrdma_mem *mem, *next;

	list_for_each_entry_safe(mem, next, &dev->quarantine, node)
		vrdma_mem_free(dev, mem);
	INIT_LIST_HEAD(&dev->quarantine);
}
