// SPDX-License-Identifier: GPL-2.0
/*
 * The kernel's channel. It carries requests of the kernel's own QPs, and of processes without a
 * channel.
 *
 * The device takes entries out at once, so there is nearly always room. If there is none, a process
 * waits. The kernel may not sleep here. So its requests go to a backlog, and a work item moves them
 * into the channel.
 */
#include <linux/delay.h>
#include <linux/slab.h>
#include <linux/virtio_byteorder.h>
#include <linux/virtio_config.h>

#include "barrier.h"
#include "broken.h"
#include "channel.h"
#include "kchannel.h"
#include "mem.h"
#include "objects.h"

/* Milliseconds without progress of the channel after which the device counts as stalled. */
#define STALL_MS 10000

/* A request in the backlog. If @target is destroyed it becomes NULL, and the request is dropped. */
struct backlog_entry {
	struct list_head node;
	struct vrdma_target *target;
	unsigned int units;
	u8 wqe[];
};

/* Returns the number of entries that the device has. The caller holds the lock of the channel. */
static u16 channel_pending(struct vrdma_channel *chan)
{
	/* Acquire: a slot is written only after the device has returned it. */
	__virtio16 used = virt_load_acquire(&chan->vring->used->idx);

	return chan->avail_idx - virtio16_to_cpu(chan->dev->vdev, used);
}

/*
 * Puts requests of @n units into the channel if that leaves @reserve entries free.
 *
 * The channel is locked. Returns whether there was room.
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
	/* The device sees the entries before the index, which only moves by whole requests. */
	virt_store_release(&vring->avail->idx, cpu_to_virtio16(vdev, chan->avail_idx));
	return true;
}

/* Whether the device wants a kick for the entries since @old. The channel is locked. */
static bool channel_wants_kick(struct vrdma_channel *chan, u16 old)
{
	struct virtio_device *vdev = chan->dev->vdev;
	const struct vring *vring = chan->vring;
	u16 event;

	if (chan->avail_idx == old)
		return false;
	/* Either the device sees the index, or the driver sees the device's request for a kick. */
	vrdma_mb();
	if (virtio_has_feature(vdev, VIRTIO_RING_F_EVENT_IDX)) {
		event = virtio16_to_cpu(vdev, READ_ONCE(vring_avail_event(vring)));
		return vring_need_event(event, chan->avail_idx, old);
	}
	return !(READ_ONCE(vring->used->flags) &
		 cpu_to_virtio16(vdev, VRING_USED_F_NO_NOTIFY));
}

/* Appends a request to the backlog. The channel is locked. */
static int backlog_add(struct vrdma_dev *dev, struct vrdma_target *target, const void *wqe,
		       unsigned int units)
{
	size_t size = units * VRDMA_WQE_UNIT_SIZE;
	struct backlog_entry *entry;

	entry = kmalloc(struct_size(entry, wqe, size), GFP_ATOMIC);
	if (!entry)
		return -ENOMEM;
	entry->target = target;
	entry->units = units;
	memcpy(entry->wqe, wqe, size);
	list_add_tail(&entry->node, &dev->backlog);
	WRITE_ONCE(dev->backlog_in, dev->backlog_in + 1);
	queue_work(dev->wq, &dev->backlog_work);
	return 0;
}

/* Moves requests into the channel while there is room. Returns the number of requests. */
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
		if (entry->target && !channel_push(chan, entry->wqe, entry->units, 0))
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

/* Whether any of the first @in requests is still in the backlog. */
static bool backlog_has(struct vrdma_dev *dev, u32 in)
{
	/* The counters are written under the lock, and read without it. */
	return (s32)(in - READ_ONCE(dev->backlog_out)) > 0;
}

static void backlog_work(struct work_struct *work)
{
	struct vrdma_dev *dev = container_of(work, struct vrdma_dev, backlog_work);
	unsigned long deadline = jiffies + msecs_to_jiffies(STALL_MS);

	/* vrdma_poll_cq() flushes the requests of a broken device. */
	while (!vrdma_broken(dev) && backlog_has(dev, READ_ONCE(dev->backlog_in))) {
		if (backlog_move(dev)) {
			deadline = jiffies + msecs_to_jiffies(STALL_MS);
			continue;
		}
		if (time_after(jiffies, deadline))
			vrdma_set_stalled(dev, "it takes no work requests");
		if (vrdma_stalled(dev)) {
			msleep(50);
			deadline = jiffies + msecs_to_jiffies(STALL_MS);
		} else {
			usleep_range(20, 100);
		}
	}
}

/**
 * vrdma_backlog_wait() - wait until the kernel's earlier requests are in the channel
 * @dev: the device
 *
 * A later command then takes effect after these requests. Does not wait for a stalled device.
 * Sleeps.
 */
void vrdma_backlog_wait(struct vrdma_dev *dev)
{
	u32 in = READ_ONCE(dev->backlog_in);

	while (backlog_has(dev, in) && !vrdma_broken(dev) && !vrdma_stalled(dev))
		usleep_range(20, 100);
}

/*
 * Drops the requests in the backlog that were posted to @target.
 *
 * Their entries stay in the list, because the counters count them.
 */
static void backlog_drop(struct vrdma_dev *dev, struct vrdma_target *target)
{
	struct vrdma_channel *chan = &dev->channels[0];
	struct backlog_entry *entry;
	unsigned long flags;

	spin_lock_irqsave(&chan->lock, flags);
	list_for_each_entry(entry, &dev->backlog, node) {
		if (entry->target == target)
			entry->target = NULL;
	}
	spin_unlock_irqrestore(&chan->lock, flags);
}

