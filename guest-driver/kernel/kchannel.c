// SPDX-License-Identifier: GPL-2.0
/*
 * The kernel's channel: requests of the kernel's own QPs, and of processes that have no channel.
 *
 * The device takes entries out at once, so there is room nearly always. Where there is none, a
 * process waits. The kernel may not be able to: its requests go to a backlog, from which a work
 * puts them into the channel.
 */
#include <linux/delay.h>
#include <linux/slab.h>
#include <linux/virtio_byteorder.h>
#include <linux/virtio_config.h>

#include "vrdma.h"

/* How long the channel may stand still before the device is said to. */
#define STILL_MS 10000

/* A request in the backlog; @qp is NULL if its QP was destroyed, and then it is not sent. */
struct backlog_entry {
	struct list_head node;
	struct vrdma_qp *qp;
	unsigned int units;
	u8 wqe[];
};

/* Caller holds the lock of the channel. */
static u16 channel_pending(struct vrdma_channel *chan)
{
	/* Acquire: slots are written after the device has let go of them. */
	__virtio16 used = virt_load_acquire(&chan->vring->used->idx);

	return chan->avail_idx - virtio16_to_cpu(chan->dev->vdev, used);
}

/*
 * Puts requests of @n units into the channel, which is locked, if that leaves @reserve entries;
 * returns whether there was room.
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

	if (chan->avail_idx == old)
		return false;
	/* The index is visible before the device's wish is read: one of both sees the other. */
	vrdma_mb();
	if (virtio_has_feature(vdev, VIRTIO_RING_F_EVENT_IDX)) {
		event = virtio16_to_cpu(vdev, READ_ONCE(vring_avail_event(vring)));
		return vring_need_event(event, chan->avail_idx, old);
	}
	return !(READ_ONCE(vring->used->flags) &
		 cpu_to_virtio16(vdev, VRING_USED_F_NO_NOTIFY));
}

/* Puts a request behind those that wait already; the channel is locked. */
static int backlog_add(struct vrdma_dev *dev, struct vrdma_qp *qp, const void *wqe,
		       unsigned int units)
{
	size_t size = units * VRDMA_WQE_UNIT_SIZE;
	struct backlog_entry *entry;

	entry = kmalloc(struct_size(entry, wqe, size), GFP_ATOMIC);
	if (!entry)
		return -ENOMEM;
	entry->qp = qp;
	entry->units = units;
	memcpy(entry->wqe, wqe, size);
	list_add_tail(&entry->node, &dev->backlog);
	WRITE_ONCE(dev->backlog_in, dev->backlog_in + 1);
	queue_work(dev->wq, &dev->backlog_work);
	return 0;
}

/* Moves as much of the backlog into the channel as there is room for; returns how much. */
static unsigned int backlog_move(struct vrdma_dev *dev)
{
	struct vrdma_channel *chan = &dev->channels[0];
	struct backlog_entry *entry, *next;
	unsigned int moved = 0;
	unsigned long flags;
	bool kick;
	u16 old;

	spin_lock_irqsave(&chan->lock, flags);
	old = chan->avail_idx;
	list_for_each_entry_safe(entry, next, &dev->backlog, node) {
		if (entry->qp && !channel_push(chan, entry->wqe, entry->units, 0))
			break;
		list_del(&entry->node);
		kfree(entry);
		WRITE_ONCE(dev->backlog_out, dev->backlog_out + 1);
		moved++;
	}
	kick = channel_wants_kick(chan, old);
	spin_unlock_irqrestore(&chan->lock, flags);
	if (kick)
		virtqueue_notify(chan->vq);
	return moved;
}

/* Whether any of the first @in requests that came into the backlog is there still. */
static bool backlog_has(struct vrdma_dev *dev, u32 in)
{
	/* The counters are read without the lock; either is written under it. */
	return (s32)(in - READ_ONCE(dev->backlog_out)) > 0;
}

static void backlog_work(struct work_struct *work)
{
	struct vrdma_dev *dev = container_of(work, struct vrdma_dev, backlog_work);
	unsigned long deadline = jiffies + msecs_to_jiffies(STILL_MS);

	/* Requests of a broken device are flushed by vrdma_poll_cq(). */
	while (!vrdma_broken(dev) && backlog_has(dev, READ_ONCE(dev->backlog_in))) {
		if (backlog_move(dev)) {
			deadline = jiffies + msecs_to_jiffies(STILL_MS);
			continue;
		}
		if (time_after(jiffies, deadline))
			vrdma_set_stalled(dev, "it takes no work requests");
		if (vrdma_stalled(dev)) {
			msleep(50);
			deadline = jiffies + msecs_to_jiffies(STILL_MS);
		} else {
			usleep_range(20, 100);
		}
	}
}

