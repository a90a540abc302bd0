// SPDX-License-Identifier: GPL-2.0
/*
 * The control queue: commands go in, answers come out.
 *
 * An abandoned command is one whose caller waits for its answer no more. It stays in the queue
 * until the device answers; abandoned.c handles the answer. A command that destroys is never
 * dropped: if the queue has no room for it when it is abandoned, it is deferred, and sent before
 * any other command as soon as there is room.
 */
#include <linux/scatterlist.h>

#include "barrier.h"
#include "cmdbuf.h"
#include "cmdq.h"
#include "mem.h"

/* Adds @cmd to the queue, which is locked; -ENOSPC if there is no room. */
static int cmdq_add(struct vrdma_cmdq *q, struct vrdma_cmdbuf *cmd)
{
	struct scatterlist *sgs[] = { cmd->out.sgl, &cmd->in };
	int err;

	cmd->cookie = q->next_cookie;
	cmd->req->cookie = cpu_to_le64(cmd->cookie);
	err = virtqueue_add_sgs(q->vq, sgs, 1, 1, cmd, GFP_ATOMIC);
	if (err)
		return err;
	q->next_cookie++;
	q->outstanding++;
	refcount_inc(&cmd->ref);
	return 0;
}

/*
 * Moves deferred commands into the queue, which is locked, as long as there is room; returns
 * whether the device wants a kick.
 */
static bool cmdq_move_deferred(struct vrdma_cmdq *q)
{
	struct vrdma_cmdbuf *cmd;
	bool moved = false;

	while ((cmd = list_first_entry_or_null(&q->deferred, struct vrdma_cmdbuf, node))) {
		/* A request and a reply. An attempt that fails would kick the device. */
		if (q->vq->num_free < 2 || cmdq_add(q, cmd))
			break;
		list_del(&cmd->node);
		vrdma_cmdbuf_put(cmd);
		moved = true;
	}
	return moved && vrdma_kick_prepare(q->vq);
}

/**
 * vrdma_cmdq_submit() - hand a command to the device
 * @q: the control queue
 * @cmd: the command
 *
 * Return: -ENOSPC while the queue has no room for it
 */
int vrdma_cmdq_submit(struct vrdma_cmdq *q, struct vrdma_cmdbuf *cmd)
{
	unsigned long flags;
	bool notify = false;
	int err;

	spin_lock_irqsave(&q->lock, flags);
	/* Deferred commands come first: children are destroyed before their parent. */
	err = list_empty(&q->deferred) ? cmdq_add(q, cmd) : -ENOSPC;
	if (!err)
		notify = vrdma_kick_prepare(q->vq);
	spin_unlock_irqrestore(&q->lock, flags);
	if (notify)
		virtqueue_notify(q->vq);
	return err;
}

/**
 * vrdma_cmdq_drain() - take answers from the queue
 * @dev: the device
 *
 * From any context.
 */
void vrdma_cmdq_drain(struct vrdma_dev *dev)
{
	struct vrdma_cmdq *q = &dev->cmdq;
	struct vrdma_cmdbuf *cmd;
	unsigned long flags;
	unsigned int len;
	bool notify;

	spin_lock_irqsave(&q->lock, flags);
	do {
		virtqueue_disable_cb(q->vq);
		while ((cmd = virtqueue_get_buf(q->vq, &len))) {
			cmd->used_len = len;
			q->outstanding--;
			WRITE_ONCE(dev->answered, dev->answered + 1);
			/* Pairs with the acquire in vrdma_cmdbuf_done(). */
			smp_store_release(&cmd->done, true);
			if (cmd->abandoned) {
				list_add_tail(&cmd->node, &q->abandoned);
				queue_work(dev->wq, &q->abandoned_work);
			} else {
				vrdma_cmdbuf_put(cmd);
			}
		}
	} while (!virtqueue_is_broken(q->vq) && !vrdma_enable_cb(q->vq));
	notify = cmdq_move_deferred(q);
	spin_unlock_irqrestore(&q->lock, flags);
	if (notify)
		virtqueue_notify(q->vq);
	wake_up_all(&dev->wait);
}

void vrdma_cmdq_interrupt(struct virtqueue *vq)
{
	struct vrdma_dev *dev = vq->vdev->priv;

	vrdma_cmdq_drain(dev);
}

/**
 * vrdma_cmdq_abandon() - wait for a command no more
 * @q: the control queue
 * @cmd: the command
 * @submitted: the device has it; if not, it is sent when there is room
 * @mem: memory of the object that it creates or destroys, or NULL; taken over, and set to NULL
 *
 * Return: false if the answer has just come, and the command is still the caller's
 */
bool vrdma_cmdq_abandon(struct vrdma_cmdq *q, struct vrdma_cmdbuf *cmd, bool submitted,
			struct vrdma_mem **mem)
{
	bool notify = false;
	unsigned long flags;

	spin_lock_irqsave(&q->lock, flags);
	if (cmd->done) {
		spin_unlock_irqrestore(&q->lock, flags);
		return false;
	}
	cmd->abandoned = true;
	if (mem) {
		cmd->mem = *mem;
		*mem = NULL;
	}
	if (!submitted) {
		refcount_inc(&cmd->ref);
		list_add_tail(&cmd->node, &q->deferred);
		notify = cmdq_move_deferred(q);
	}
	spin_unlock_irqrestore(&q->lock, flags);
	if (notify)
		virtqueue_notify(q->vq);
	return true;
}

/* Removes the first command from one of the lists of @q; NULL if there is none. */
static struct vrdma_cmdbuf *cmdq_pop(struct vrdma_cmdq *q, struct list_head *list)
{
	struct vrdma_cmdbuf *cmd;
	unsigned long flags;

	spin_lock_irqsave(&q->lock, flags);
	cmd = list_first_entry_or_null(list, struct vrdma_cmdbuf, node);
	if (cmd)
		list_del(&cmd->node);
	spin_unlock_irqrestore(&q->lock, flags);
	return cmd;
}

/* The oldest abandoned command that has been answered, with its reference; NULL if none. */
struct vrdma_cmdbuf *vrdma_cmdq_pop_abandoned(struct vrdma_cmdq *q)
{
	return cmdq_pop(q, &q->abandoned);
}

void vrdma_cmdq_init(struct vrdma_cmdq *q)
{
	spin_lock_init(&q->lock);
	INIT_LIST_HEAD(&q->deferred);
	INIT_LIST_HEAD(&q->abandoned);
}

/* The device has been reset: takes back the commands that it did not answer. */
void vrdma_cmdq_cleanup(struct vrdma_dev *dev)
{
	struct vrdma_cmdq *q = &dev->cmdq;
	struct vrdma_cmdbuf *cmd;

	if (!q->vq)
		return;
	/* The work may wait for an answer, and hold the memory of an abandoned command. */
	wake_up_all(&dev->wait);
	cancel_work_sync(&q->abandoned_work);
	while ((cmd = virtqueue_detach_unused_buf(q->vq)) || (cmd = cmdq_pop(q, &q->abandoned)) ||
	       (cmd = cmdq_pop(q, &q->deferred))) {
		vrdma_mem_free(dev, cmd->mem);
		vrdma_cmdbuf_put(cmd);
	}
	q->vq = NULL;
}
