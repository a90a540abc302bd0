/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_RUNS_H
#define VRDMA_RUNS_H

#include "vrdma.h"

/**
 * struct vrdma_runs - list of memory extents for a command
 * @nr: number of extents
 * @per_chunk: number of extents in each chunk except the last
 * @nr_chunks: number of chunks
 * @chunk: the extents, in several allocations because kmalloc may not have a large one
 */
struct vrdma_runs {
	u32 nr;
	u32 per_chunk;
	u32 nr_chunks;
	struct vrdma_run *chunk[] __counted_by(nr_chunks);
};

struct vrdma_runs *vrdma_mem_runs(struct vrdma_dev *dev, const struct vrdma_mem *mem);
void vrdma_runs_free(struct vrdma_runs *runs);

#endif /* VRDMA_RUNS_H */
