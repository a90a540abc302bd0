// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that the device may touch: what it is in runs, and when it may be freed.
 */
#include <linux/dma-mapping.h>
#include <linux/log2.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <rdma/ib_umem.h>

#include "vrdma.h"

/* A piece of a list of runs: of a size that the page allocator gives even when fragmented. */
#define RUNS_CHUNK_BYTES SZ_32K

/**
 * vrdma_mem_alloc() - allocate zeroed kernel memory that the device can reach
 * @dev: the device
 * @size: bytes
 * @gfp: how
 */
struct vrdma_mem *vrdma_mem_alloc(struct vrdma_dev *dev, size_t size, gfp_t gfp)
{
	struct vrdma_mem *mem;

	mem = kzalloc(sizeof(*mem), GFP_KERNEL);
	if (!mem)
		return NULL;
	mem->size = size;
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
 * @size: bytes, more than the kernel has in one piece if need be
 */
struct vrdma_mem *vrdma_mem_alloc_pages(struct vrdma_dev *dev, size_t size)
{
	struct vrdma_mem *mem;

	mem = kzalloc(sizeof(*mem), GFP_KERNEL);
	if (!mem)
		return NULL;
	mem->size = size;
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
 * vrdma_mem_pin() - pin memory of the calling process
 * @dev: the device
 * @addr: first byte
 * @len: bytes
 * @access: IB_ACCESS_*
 */
struct vrdma_mem *vrdma_mem_pin(struct vrdma_dev *dev, u64 addr, u64 len, int access)
{
	struct vrdma_mem *mem;
	int err;

	mem = kzalloc(sizeof(*mem), GFP_KERNEL);
	if (!mem)
		return ERR_PTR(-ENOMEM);
	mem->umem = ib_umem_get(&dev->ibdev, addr, len, access);
	if (IS_ERR(mem->umem)) {
		err = PTR_ERR(mem->umem);
		kfree(mem);
		return ERR_PTR(err);
	}
	return mem;
}

/* Only once the device cannot touch it any more. */
void vrdma_mem_free(struct vrdma_dev *dev, struct vrdma_mem *mem)
{
	if (!mem)
		return;
	if (mem->umem)
		ib_umem_release(mem->umem);
	if (mem->sgt.sgl) {
		dma_unmap_sgtable(dev->dma_dev, &mem->sgt, DMA_BIDIRECTIONAL, 0);
		sg_free_table(&mem->sgt);
		vfree(mem->vaddr);
	} else if (mem->vaddr) {
		dma_free_coherent(dev->dma_dev, mem->size, mem->vaddr, mem->dma);
	}
	kfree(mem);
}

/**
 * vrdma_mem_release() - be done with the memory of an object
 * @dev: the device
 * @mem: the memory
 * @err: what became of the command that destroyed the object, or did not create it
 *
 * If the device may still have the object, which it has only if it is broken or the driver
 * has lost count, the memory is kept until the device is reset.
 */
void vrdma_mem_release(struct vrdma_dev *dev, struct vrdma_mem *mem, int err)
{
	if (!mem)
		return;
	if (!err) {
		vrdma_mem_free(dev, mem);
		return;
	}
	spin_lock(&dev->limbo_lock);
	list_add(&mem->node, &dev->limbo);
	spin_unlock(&dev->limbo_lock);
}

/* The device has been reset. */
void vrdma_limbo_cleanup(struct vrdma_dev *dev)
{
	struct vrdma_mem *mem, *next;

	list_for_each_entry_safe(mem, next, &dev->limbo, node)
		vrdma_mem_free(dev, mem);
	INIT_LIST_HEAD(&dev->limbo);
}

static void runs_set(struct vrdma_runs *runs, u32 n, u64 addr, u64 len)
{
	struct vrdma_run *run = &runs->chunk[n / runs->per_chunk][n % runs->per_chunk];

	run->addr = cpu_to_le64(addr);
	run->len = cpu_to_le64(len);
}

/*
 * Merges the pages of @sgt to runs, without the first @offset bytes and @left bytes long. Returns
 * their number; writes them to @runs, if any. The scatterlist has merged pages too, but no
 * further than the DMA segment size allows.
 */
static u32 merge_pages(const struct sg_table *sgt, u64 offset, u64 left, struct vrdma_runs *runs)
{
	u64 addr = 0, len = 0;
	struct scatterlist *sg;
	unsigned int i;
	u32 n = 0;

	for_each_sgtable_dma_sg(sgt, sg, i) {
		u64 sg_addr = sg_dma_address(sg) + offset;
		u64 sg_len = min_t(u64, sg_dma_len(sg) - offset, left);

		if (!sg_len)
			break;
		offset = 0;
		left -= sg_len;
		if (len && addr + len == sg_addr) {
			len += sg_len;
			continue;
		}
		if (len) {
			if (runs)
				runs_set(runs, n, addr, len);
			n++;
		}
		addr = sg_addr;
		len = sg_len;
	}
	if (len) {
		if (runs)
			runs_set(runs, n, addr, len);
		n++;
	}
	return n;
}

/* As merge_pages(); memory in one piece is one run. */
static u32 merge_mem(const struct vrdma_mem *mem, struct vrdma_runs *runs)
{
	const struct ib_umem *umem = mem->umem;

	if (umem)
		return merge_pages(&umem->sgt_append.sgt, umem->address & ~PAGE_MASK, umem->length,
				   runs);
	if (mem->sgt.sgl)
		return merge_pages(&mem->sgt, 0, mem->size, runs);
	if (runs)
		runs_set(runs, 0, mem->dma, mem->size);
	return 1;
}

static struct vrdma_runs *runs_alloc(struct vrdma_dev *dev, u32 nr)
{
	/* The request itself and the reply take a descriptor each. */
	u32 max_chunks = virtqueue_get_vring_size(dev->cmdq.vq) - 2;
	size_t bytes = array_size(nr, sizeof(struct vrdma_run));
	struct vrdma_runs *runs;
	u32 nr_chunks, i;
	size_t chunk;

