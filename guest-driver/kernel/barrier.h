/* SPDX-License-Identifier: GPL-2.0 */
/* The full memory barrier between driver and device, and the virtio_ring functions that lack it. */
#ifndef VRDMA_BARRIER_H
#define VRDMA_BARRIER_H

#include <linux/virtio.h>

/*
 * Makes earlier stores visible to the device before any later load.
 *
 * virt_mb() does not suffice. On x86 it is a locked instruction. QEMU's TCG makes that a plain
 * instruction in a VM with a single processor, and a kick, an interrupt or an event is lost. mb()
 * is a fence everywhere.
 */
static inline void vrdma_mb(void)
{
	mb(); /* See the comment of this function. */
}

/* Like virtqueue_kick_prepare(), which has no such barrier of its own. */
static inline bool vrdma_kick_prepare(struct virtqueue *vq)
{
	vrdma_mb();
	return virtqueue_kick_prepare(vq);
}

/* Like virtqueue_enable_cb(), which has no such barrier of its own. */
static inline bool vrdma_enable_cb(struct virtqueue *vq)
{
	unsigned int last = virtqueue_enable_cb_prepare(vq);

	vrdma_mb();
	return !virtqueue_poll(vq, last);
}

#endif /* VRDMA_BARRIER_H */
