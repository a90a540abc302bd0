// SPDX-License-Identifier: GPL-2.0
/*
 * The rings of CQs: their memory, and the polling of the kernel's CQs.
 *
 * While a CQ is resized it has two rings. The device switches to the new ring at some moment. Once
 * the first CQE of the new ring is valid, all CQEs of the former ring are visible. When the device
 * has answered the resize, the CQEs left in the former ring are copied, so that its memory can be
 * freed.
 */
#include <linux/log2.h>
#include <linux/mm.h>

#include "barrier.h"
#include "mem.h"
#include "ring.h"

static size_t ring_bytes(u32 entries, bool timed)
{
	size_t size = timed ? sizeof(struct vrdma_timed_cqe) : sizeof(struct vrdma_cqe);

	return entries * size + sizeof(struct vrdma_cq_record);
}

/* Allocates a ring of the kernel. It is in pages, because a large ring may not fit in one piece. */
struct vrdma_mem *vrdma_ring_alloc(struct vrdma_dev *dev, u32 entries)
{
	return vrdma_mem_alloc_pages(dev, ring_bytes(entries, false)) ?: ERR_PTR(-ENOMEM);
}

/*
 * Pins a process's ring of @entries CQEs at @buf. It must have room for @cqe CQEs. @timed CQEs have
 * a time stamp.
 */
struct vrdma_mem *vrdma_ring_pin(struct vrdma_dev *dev, u64 buf, u32 entries, u32 cqe, bool timed)
{
	if (!PAGE_ALIGNED(buf) || !is_power_of_2(entries) || entries < cqe ||
	    entries > dev->caps.max_cqe)
		return ERR_PTR(-EINVAL);
	return vrdma_mem_pin(dev, buf, ring_bytes(entries, timed), IB_ACCESS_LOCAL_WRITE);
}

/* Returns the ring of @entries in memory of the kernel. */
static struct vrdma_cq_ring ring_in(const struct vrdma_mem *mem, u32 entries)
{
	struct vrdma_cq_ring ring = { .cqe = mem->vaddr, .entries = entries };

	ring.rec = (struct vrdma_cq_record *)(ring.cqe + entries);
	return ring;
}

/* Makes the kernel poll @cq in its memory, a ring of @entries. */
void vrdma_ring_start(struct vrdma_cq *cq, u32 entries)
{
	cq->ring = ring_in(cq->mem, entries);
}

/* Returns the CQE of @index, or NULL if it has not been written. */
static struct vrdma_cqe *ring_cqe(const struct vrdma_cq_ring *ring, u32 index)
{
	struct vrdma_cqe *cqe = &ring->cqe[index & (ring->entries - 1)];

	if (!!(READ_ONCE(cqe->phase) & 1) == !!(index & ring->entries))
		return NULL;
	/* The rest of the CQE must be read after its phase. */
	virt_rmb();
	return cqe;
}

/* Continues in @ring, the only one that the device still uses. */
static void go_on_in(struct vrdma_cq *cq, struct vrdma_cq_ring ring)
{
	cq->ring = ring;
	cq->next = (struct vrdma_cq_ring){};
	cq->consumer = 0;
}

/**
 * vrdma_ring_take() - take the next CQE
 * @cq: CQ of the kernel, locked
 *
 * Return: the CQE, which is valid until vrdma_ring_publish(), or NULL
 */
struct vrdma_cqe *vrdma_ring_take(struct vrdma_cq *cq)
{
	struct vrdma_cqe *cqe;

	if (cq->held_first != cq->held_end)
		return &cq->held[cq->held_first++];
	cqe = ring_cqe(&cq->ring, cq->consumer);
	if (!cqe && cq->next.cqe && ring_cqe(&cq->next, 0)) {
		/*
		 * The last CQE of this ring became visible before that, but maybe after it was
		 * polled here. So it is polled again.
		 */
		cqe = ring_cqe(&cq->ring, cq->consumer);
		if (!cqe) {
			go_on_in(cq, cq->next);
			cqe = ring_cqe(&cq->ring, 0);
		}
	}
	if (cqe)
		cq->consumer++;
	return cqe;
}

static void visit(const struct vrdma_cq_ring *ring, u32 first,
		  void (*fn)(struct vrdma_cqe *cqe, void *arg), void *arg)
{
	struct vrdma_cqe *cqe;
	u32 i;

	/* At most one lap: beyond it the phase bits would show CQEs again. */
	for (i = 0; i < ring->entries; i++) {
		cqe = ring_cqe(ring, first + i);
		if (!cqe)
			return;
		fn(cqe, arg);
	}
}