/*
 * Waits until the device has taken the requests in the kernel's channel.
 *
 * Does not wait for a stalled device, which takes them before any later command anyway. Sleeps.
 */
static void kernel_drain(struct vrdma_dev *dev)
{
	unsigned long deadline = jiffies + msecs_to_jiffies(STALL_MS);
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
 * vrdma_kernel_settle() - make sure that no request in the kernel's channel names a QP or SRQ
 * @dev: the device
 * @target: the QP or SRQ, to which nobody posts, and which nobody can find any more
 *
 * Otherwise a request could reach another QP or SRQ that gets the same number. Requests that stay
 * in the backlog while the device is stalled are dropped. Sleeps.
 */
void vrdma_kernel_settle(struct vrdma_dev *dev, struct vrdma_target *target)
{
	struct vrdma_channel *chan = &dev->channels[0];
	unsigned long flags;
	bool via_kernel;

	spin_lock_irqsave(&chan->lock, flags);
	via_kernel = target->via_kernel;
	spin_unlock_irqrestore(&chan->lock, flags);
	if (!via_kernel)
		return;
	kernel_drain(dev);
	backlog_drop(dev, target);
}

/**
 * vrdma_kernel_post() - post a request to one of the kernel's QPs or SRQs
 * @dev: the device
 * @target: the QP or SRQ
 * @wqe: the request
 * @units: number of 64-byte units of the request
 *
 * Can be called from any context, and does not wait.
 */
int vrdma_kernel_post(struct vrdma_dev *dev, struct vrdma_target *target, const void *wqe,
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
		err = backlog_add(dev, target, wqe, units);
	if (!err)
		target->via_kernel = true;
	spin_unlock_irqrestore(&chan->lock, flags);
	if (kick)
		virtqueue_notify(chan->vq);
	return err;
}

/*
 * Whether a process may post requests of this kind through the kernel's channel.
 *
 * Kinds that this driver does not know are refused: the device may have some for the kernel only.
 * Keys need no check here. For all channels, the device compares the PD of what a key names with
 * the PD of the QP.
 */
static bool user_opcode(u8 opcode)
{
	return opcode <= VRDMA_WR_SEND_WITH_INV || opcode == VRDMA_WR_FLUSH ||
	       opcode == VRDMA_WR_ATOMIC_WRITE || opcode == VRDMA_WR_RECV ||
	       opcode == VRDMA_WR_SRQ_RECV;
}

/* Returns the QP or SRQ that a request names, if it belongs to @uctx, or else NULL. */
static struct vrdma_target *user_target(struct vrdma_dev *dev, struct vrdma_uctx *uctx,
					const struct vrdma_wqe *wqe)
{
	u32 number = le32_to_cpu(wqe->object);
	struct vrdma_srq *srq;
	struct vrdma_qp *qp;

	if (wqe->opcode == VRDMA_WR_SRQ_RECV) {
		srq = xa_load(&dev->srqs, number);
		return srq && srq->uctx == uctx ? &srq->target : NULL;
	}
	qp = xa_load(&dev->qps, number);
	return qp && qp->uctx == uctx ? &qp->target : NULL;
}

/*
 * Checks that the requests in @buf are well formed, and name existing QPs and SRQs of @uctx.
 *
 * The caller holds the channel's lock. So a QP or SRQ that is found is not destroyed before its
 * requests are posted (see vrdma_kernel_settle()).
 */
static int user_units_check(struct vrdma_dev *dev, struct vrdma_uctx *uctx,
			    const struct vrdma_wqe *buf, unsigned int units)
{
	const unsigned int stride = VRDMA_WQE_UNIT_SIZE / sizeof(*buf);
	struct vrdma_target *target;

	while (units) {
		if (!buf->units || buf->units > dev->caps.max_wqe_units || buf->units > units)
			return -EINVAL;
		target = user_opcode(buf->opcode) ? user_target(dev, uctx, buf) : NULL;
		if (!target)
			return -EINVAL;
		target->via_kernel = true;
		units -= buf->units;
		buf += buf->units * stride;
	}
	return 0;
}

/**
 * vrdma_user_post() - post requests of a process through the kernel's channel
 * @dev: the device
 * @uctx: context of the process
 * @buf: the requests, in a copy that the process cannot change
 * @units: number of 64-byte units of all requests
 *
 * Posts all requests or none. Sleeps while there is no room.
 */
int vrdma_user_post(struct vrdma_dev *dev, struct vrdma_uctx *uctx, const void *buf,
		    unsigned int units)
{
	unsigned long deadline = jiffies + msecs_to_jiffies(STALL_MS);
	struct vrdma_channel *chan = &dev->channels[0];
	unsigned int reserve;
	unsigned long flags;
	bool kick;
	int err;
	u16 old;

	if (units > chan->num)
		return -EINVAL;
	/* Processes leave a part of the channel to the kernel, which cannot wait. */
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

/* Called after the device has been reset. */
void vrdma_backlog_cleanup(struct vrdma_dev *dev)
{
	struct backlog_entry *entry, *next;

	cancel_work_sync(&dev->backlog_work);
	list_for_each_entry_safe(entry, next, &dev->backlog, node)
		kfree(entry);
	INIT_LIST_HEAD(&dev->backlog);
}
