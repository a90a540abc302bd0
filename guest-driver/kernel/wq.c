// SPDX-License-Identifier: GPL-2.0
/* Outstanding requests of the kernel's QPs. A CQE has the index of its request. */
#include <linux/log2.h>
#include <linux/slab.h>

#include "wq.h"

int vrdma_wq_init(struct vrdma_wq *wq, u32 max)
{
	u32 size = roundup_pow_of_two(max_t(u32, max, 1));

	spin_lock_init(&wq->lock);
	wq->max = max;
	wq->mask = size - 1;
	wq->requests = kvcalloc(size, sizeof(*wq->requests), GFP_KERNEL);
	return wq->requests ? 0 : -ENOMEM;
}

void vrdma_wq_cleanup(struct vrdma_wq *wq)
{
	kvfree(wq->requests);
	wq->requests = NULL;
}

/**
 * vrdma_wq_complete() - take the completion of a request
 * @wq: the queue, whose CQ is locked
 * @wqe_id: index of the request
 * @wr_id: becomes the wr_id of the request
 *
 * Requests complete in order, so earlier unsignalled requests are complete too.
 *
 * If a work request has two parts, the first part has a completion only if it fails. The second
 * part is then flushed without a completion of its own.
 *
 * Return: whether there is such a request
 */
bool vrdma_wq_complete(struct vrdma_wq *wq, u32 wqe_id, u64 *wr_id)
{
	/* Pairs with the release in vrdma_wq_posted(). */
	u32 head = smp_load_acquire(&wq->head);
	const struct vrdma_request *request;

	if (wqe_id - wq->tail >= head - wq->tail)
		return false;
	request = &wq->requests[wqe_id & wq->mask];
	*wr_id = request->wr_id;
	/* Release: the entry is reused only after wr_id has been read. */
	smp_store_release(&wq->tail, wqe_id + (request->continues ? 2 : 1));
	return true;
}

/* Completes the oldest request for a broken device. Returns false if there is none. */
bool vrdma_wq_flush(struct vrdma_wq *wq, u64 *wr_id)
{
	return vrdma_wq_complete(wq, wq->tail, wr_id);
}

/* Whether @count more requests fit. The queue is locked. */
bool vrdma_wq_has_room(struct vrdma_wq *wq, u32 count)
{
	/* Pairs with the release in vrdma_wq_complete(). */
	return wq->head - smp_load_acquire(&wq->tail) + count <= wq->max;
}

/* Records a request of one or two parts, before the device can complete it. */
void vrdma_wq_posted(struct vrdma_wq *wq, u64 wr_id, u32 count)
{
	u32 i;

	for (i = 0; i < count; i++)
		wq->requests[(wq->head + i) & wq->mask] = (struct vrdma_request){
			.wr_id = wr_id,
			.continues = i + 1 < count,
		};
	/* Release: vrdma_wq_complete() sees the entries. */
	smp_store_release(&wq->head, wq->head + count);
}