/* Calls @fn with each CQE that has not been taken. @cq is locked. */
void vrdma_ring_visit(struct vrdma_cq *cq, void (*fn)(struct vrdma_cqe *cqe, void *arg), void *arg)
{
	u32 i;

	for (i = cq->held_first; i < cq->held_end; i++)
		fn(&cq->held[i], arg);
	visit(&cq->ring, cq->consumer, fn, arg);
	visit(&cq->next, 0, fn, arg);
}

/* Whether there is a CQE to take. @cq is locked. */
bool vrdma_ring_ready(struct vrdma_cq *cq)
{
	return cq->held_first != cq->held_end || ring_cqe(&cq->ring, cq->consumer) ||
	       (cq->next.cqe && ring_cqe(&cq->next, 0));
}

/* Returns the room of the taken CQEs to the device. @cq is locked. */
void vrdma_ring_publish(struct vrdma_cq *cq)
{
	/* Release: the device must overwrite CQEs only after they have been read. */
	virt_store_release(&cq->ring.rec->consumer, cpu_to_le32(cq->consumer));
}

/* Asks the device for an event. @cq is locked. */
void vrdma_ring_arm(struct vrdma_cq *cq, bool solicited)
{
	struct vrdma_cq_record *rec = cq->ring.rec;
	__le32 count;

	/* During a resize the device reads one of two records, and it is not known which. */
	if (solicited) {
		count = cpu_to_le32(le32_to_cpu(rec->arm_solicited) + 1);
		WRITE_ONCE(rec->arm_solicited, count);
		if (cq->next.rec)
			WRITE_ONCE(cq->next.rec->arm_solicited, count);
	} else {
		count = cpu_to_le32(le32_to_cpu(rec->arm_next) + 1);
		WRITE_ONCE(rec->arm_next, count);
		if (cq->next.rec)
			WRITE_ONCE(cq->next.rec->arm_next, count);
	}
	/* Either the device sees the arming, or the driver sees the CQE. */
	vrdma_mb();
}

/**
 * vrdma_ring_begin_resize() - let a CQ continue in other memory as soon as the device does
 * @cq: CQ of the kernel, for which no resize is under way
 * @mem: memory for the new ring
 * @entries: size of the new ring
 * @held: becomes the number of CQEs left over from former rings
 *
 * Return: 0, or -ENOMEM
 */
int vrdma_ring_begin_resize(struct vrdma_cq *cq, struct vrdma_mem *mem, u32 entries, u32 *held)
{
	struct vrdma_cq_ring next = ring_in(mem, entries);
	struct vrdma_cqe *former, *room;
	unsigned long flags;

	/*
	 * Read without the lock: except for a resize, the number of saved CQEs only becomes
	 * smaller.
	 */
	*held = READ_ONCE(cq->held_end) - READ_ONCE(cq->held_first);
	room = kvcalloc((size_t)*held + cq->ring.entries, sizeof(*room), GFP_KERNEL);
	if (!room)
		return -ENOMEM;
	spin_lock_irqsave(&cq->lock, flags);
	former = cq->held;
	*held = cq->held_end - cq->held_first;
	if (*held)
		memcpy(room, former + cq->held_first, *held * sizeof(*room));
	cq->held = room;
	cq->held_first = 0;
	cq->held_end = *held;
	next.rec->arm_next = cq->ring.rec->arm_next;
	next.rec->arm_solicited = cq->ring.rec->arm_solicited;
	cq->next = next;
	spin_unlock_irqrestore(&cq->lock, flags);
	kvfree(former);
	return 0;
}

/* Switches @cq to the new ring, because the device has resized it. */
void vrdma_ring_end_resize(struct vrdma_cq *cq)
{
	struct vrdma_cqe *cqe;
	unsigned long flags;
	u32 left;

	spin_lock_irqsave(&cq->lock, flags);
	/*
	 * If there is no next ring, the poller has switched already, and the former ring was empty.
	 */
	if (cq->next.cqe) {
		for (left = cq->ring.entries; left; left--) {
			cqe = ring_cqe(&cq->ring, cq->consumer);
			if (!cqe)
				break;
			cq->held[cq->held_end++] = *cqe;
			cq->consumer++;
		}
		go_on_in(cq, cq->next);
	}
	spin_unlock_irqrestore(&cq->lock, flags);
}

/* Drops the new ring of @cq, because the device has refused to resize it. */
void vrdma_ring_cancel_resize(struct vrdma_cq *cq)
{
	unsigned long flags;

	spin_lock_irqsave(&cq->lock, flags);
	cq->next = (struct vrdma_cq_ring){};
	spin_unlock_irqrestore(&cq->lock, flags);
}

/* Frees what belongs to the rings of @cq, which nobody uses any more. */
void vrdma_ring_cleanup(struct vrdma_cq *cq)
{
	kvfree(cq->held);
}
