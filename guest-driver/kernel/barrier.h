/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The full barrier between driver and device, and what of virtio_ring lacks one.
 */
#ifndef VRDMA_BARRIER_H
#define VRDMA_BARRIER_H

#include <linux/virtio.h>

/*
 * What was stored before is visible to the device before anything is read after. Not virt_mb():
 * that is a locked instruction on x86, which QEMU's TCG makes a plain one in a VM with a single
 * processor, and then a kick, an interrupt or an event is lost. mb() is a fence everywhere.
 */
static inline void vrdma_mb(void)
{
	mb(); /* See above. */
}

/* virtqueue_kick_prepare() has no such barrier of its own. */
static inline bool vrdma_kick_prepare(struct virtqueue *vq)
{
	vrdma_mb();
	return virtqueue_kick_prepare(vq);
}

/* Nor has virtqueue_enable_cb(). */
static inline bool vrdma_enable_cb(struct virtqueue *vq)
{
	unsigned int last = virtqueue_enable_cb_prepare(vq);

	vrdma_mb();
	return !virtqueue_poll(vq, last);
}

#endif /* VRDMA_BARRIER_H */
