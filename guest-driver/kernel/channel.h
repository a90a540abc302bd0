/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_CHANNEL_H
#define VRDMA_CHANNEL_H

#include <linux/virtio_ring.h>

#include "vrdma.h"

struct vrdma_uctx;

/**
 * struct vrdma_channel - a virtqueue of work requests
 * @dev: the device
 * @vq: the virtqueue; only its notify function is used, because the driver or a process writes the
 *   rings directly
 * @vring: rings of @vq
 * @num: number of entries
 * @slots: memory of the 64-byte units, one for each entry
 * @rings: first of the pages with the available ring and the used ring
 * @rings_len: length of these pages in bytes
 * @mappable: these pages contain no part of the descriptor table, and can be mapped
 * @doorbell: address of the doorbell, or 0
 * @lock: protects the rings and @avail_idx of the kernel's channel
 * @avail_idx: the kernel's channel: number of entries made available
 * @free: node in &vrdma_dev.free_channels
 * @owner: context that has the channel, or NULL (&vrdma_dev.channel_lock)
 * @refs: references of the owner and of its mappings (&vrdma_dev.channel_lock)
 * @maybe_bound: the device did not confirm that the channel is unbound, and may still read it
 *   (&vrdma_dev.channel_lock)
 */
struct vrdma_channel {
	struct vrdma_dev *dev;
	struct virtqueue *vq;
	const struct vring *vring;
	u16 num;
	struct vrdma_mem *slots;
	void *rings;
	u32 rings_len;
	bool mappable;
	phys_addr_t doorbell;
	spinlock_t lock;
	u16 avail_idx;
	struct list_head free;
	struct vrdma_uctx *owner;
	unsigned int refs;
	bool maybe_bound;
};

int vrdma_channels_init(struct vrdma_dev *dev, struct virtqueue *vqs[], unsigned int num);
void vrdma_channels_cleanup(struct vrdma_dev *dev);
int vrdma_channel_bind(struct vrdma_channel *chan, u32 context, bool *pending);
struct vrdma_channel *vrdma_channel_get_free(struct vrdma_dev *dev, struct vrdma_uctx *owner);
void vrdma_channel_hold(struct vrdma_channel *chan);
void vrdma_channel_put(struct vrdma_channel *chan);
void vrdma_channel_unbound(struct vrdma_dev *dev, u32 queue);

#endif /* VRDMA_CHANNEL_H */
