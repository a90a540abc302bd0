// SPDX-License-Identifier: GPL-2.0
/*
 * Channels: virtqueues of work requests.
 *
 * Descriptor i of a channel always points to slot i. The first channel is the kernel's. The others
 * are bound to contexts, whose processes write the rings themselves.
 *
 * virtio_ring owns the rings, but is only asked for their addresses. Nothing is added by
 * virtqueue_add(), and there is no callback.
 */
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/virtio_byteorder.h>
#include <linux/virtio_config.h>

#include "channel.h"
#include "cmds.h"
#include "mem.h"
#include "runs.h"

/*
 * Finds the pages of the rings, and whether a process may map them.
 *
 * They must hold nothing else: above all no part of the descriptor table, by which a process could
 * name any address.
 */
static void channel_find_rings(struct vrdma_channel *chan)
{
	const struct vring *vring = chan->vring;
	void *table_end = vring->desc + chan->num;
	void *used_end = &vring->used->ring[chan->num];

	/* avail_event follows the used ring. */
	used_end += sizeof(__virtio16);
	chan->rings = PTR_ALIGN_DOWN((void *)vring->avail, PAGE_SIZE);
	chan->rings_len = PAGE_ALIGN(used_end - chan->rings);
	chan->mappable = chan->rings >= table_end && used_end > (void *)vring->avail &&
			 !is_vmalloc_addr(chan->rings) && !is_vmalloc_addr(chan->slots->vaddr) &&
			 PAGE_ALIGNED(chan->slots->vaddr) && PAGE_ALIGNED(chan->slots->size);
}

static int channel_init(struct vrdma_dev *dev, struct vrdma_channel *chan, struct virtqueue *vq)
{
	unsigned int i;
	u64 addr;

	chan->dev = dev;
	chan->vq = vq;
	chan->vring = virtqueue_get_vring(vq);
	chan->num = virtqueue_get_vring_size(vq);
	spin_lock_init(&chan->lock);
	INIT_LIST_HEAD(&chan->free);
	chan->slots = vrdma_mem_alloc(dev, chan->num * VRDMA_WQE_UNIT_SIZE, GFP_KERNEL);
	if (!chan->slots)
		return -ENOMEM;

	for (i = 0; i < chan->num; i++) {
		addr = chan->slots->dma + i * VRDMA_WQE_UNIT_SIZE;
		chan->vring->desc[i] = (struct vring_desc) {
			.addr = cpu_to_virtio64(dev->vdev, addr),
			.len = cpu_to_virtio32(dev->vdev, VRDMA_WQE_UNIT_SIZE),
		};
	}
	channel_find_rings(chan);
	return 0;
}

/**
 * vrdma_channel_bind() - give a channel to a context
 * @chan: the channel, which is not bound
 * @context: number of the context
 * @pending: if not NULL, becomes true if the device did not answer and may bind the channel later
 */
int vrdma_channel_bind(struct vrdma_channel *chan, u32 context, bool *pending)
{
	const struct vring *vring = chan->vring;
	struct vrdma_runs *runs;

	/* Nothing of the former owner remains, and the indices start from 0. */
	memset(chan->slots->vaddr, 0, chan->slots->size);
	if (chan->mappable) {
		memset(chan->rings, 0, chan->rings_len);
	} else {
		memset(vring->avail, 0, struct_size(vring->avail, ring, chan->num + 1));
		memset(vring->used, 0,
		       struct_size(vring->used, ring, chan->num) + sizeof(__virtio16));
	}
	chan->avail_idx = 0;

	runs = vrdma_mem_runs(chan->dev, chan->slots);
	if (IS_ERR(runs))
		return PTR_ERR(runs);
	return vrdma_cmd_bind_channel(chan->dev, context, chan->vq->index, runs, pending);
}

/**
 * vrdma_channel_get_free() - take a channel from the pool
 * @dev: the device
 * @owner: context that gets the channel
 *
 * Return: a channel that is not bound, with one reference; NULL if the pool is empty
 */
struct vrdma_channel *vrdma_channel_get_free(struct vrdma_dev *dev, struct vrdma_uctx *owner)
{
	struct vrdma_channel *chan;

	spin_lock(&dev->channel_lock);
	chan = list_first_entry_or_null(&dev->free_channels, struct vrdma_channel, free);
	if (chan) {
		list_del_init(&chan->free);
		chan->owner = owner;
		chan->refs = 1;
	}
	spin_unlock(&dev->channel_lock);
	return chan;
}

void vrdma_channel_hold(struct vrdma_channel *chan)
{
	spin_lock(&chan->dev->channel_lock);
	chan->refs++;
	spin_unlock(&chan->dev->channel_lock);
}

/* Drops a reference. The last one returns the channel to the pool, unless it may still be bound. */
void vrdma_channel_put(struct vrdma_channel *chan)
{
	struct vrdma_dev *dev = chan->dev;

	spin_lock(&dev->channel_lock);
	if (!--chan->refs && !chan->maybe_bound)
		list_add_tail(&chan->free, &dev->free_channels);
	spin_unlock(&dev->channel_lock);
}

/**
 * vrdma_channel_unbound() - note that the device reports a channel as not bound
 * @dev: the device
 * @queue: index of the channel's virtqueue, as in the command
 */
void vrdma_channel_unbound(struct vrdma_dev *dev, u32 queue)
{
	struct vrdma_channel *chan;
	unsigned int i;

	spin_lock(&dev->channel_lock);
	for (i = 1; i < dev->num_channels; i++) {
		chan = &dev->channels[i];
		if (chan->vq->index != queue || !chan->maybe_bound)
			continue;
		chan->maybe_bound = false;
		if (!chan->refs)
			list_add_tail(&chan->free, &dev->free_channels);
	}
	spin_unlock(&dev->channel_lock);
}

int vrdma_channels_init(struct vrdma_dev *dev, struct virtqueue *vqs[], unsigned int num)
{
	unsigned int i;
	int err;

	dev->channels = kcalloc(num, sizeof(*dev->channels), GFP_KERNEL);
	if (!dev->channels)
		return -ENOMEM;
	dev->num_channels = num;
	for (i = 0; i < num; i++) {
		err = channel_init(dev, &dev->channels[i], vqs[i]);
		if (err)
			return err;
		if (i && dev->channels[i].mappable)
			list_add_tail(&dev->channels[i].free, &dev->free_channels);
	}
	if (num > 1 && list_empty(&dev->free_channels))
		dev_warn(&dev->vdev->dev,
			 "queues of %u entries can't be mapped, processes post by system calls\n",
			 dev->channels[1].num);
	return 0;
}

/* Called after the device has been reset. */
void vrdma_channels_cleanup(struct vrdma_dev *dev)
{
	unsigned int i;

	for (i = 0; i < dev->num_channels; i++)
		vrdma_mem_free(dev, dev->channels[i].slots);
	kfree(dev->channels);
	dev->channels = NULL;
	dev->num_channels = 0;
}
