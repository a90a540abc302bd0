// SPDX-License-Identifier: GPL-2.0
/*
 * Mechanics of the control queue.
 *
 * A command lives in memory of its own, which has two owners: the caller, and the queue until
 * the device has answered (or was reset). So a caller that gives up never frees a buffer that
 * the device may still write.
 */
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "vrdma.h"

static unsigned int cmd_timeout_ms = 60000;
module_param(cmd_timeout_ms, uint, 0644);
MODULE_PARM_DESC(cmd_timeout_ms,
		 "Time after which a device that does not answer is given up (default 60000 ms)");

/* How often a waiter looks by itself, in case an interrupt was lost or the device is gone. */
#define CMD_POLL_INTERVAL HZ

struct vrdma_cmd {
	refcount_t ref;
	bool done;
	unsigned int used_len;
	u64 cookie;
	struct vrdma_cmd_req *req;
	struct vrdma_cmd_resp *resp;
	struct vrdma_runs *runs;
	struct sg_table out;
	struct scatterlist in;
};

static void cmd_put(struct vrdma_cmd *cmd)
{
	if (!refcount_dec_and_test(&cmd->ref))
		return;
	sg_free_table(&cmd->out);
	vrdma_runs_free(cmd->runs);
	kfree(cmd->resp);
	kfree(cmd->req);
	kfree(cmd);
}

/* Takes over @runs, also on failure. */
static struct vrdma_cmd *cmd_alloc(u16 opcode, const void *req, size_t req_len, size_t resp_len,
				   struct vrdma_runs *runs)
{
	u32 i, chunks = runs ? runs->nr_chunks : 0;
	struct scatterlist *sg;
	struct vrdma_cmd *cmd;
	u32 left;

	cmd = kzalloc(sizeof(*cmd), GFP_KERNEL);
	if (!cmd) {
		vrdma_runs_free(runs);
		return NULL;
	}
	refcount_set(&cmd->ref, 1);
	cmd->runs = runs;
	req_len += sizeof(*cmd->req);
	resp_len += sizeof(*cmd->resp);
	cmd->req = kzalloc(req_len, GFP_KERNEL);
	cmd->resp = kzalloc(resp_len, GFP_KERNEL);
	if (!cmd->req || !cmd->resp || sg_alloc_table(&cmd->out, 1 + chunks, GFP_KERNEL)) {
		cmd_put(cmd);
		return NULL;
	}

	cmd->req->opcode = cpu_to_le16(opcode);
	if (req)
		memcpy(cmd->req + 1, req, req_len - sizeof(*cmd->req));
	sg = cmd->out.sgl;
	sg_set_buf(sg, cmd->req, req_len);
	if (runs) {
		cmd->req->num_runs = cpu_to_le32(runs->nr);
		left = runs->nr;
		for (i = 0; i < chunks; i++) {
			u32 n = min(left, runs->per_chunk);

			sg = sg_next(sg);
			sg_set_buf(sg, runs->chunk[i], n * sizeof(struct vrdma_run));
			left -= n;
		}
	}
	sg_init_one(&cmd->in, cmd->resp, resp_len);
	return cmd;
}

/* Hands @cmd to the device; -ENOSPC while the queue has no room for it. */
static int cmdq_submit(struct vrdma_cmdq *q, struct vrdma_cmd *cmd)
{
	struct scatterlist *sgs[] = { cmd->out.sgl, &cmd->in };
	unsigned long flags;
	bool notify = false;
	int err;

	spin_lock_irqsave(&q->lock, flags);
	cmd->cookie = q->next_cookie;
	cmd->req->cookie = cpu_to_le64(cmd->cookie);
	err = virtqueue_add_sgs(q->vq, sgs, 1, 1, cmd, GFP_ATOMIC);
	if (!err) {
		q->next_cookie++;
		refcount_inc(&cmd->ref);
		notify = virtqueue_kick_prepare(q->vq);
	}
	spin_unlock_irqrestore(&q->lock, flags);
	if (notify)
		virtqueue_notify(q->vq);
	return err;
}

/* Takes answers from the queue. */
static void cmdq_drain(struct vrdma_cmdq *q)
{
	struct vrdma_cmd *cmd;
	unsigned long flags;
	unsigned int len;

	spin_lock_irqsave(&q->lock, flags);
	do {
		virtqueue_disable_cb(q->vq);
		while ((cmd = virtqueue_get_buf(q->vq, &len))) {
			cmd->used_len = len;
			/* Pairs with the acquire in cmd_done(). */
			smp_store_release(&cmd->done, true);
			cmd_put(cmd);
		}
	} while (!virtqueue_is_broken(q->vq) && !virtqueue_enable_cb(q->vq));
	spin_unlock_irqrestore(&q->lock, flags);
	wake_up_all(&q->wait);
}