	chunk = max_t(size_t, RUNS_CHUNK_BYTES,
		      roundup_pow_of_two(DIV_ROUND_UP(bytes, max_chunks)));
	if (chunk > KMALLOC_MAX_SIZE)
		return NULL;
	nr_chunks = DIV_ROUND_UP(bytes, chunk);

	runs = kzalloc(struct_size(runs, chunk, nr_chunks), GFP_KERNEL);
	if (!runs)
		return NULL;
	runs->nr = nr;
	runs->per_chunk = chunk / sizeof(struct vrdma_run);
	runs->nr_chunks = nr_chunks;
	for (i = 0; i < nr_chunks; i++) {
		size_t n = min(bytes, chunk);

		runs->chunk[i] = kzalloc(n, GFP_KERNEL | __GFP_NOWARN);
		if (!runs->chunk[i]) {
			vrdma_runs_free(runs);
			return NULL;
		}
		bytes -= n;
	}
	return runs;
}

void vrdma_runs_free(struct vrdma_runs *runs)
{
	u32 i;

	if (!runs)
		return;
	for (i = 0; i < runs->nr_chunks; i++)
		kfree(runs->chunk[i]);
	kfree(runs);
}

/**
 * vrdma_mem_runs() - say what memory is in runs
 * @dev: the device
 * @mem: the memory
 */
struct vrdma_runs *vrdma_mem_runs(struct vrdma_dev *dev, const struct vrdma_mem *mem)
{
	struct vrdma_runs *runs;
	u32 nr = merge_mem(mem, NULL);

	if (!nr)
		return ERR_PTR(-EINVAL);
	/* The first memory is named before the device has said how many it takes. */
	if (nr > 1 && nr > dev->caps.max_mr_runs)
		return ERR_PTR(-ENOMEM);
	runs = runs_alloc(dev, nr);
	if (!runs)
		return ERR_PTR(-ENOMEM);
	merge_mem(mem, runs);
	return runs;
}