/**
 * vrdma_backlog_wait() - wait until the kernel's requests so far are in the channel
 * @dev: the device
 *
 * What they mean must not depend on a command that comes later, unless the device stands still.
 * Sleeps.
 */
void vrdma_backlog_wait(struct vrdma_dev *dev)
{
	u32 in = READ_ONCE(dev->backlog_in);

	while (backlog_has(dev, in) && !vrdma_broken(dev) && !vrdma_stalled(dev))
		usleep_range(20, 100);
}

/**
 * vrdma_backlog_forget_qp() - send nothing of a QP any more
 * @dev: the device
 * @qp: the QP, to which nobody posts
 *
 * While the device stands still requests stay in the backlog, and the number of the QP may be
 * another's when it goes on. Its entries keep their places, which is what the counters count.
 */
void vrdma_backlog_forget_qp(struct vrdma_dev *dev, struct vrdma_qp *qp)
{
	struct vrdma_channel *chan = &dev->channels[0];
	struct backlog_entry *entry;
	unsigned long flags;

	spin_lock_irqsave(&chan->lock, flags);
	list_for_each_entry(entry, &dev->backlog, node) {
		if (entry->qp == qp)
			entry->qp = NULL;
	}
	spin_unlock_irqrestore(&chan->lock, flags);
}

/**
 * vrdma_channel_drain() - wait until the device has taken what was posted through the kernel
 * @dev: the device
 *
 * Not for a device that stands still: it takes what is in a channel before a command that came
 * later, too. Sleeps.
 */
void vrdma_channel_drain(struct vrdma_dev *dev)
{
	unsigned long deadline = jiffies + msecs_to_jiffies(STILL_MS);
	struct vrdma_channel *chan = &dev->channels[0];
	u16 target, pending, newer;
	unsigned long flags;

	vrdma_backlog_wait(dev);
	spin_lock_irqsave(&chan->lock, flags);
	target = chan->avail_idx;
	pending = channel_pending(chan);
	spin_unlock_irqrestore(&chan->lock, flags);

	while (pending && !vrdma_broken(dev) && !vrdma_stalled(dev)) {
		if (time_after(jiffies, deadline)) {
			vrdma_set_stalled(dev, "it takes no work requests");
			return;
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
}

/**
 * vrdma_kernel_post() - post a request of one of the kernel's QPs
 * @dev: the device
 * @qp: the QP
 * @wqe: the request
 * @units: its units
 *
 * From any context; waits for nothing.
 */
int vrdma_kernel_post(struct vrdma_dev *dev, struct vrdma_qp *qp, const void *wqe,
		      unsigned int units)
{
	struct vrdma_channel *chan = &dev->channels[0];
	bool kick = false;
	unsigned long flags;
	int err = 0;
	u16 old;

	spin_lock_irqsave(&chan->lock, flags);
	old = chan->avail_idx;
	if (vrdma_broken(dev))
		err = -EIO;
	else if (list_empty(&dev->backlog) && channel_push(chan, wqe, units, 0))
		kick = channel_wants_kick(chan, old);
	else
		err = backlog_add(dev, qp, wqe, units);
	if (!err)
		qp->via_kernel = true;
	spin_unlock_irqrestore(&chan->lock, flags);
	if (kick)
		virtqueue_notify(chan->vq);
	return err;
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
	unsigned long deadline = jiffies + msecs_to_jiffies(STILL_MS);
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

void vrdma_backlog_init(struct vrdma_dev *dev)
{
	INIT_LIST_HEAD(&dev->backlog);
	INIT_WORK(&dev->backlog_work, backlog_work);
}

/* The device has been reset. */
void vrdma_backlog_cleanup(struct vrdma_dev *dev)
{
	struct backlog_entry *entry, *next;

	cancel_work_sync(&dev->backlog_work);
	list_for_each_entry_safe(entry, next, &dev->backlog, node)
		kfree(entry);
	INIT_LIST_HEAD(&dev->backlog);
}
