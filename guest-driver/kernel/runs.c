// SPDX-License-Identifier: GPL-2.0
/* How a command names memory: as extents of contiguous bus addresses. */
#include <linux/log2.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <rdma/ib_umem.h>

#include "mem.h"
#include "runs.h"

/* Bytes of a chunk of extents. The page allocator has that much even when memory is fragmented. */
#define RUNS_CHUNK_BYTES SZ_32K

static void runs_set(struct vrdma_runs *runs, u32 n, u64 addr, u64 len)
{
	struct vrdma_run *run = &runs->chunk[n / runs->per_chunk][n % runs->per_chunk];

	run->addr = cpu_to_le64(addr);
	run->len = cpu_to_le64(len);
}

/*
 * Merges contiguous pages of @sgt into extents, for @left bytes after the first @offset bytes.
 *
 * Returns the number of extents. Writes them to @runs unless it is NULL. The scatterlist is merged
 * already, but only up to the DMA segment size.
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

/* Lists the extents of any kind of memory. Arguments and result are as for merge_pages(). */
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
	/* The request itself and the reply take one descriptor each. */
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
 * vrdma_mem_runs() - list the extents of memory
 * @dev: the device
 * @mem: the memory
 *
 * Return: the extents; an ERR_PTR if there are none, more than the device takes, or no memory
 */
struct vrdma_runs *vrdma_mem_runs(struct vrdma_dev *dev, const struct vrdma_mem *mem)
{
	struct vrdma_runs *runs;
	u32 nr = merge_mem(mem, NULL);

	if (!nr)
		return ERR_PTR(-EINVAL);
	/* A single extent is within any limit. */
	if (nr > 1 && nr > dev->caps.max_mr_runs)
		return ERR_PTR(-ENOMEM);
	runs = runs_alloc(dev, nr);
	if (!runs)
		return ERR_PTR(-ENOMEM);
	merge_mem(mem, runs);
	return runs;
}