void vrdma_cmdq_interrupt(struct virtqueue *vq)
{
	struct vrdma_dev *dev = vq->vdev->priv;

	cmdq_drain(&dev->cmdq);
}

static bool cmd_done(struct vrdma_cmd *cmd)
{
	/* Pairs with the release in cmdq_drain(): the answer is read after this. */
	return smp_load_acquire(&cmd->done);
}

/* Submits @cmd and waits for its answer until @deadline. */
static int cmdq_run(struct vrdma_dev *dev, struct vrdma_cmd *cmd, unsigned long deadline)
{
	struct vrdma_cmdq *q = &dev->cmdq;
	bool submitted = false;
	int err = 0;

	for (;;) {
		if (!submitted) {
			wait_event_timeout(q->wait, vrdma_broken(dev) ||
					   (err = cmdq_submit(q, cmd)) != -ENOSPC,
					   CMD_POLL_INTERVAL);
			submitted = !err && !vrdma_broken(dev);
			if (err && err != -ENOSPC) {
				vrdma_set_broken(dev, "the control queue does not work");
				return -EIO;
			}
		} else {
			wait_event_timeout(q->wait, vrdma_broken(dev) || cmd_done(cmd),
					   CMD_POLL_INTERVAL);
			if (cmd_done(cmd))
				return 0;
		}
		if (vrdma_broken(dev))
			return -EIO;
		if (virtqueue_is_broken(q->vq)) {
			vrdma_set_broken(dev, "it was removed");
			return -EIO;
		}
		if (time_after(jiffies, deadline)) {
			vrdma_set_broken(dev, "a command got no answer");
			return -EIO;
		}
		cmdq_drain(q);
	}
}

static int status_to_errno(u32 status)
{
	switch (status) {
	case VRDMA_STATUS_OK:
		return 0;
	case VRDMA_STATUS_UNSUPPORTED:
		return -EOPNOTSUPP;
	case VRDMA_STATUS_INVALID:
		return -EINVAL;
	case VRDMA_STATUS_NOT_FOUND:
		return -ENOENT;
	case VRDMA_STATUS_BUSY:
		return -EBUSY;
	case VRDMA_STATUS_DENIED:
		return -EPERM;
	case VRDMA_STATUS_NO_RESOURCES:
		return -ENOMEM;
	case VRDMA_STATUS_FAULT:
		return -EFAULT;
	default:
		return -EIO;
	}
}

/**
 * vrdma_cmdq_exec() - have the device carry out a command
 * @dev: the device
 * @opcode: the command
 * @req: its request structure, or NULL
 * @req_len: length of @req
 * @resp: where its reply goes if it succeeds, or NULL
 * @resp_len: length of @resp
 * @runs: memory that belongs to the command, or NULL; taken over, also on failure
 *
 * Sleeps, but not for longer than the module parameter says. After an error the device did
 * not carry the command out, unless the device is broken, in which case nobody knows: memory
 * that the command named must not be freed then (vrdma_mem_release() sees to it).
 */
int vrdma_cmdq_exec(struct vrdma_dev *dev, u16 opcode, const void *req, size_t req_len,
		    void *resp, size_t resp_len, struct vrdma_runs *runs)
{
	unsigned long deadline = jiffies + msecs_to_jiffies(READ_ONCE(cmd_timeout_ms));
	struct vrdma_cmd *cmd;
	int err;

	cmd = cmd_alloc(opcode, req, req_len, resp_len, runs);
	if (!cmd)
		return -ENOMEM;
	err = cmdq_run(dev, cmd, deadline);
	if (err)
		goto out;
	if (cmd->used_len < sizeof(*cmd->resp) || le64_to_cpu(cmd->resp->cookie) != cmd->cookie) {
		vrdma_set_broken(dev, "its answer to a command makes no sense");
		err = -EIO;
		goto out;
	}
	err = status_to_errno(le32_to_cpu(cmd->resp->status));
	if (err)
		goto out;
	if (cmd->used_len < sizeof(*cmd->resp) + resp_len) {
		vrdma_set_broken(dev, "its answer to a command is too short");
		err = -EIO;
		goto out;
	}
	if (resp)
		memcpy(resp, cmd->resp + 1, resp_len);
out:
	cmd_put(cmd);
	return err;
}

/* The device has been reset: takes back what it did not answer. */
void vrdma_cmdq_cleanup(struct vrdma_dev *dev)
{
	struct vrdma_cmd *cmd;

	if (!dev->cmdq.vq)
		return;
	while ((cmd = virtqueue_detach_unused_buf(dev->cmdq.vq)))
		cmd_put(cmd);
	dev->cmdq.vq = NULL;
}
