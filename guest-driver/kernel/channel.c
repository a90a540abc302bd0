// SPDX-License-Identifier: GPL-2.0
/*
 * Channels: virtqueues of work requests whose descriptor i is slot i for good. The first is
 * the kernel's; the others are lent to contexts, whose processes write the rings themselves.
 *
 * The rings belong to virtio_ring, which is asked for their addresses only: nothing is ever
 * added by virtqueue_add(), and there is no callback.
 */
#include <linux/delay.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/virtio_byteorder.h>
#include <linux/virtio_config.h>

#include "vrdma.h"

/* How long a post waits for room, where it must not sleep and where it may. */
#define ROOM_ATOMIC_US 10000
#define ROOM_SLEEP_MS 10000

/*
 * The pages of the rings can be given to a process if they hold nothing else: above all no
 * part of the descriptor table, by which it could name any address.
 */
static void channel_find_rings(struct vrdma_channel *chan)
{
	const struct vring *vring = chan->vring;
	void *table_end = vring->desc + chan->num;
	void *used_end = &vring->used->ring[chan->num];

	/* Behind the used ring is avail_event. */
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
 * @chan: the channel, not bound
 * @context: the context
 */
int vrdma_channel_bind(struct vrdma_channel *chan, u32 context)
{
	const struct vring *vring = chan->vring;
	struct vrdma_runs *runs;

	/* The former owner's data goes, and the indices start from 0. */
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
	return vrdma_cmd_bind_channel(chan->dev, context, chan->vq->index, runs);
}

/**
 * vrdma_channel_get_free() - take a channel from the pool
 * @dev: the device
 * @owner: context that will have it
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

/* Without a mapping and not bound, the channel goes back to the pool. */
void vrdma_channel_put(struct vrdma_channel *chan)
{
	struct vrdma_dev *dev = chan->dev;

	spin_lock(&dev->channel_lock);
	if (!--chan->refs && !chan->lost)
		list_add_tail(&chan->free, &dev->free_channels);
	spin_unlock(&dev->channel_lock);
}

/* Caller holds the lock of the kernel's channel. */
static u16 channel_pending(struct vrdma_channel *chan)
{
	/* Acquire: slots are written after the device has let go of them. */
	__virtio16 used = virt_load_acquire(&chan->vring->used->idx);

	return chan->avail_idx - virtio16_to_cpu(chan->dev->vdev, used);
}

/*
 * Puts requests of @n units into the kernel's channel, which is locked, if that leaves @reserve
 * entries; returns whether there was room.
 */
static bool channel_push(struct vrdma_channel *chan, const void *units, unsigned int n,
			 unsigned int reserve)
{
	const struct vring *vring = chan->vring;
	struct virtio_device *vdev = chan->dev->vdev;
	u16 slot, pending = channel_pending(chan);
	unsigned int i;

	if (pending > chan->num || chan->num - pending < n + reserve)
		return false;
	/* The device returns entries in order, so entry i can always take slot i. */
	for (i = 0; i < n; i++) {
		slot = (u16)(chan->avail_idx + i) & (chan->num - 1);
		memcpy(chan->slots->vaddr + slot * VRDMA_WQE_UNIT_SIZE,
		       units + i * VRDMA_WQE_UNIT_SIZE, VRDMA_WQE_UNIT_SIZE);
		vring->avail->ring[slot] = cpu_to_virtio16(vdev, slot);
	}
	chan->avail_idx += n;
	/* The device sees the entries before the index, which passes whole requests only. */
	virt_store_release(&vring->avail->idx, cpu_to_virtio16(vdev, chan->avail_idx));
	return true;
}

/* Whether the device sleeps; it may not have noticed the entries since @old. Locked. */
static bool channel_wants_kick(struct vrdma_channel *chan, u16 old)
{
	struct virtio_device *vdev = chan->dev->vdev;
	const struct vring *vring = chan->vring;
	u16 event;

	/* The index is visible before the device's wish is read: one of both sees the other. */
	virt_mb();
	if (virtio_has_feature(vdev, VIRTIO_RING_F_EVENT_IDX)) {
		event = virtio16_to_cpu(vdev, READ_ONCE(vring_avail_event(vring)));
		return vring_need_event(event, chan->avail_idx, old);
	}
	return !(READ_ONCE(vring->used->flags) &
		 cpu_to_virtio16(vdev, VRING_USED_F_NO_NOTIFY));
}

/**
 * vrdma_channel_drain() - wait until the device has taken what is in the kernel's channel
 * @chan: the channel
 *
 * Sleeps.
 */
int vrdma_channel_drain(struct vrdma_channel *chan)
{
	unsigned long deadline = jiffies + msecs_to_jiffies(ROOM_SLEEP_MS);
	unsigned long flags;
	u16 target, pending, newer;

	spin_lock_irqsave(&chan->lock, flags);
	target = chan->avail_idx;
	pending = channel_pending(chan);
	spin_unlock_irqrestore(&chan->lock, flags);

	while (pending) {
		if (vrdma_broken(chan->dev))
			return -EIO;
		if (time_after(jiffies, deadline)) {
			vrdma_set_broken(chan->dev, "it takes no work requests");
			return -EIO;
		}
		usleep_range(20, 100);
		spin_lock_irqsave(&chan->lock, flags);
		/* Entries that came after @target do not count. */
		newer = chan->avail_idx - target;
		pending = channel_pending(chan);
		spin_unlock_irqrestore(&chan->lock, flags);
		if (newer >= pending)
			break;
	}
	return 0;
}

/**
 * vrdma_kernel_post() - post a request of one of the kernel's QPs
 * @dev: the device
 * @qp: the QP
 * @wqe: the request
 * @units: its units
 *
 * Does not sleep. Waits for room for a moment, since the device takes entries at once.
 */
int vrdma_kernel_post(struct vrdma_dev *dev, struct vrdma_qp *qp, const void *wqe,
		      unsigned int units)
{
	struct vrdma_channel *chan = &dev->channels[0];
	unsigned int waited = 0;
	unsigned long flags;
	bool pushed, kick;
	u16 old;

	for (;;) {
		kick = false;
		spin_lock_irqsave(&chan->lock, flags);
		old = chan->avail_idx;
		pushed = !vrdma_broken(dev) && channel_push(chan, wqe, units, 0);
		if (pushed) {
			qp->via_kernel = true;
			kick = channel_wants_kick(chan, old);
		}
		spin_unlock_irqrestore(&chan->lock, flags);
		if (kick)
			virtqueue_notify(chan->vq);
		if (pushed)
			return 0;
		if (vrdma_broken(dev))
			return -EIO;
		if (waited++ >= ROOM_ATOMIC_US)
			return -ENOMEM;
		udelay(1);
	}
}

/*
 * Whether the requests in @buf are well framed and name living QPs of @uctx. The caller holds
 * the channel's lock, so a QP that is found is not destroyed before its requests are posted
 * (see vrdma_destroy_qp()).
 */
static int user_units_check(struct vrdma_dev *dev, struct vrdma_uctx *uctx,
			    const struct vrdma_wqe *buf, unsigned int units)
{
	const unsigned int stride = VRDMA_WQE_UNIT_SIZE / sizeof(*buf);
	struct vrdma_qp *qp;

	while (units) {
		if (!buf->units || buf->units > dev->caps.max_wqe_units || buf->units > units)
			return -EINVAL;
		qp = xa_load(&dev->qps, le32_to_cpu(buf->object));
		if (!qp || !qp->uctx || qp->uctx != uctx)
			return -EINVAL;
		qp->via_kernel = true;
		units -= buf->units;
		buf += buf->units * stride;
	}
	return 0;
}

/**
 * vrdma_user_post() - post requests of a process through the kernel's channel
 * @dev: the device
 * @uctx: its context
 * @buf: requests, a copy that the process cannot change
 * @units: units of all of them
 *
 * All or nothing. Sleeps while there is no room.
 */
int vrdma_user_post(struct vrdma_dev *dev, struct vrdma_uctx *uctx, const void *buf,
		    unsigned int units)
{
	unsigned long deadline = jiffies + msecs_to_jiffies(ROOM_SLEEP_MS);
	struct vrdma_channel *chan = &dev->channels[0];
	unsigned int reserve;
	unsigned long flags;
	bool kick;
	int err;
	u16 old;

	if (units > chan->num)
		return -EINVAL;
	/* Processes wait here; the kernel, which can't, finds room whatever they do. */
	reserve = min(chan->num / 4, chan->num - units);
	for (;;) {
		kick = false;
		spin_lock_irqsave(&chan->lock, flags);
		old = chan->avail_idx;
		err = vrdma_broken(dev) ? -EIO : user_units_check(dev, uctx, buf, units);
		if (!err && !channel_push(chan, buf, units, reserve))
			err = -EAGAIN;
		if (!err)
			kick = channel_wants_kick(chan, old);
		spin_unlock_irqrestore(&chan->lock, flags);
		if (kick)
			virtqueue_notify(chan->vq);
		if (err != -EAGAIN)
			return err;
		if (signal_pending(current))
			return -ERESTARTSYS;
		if (time_after(jiffies, deadline))
			return -EBUSY;
		usleep_range(10, 50);
	}
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

/* The device has been reset. */
void vrdma_channels_cleanup(struct vrdma_dev *dev)
{
	unsigned int i;

	for (i = 0; i < dev->num_channels; i++)
		vrdma_mem_free(dev, dev->channels[i].slots);
	kfree(dev->channels);
	dev->channels = NULL;
	dev->num_channels = 0;
}
