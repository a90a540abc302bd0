// SPDX-License-Identifier: GPL-2.0
/*
 * The control queue: commands go in, answers come out.
 *
 * A command is abandoned when its caller does not wait for the answer any more. It stays in the
 * queue until the device answers; abandoned.c handles the answer.
 *
 * A command that destroys is never dropped. If the queue has no room when it is abandoned, it is
 * deferred. It is then sent before any other command as soon as there is room.
 */
#include <linux/scatterlist.h>

#include "barrier.h"
#include "cmdbuf.h"
#include "cmdq.h"
#include "mem.h"

/* Adds @cmd to the queue, which is locked. Returns -ENOSPC if there is no room. */
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
 * Moves deferred commands into the queue, which is locked, as long as there is room.
 *
 * Returns whether the device wants a kick.
 */
static bool cmdq_move_deferred(struct vrdma_cmdq *q)
{
	struct vrdma_cmdbuf *cmd;
	bool moved = false;

	while ((cmd = list_first_entry_or_null(&q->deferred, struct vrdma_cmdbuf, node))) {
		/*
		 * A command takes two descriptors: request and reply. A failing add would kick the
		 * device.
		 */
		if (q->vq->num_free < 2 || cmdq_add(q, cmd))
			break;
		list_del(&cmd->node);
		vrdma_cmdbuf_put(cmd);
		moved = true;
	}
	return moved && vrdma_kick_prepare(q->vq);
}

/**
 * vrdma_cmdq_submit() - give a command to the device
 * @q: the control queue
 * @cmd: the command
 *
 * Return: 0; -ENOSPC while the queue has no room; another error if the queue does not work
 */
int vrdma_cmdq_submit(struct vrdma_cmdq *q, struct vrdma_cmdbuf *cmd)
{
	unsigned long flags;
	bool notify = false;
	int err;

	spin_lock_irqsave(&q->lock, flags);
	/* Deferred commands go first, because children are destroyed before their parent. */
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
 * Can be called from any context.
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
 * vrdma_cmdq_abandon() - stop waiting for a command
 * @q: the control queue
 * @cmd: the command
 * @submitted: the device has the command; if not, it is sent when there is room
 * @mem: memory of the object that the command creates or destroys, or NULL; taken over and set to
 *   NULL
 *
 * Return: false if the answer has just come; then the command still belongs to the caller
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

/* Removes the first command from one of the lists of @q. Returns NULL if there is none. */
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

/* Returns the oldest answered abandoned command, with its reference, or NULL. */
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

/* Takes back the commands that the device did not answer. Called after a reset of the device. */
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
