// SPDX-License-Identifier: GPL-2.0
/*
 * Mechanics of the control queue.
 *
 * A command lives in memory of its own, which has two owners: the caller, and the queue until
 * the device has answered (or was reset). So a caller that gives up never frees a buffer that
 * the device may still write. The command that it leaves behind is an orphan: when the answer
 * comes after all, what the command created is destroyed, and the memory of what it destroyed
 * is freed. What destroys is never dropped: if the queue has no room for it, it is deferred, and
 * sent before any other command as soon as there is room.
 */
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "vrdma.h"

static unsigned int cmd_timeout_ms = 60000;
module_param(cmd_timeout_ms, uint, 0644);
MODULE_PARM_DESC(cmd_timeout_ms,
		 "Time after which a device that does not answer stands still (default 60000 ms)");

/* How often a waiter looks by itself, in case an interrupt was lost or the device is gone. */
#define CMD_POLL_INTERVAL HZ

struct vrdma_cmd {
	struct list_head node;
	refcount_t ref;
	bool done;
	bool orphan;
	struct vrdma_mem *mem;
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

/* Commands that are left with a device that stands still: it carries them out when it goes on. */
static bool is_undoing(u16 opcode)
{
	switch (opcode) {
	case VRDMA_CMD_DEL_GID:
	case VRDMA_CMD_DEALLOC_CONTEXT:
	case VRDMA_CMD_UNBIND_CHANNEL:
	case VRDMA_CMD_DEALLOC_PD:
	case VRDMA_CMD_DESTROY_CQ:
	case VRDMA_CMD_DEREG_MR:
	case VRDMA_CMD_DESTROY_QP:
		return true;
	default:
		return false;
	}
}

/* Takes over @runs, also on failure. */
static struct vrdma_cmd *cmd_alloc(u16 opcode, const void *req, size_t req_len, size_t resp_len,
				   struct vrdma_runs *runs)
{
	/* Who destroys could do nothing about a failure. */
	gfp_t gfp = is_undoing(opcode) ? GFP_KERNEL | __GFP_NOFAIL : GFP_KERNEL;
	u32 i, chunks = runs ? runs->nr_chunks : 0;
	struct scatterlist *sg;
	struct vrdma_cmd *cmd;
	u32 left;

	cmd = kzalloc(sizeof(*cmd), gfp);
	if (!cmd) {
		vrdma_runs_free(runs);
		return NULL;
	}
	refcount_set(&cmd->ref, 1);
	cmd->runs = runs;
	req_len += sizeof(*cmd->req);
	resp_len += sizeof(*cmd->resp);
	cmd->req = kzalloc(req_len, gfp);
	cmd->resp = kzalloc(resp_len, gfp);
	if (!cmd->req || !cmd->resp || sg_alloc_table(&cmd->out, 1 + chunks, gfp)) {
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

/* Puts @cmd into the queue, which is locked; -ENOSPC if there is no room. */
static int cmdq_add(struct vrdma_cmdq *q, struct vrdma_cmd *cmd)
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
static bool cmdq_move(struct vrdma_cmdq *q)
{
	struct vrdma_cmd *cmd;
	bool moved = false;

	while ((cmd = list_first_entry_or_null(&q->deferred, struct vrdma_cmd, node))) {
		/* A request and a reply. A failing attempt would kick the device. */
		if (q->vq->num_free < 2 || cmdq_add(q, cmd))
			break;
		list_del(&cmd->node);
		cmd_put(cmd);
		moved = true;
	}
	return moved && vrdma_kick_prepare(q->vq);
}

/* Hands @cmd to the device; -ENOSPC while the queue has no room for it. */
static int cmdq_submit(struct vrdma_cmdq *q, struct vrdma_cmd *cmd)
{
	unsigned long flags;
	bool notify = false;
	int err;

	spin_lock_irqsave(&q->lock, flags);
	/* What is deferred comes first: children are destroyed before their parent. */
	err = list_empty(&q->deferred) ? cmdq_add(q, cmd) : -ENOSPC;
	if (!err)
		notify = vrdma_kick_prepare(q->vq);
	spin_unlock_irqrestore(&q->lock, flags);
	if (notify)
		virtqueue_notify(q->vq);
	return err;
}

/* Takes answers from the queue. */
static void cmdq_drain(struct vrdma_dev *dev)
{
	struct vrdma_cmdq *q = &dev->cmdq;
	struct vrdma_cmd *cmd;
	unsigned long flags;
	unsigned int len;
	bool notify;

	spin_lock_irqsave(&q->lock, flags);
	do {
		virtqueue_disable_cb(q->vq);
		while ((cmd = virtqueue_get_buf(q->vq, &len))) {
			cmd->used_len = len;
			q->outstanding--;
			WRITE_ONCE(q->answered, q->answered + 1);
			/* Pairs with the acquire in cmd_done(). */
			smp_store_release(&cmd->done, true);
			if (cmd->orphan) {
				list_add_tail(&cmd->node, &q->orphans);
				queue_work(dev->wq, &q->orphan_work);
			} else {
				cmd_put(cmd);
			}
		}
	} while (!virtqueue_is_broken(q->vq) && !vrdma_enable_cb(q->vq));
	notify = cmdq_move(q);
	spin_unlock_irqrestore(&q->lock, flags);
	if (notify)
		virtqueue_notify(q->vq);
	wake_up_all(&q->wait);
}

void vrdma_cmdq_interrupt(struct virtqueue *vq)
{
	struct vrdma_dev *dev = vq->vdev->priv;

	cmdq_drain(dev);
}

static bool cmd_done(struct vrdma_cmd *cmd)
{
	/* Pairs with the release in cmdq_drain(): the answer is read after this. */
	return smp_load_acquire(&cmd->done);
}

/* Whether nobody need wait for an answer any more; who is @patient waits for a device to be reset. */
static bool cmd_hopeless(struct vrdma_dev *dev, bool patient)
{
	return vrdma_broken(dev) && !(patient && vrdma_may_go_on(dev));
}

/*
 * Submits @cmd, says whether it got that far, and waits for the answer until @deadline; if
 * @patient then as long as the device stands still.
 */
static int cmdq_run(struct vrdma_dev *dev, struct vrdma_cmd *cmd, unsigned long deadline,
		    bool patient, bool *submitted)
{
	struct vrdma_cmdq *q = &dev->cmdq;
	bool told = false;
	int err;

	*submitted = false;

	for (;;) {
		if (!*submitted) {
			err = -ENOSPC;
			wait_event_timeout(q->wait, cmd_hopeless(dev, patient) ||
					   (err = cmdq_submit(q, cmd)) != -ENOSPC,
					   CMD_POLL_INTERVAL);
			*submitted = !err;
			if (err && err != -ENOSPC) {
				vrdma_set_broken(dev, "the control queue does not work");
				return -EIO;
			}
		} else {
			wait_event_timeout(q->wait, cmd_hopeless(dev, patient) || cmd_done(cmd),
					   clamp((long)(deadline - jiffies), 1L,
						 (long)CMD_POLL_INTERVAL));
			if (cmd_done(cmd))
				return 0;
		}
		if (cmd_hopeless(dev, patient))
			return -EIO;
		if (virtqueue_is_broken(q->vq)) {
			vrdma_set_broken(dev, "it was removed");
			return -EIO;
		}
		/* An interrupt may be late, or lost. */
		cmdq_drain(dev);
		if (!time_after(jiffies, deadline) || (*submitted && cmd_done(cmd)))
			continue;
		if (told && !vrdma_stalled(dev) && !READ_ONCE(dev->leaving)) {
			/* It went on, and has others before this one. */
			told = false;
			deadline = jiffies + msecs_to_jiffies(READ_ONCE(cmd_timeout_ms));
			continue;
		}
		/* Not only once: the driver may be removed meanwhile. */
		vrdma_set_stalled(dev, "a command got no answer");
		if (!patient)
			return -EIO;
		if (!told)
			dev_warn(&dev->vdev->dev,
				 "command %u waits for the device to go on: it may use buffers of the kernel\n",
				 le16_to_cpu(cmd->req->opcode));
		told = true;
		deadline = jiffies + CMD_POLL_INTERVAL;
	}
}

/*
 * The caller gives @cmd up, and its memory with it: the device has it, if @submitted, or gets it
 * when there is room. Returns false if the answer has just come.
 */
static bool cmd_leave(struct vrdma_dev *dev, struct vrdma_cmd *cmd, bool submitted,
		      struct vrdma_mem **mem)
{
	struct vrdma_cmdq *q = &dev->cmdq;
	bool notify = false;
	unsigned long flags;

	spin_lock_irqsave(&q->lock, flags);
	if (cmd->done) {
		spin_unlock_irqrestore(&q->lock, flags);
		return false;
	}
	cmd->orphan = true;
	if (mem) {
		cmd->mem = *mem;
		*mem = NULL;
	}
	if (!submitted) {
		refcount_inc(&cmd->ref);
		list_add_tail(&cmd->node, &q->deferred);
		notify = cmdq_move(q);
	}
	spin_unlock_irqrestore(&q->lock, flags);
	if (notify)
		virtqueue_notify(q->vq);
	return true;
}

/* The command that destroys what @opcode creates, or 0. */
static u16 undoing(u16 opcode)
{
	switch (opcode) {
	case VRDMA_CMD_ALLOC_CONTEXT:
		return VRDMA_CMD_DEALLOC_CONTEXT;
	case VRDMA_CMD_ALLOC_PD:
		return VRDMA_CMD_DEALLOC_PD;
	case VRDMA_CMD_CREATE_CQ:
		return VRDMA_CMD_DESTROY_CQ;
	case VRDMA_CMD_REG_MR:
	case VRDMA_CMD_GET_DMA_MR:
		return VRDMA_CMD_DEREG_MR;
	case VRDMA_CMD_CREATE_QP:
		return VRDMA_CMD_DESTROY_QP;
	default:
		return 0;
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
	case VRDMA_STATUS_TOO_LARGE:
		return -ENOMEM;
	case VRDMA_STATUS_FAULT:
		return -EFAULT;
	default:
		return -EIO;
	}
}

/* A channel whose command nobody waited for: it is not bound, or will not be. */
static void orphan_channel(struct vrdma_dev *dev, u16 opcode, const void *payload, u32 status)
{
	const struct vrdma_bind_channel_req *bind = payload;
	const struct vrdma_object_req *unbind = payload;
	u16 queue;

	if (opcode == VRDMA_CMD_UNBIND_CHANNEL) {
		vrdma_channel_found(dev, le32_to_cpu(unbind->object));
		return;
	}
	queue = le16_to_cpu(bind->queue);
	/* If that is not answered either, it is an orphan of its own. */
	if (status != VRDMA_STATUS_OK || !vrdma_cmd_unbind_channel(dev, queue))
		vrdma_channel_found(dev, queue);
}

/*
 * An orphan was answered: nobody knows the object that it created, if it did. What could not be
 * destroyed for the sake of such an object is destroyed now: that one's orphan came before.
 */
static void orphan_end(struct vrdma_dev *dev, struct vrdma_cmd *cmd)
{
	struct vrdma_object_resp *made = (void *)(cmd->resp + 1);
	struct vrdma_object_req *payload = (void *)(cmd->req + 1);
	u16 opcode = le16_to_cpu(cmd->req->opcode);
	struct vrdma_object_req req = {};
	u16 undo = undoing(opcode);
	int err = 0;
	u32 status;

	if (cmd->used_len < sizeof(*cmd->resp)) {
		err = -EIO;
		goto out;
	}
	status = le32_to_cpu(cmd->resp->status);
	if (opcode == VRDMA_CMD_BIND_CHANNEL || opcode == VRDMA_CMD_UNBIND_CHANNEL) {
		orphan_channel(dev, opcode, payload, status);
	} else if (undo && status == VRDMA_STATUS_OK &&
		   cmd->used_len < sizeof(*cmd->resp) + sizeof(*made)) {
		err = -EIO;
	} else if (undo && status == VRDMA_STATUS_OK) {
		/* The number of the object is the first word of each of these replies. */
		req.object = made->object;
		err = vrdma_cmdq_exec(dev, undo, &req, sizeof(req), NULL, 0, NULL, &cmd->mem);
	} else if (is_undoing(opcode) && status == VRDMA_STATUS_BUSY) {
		req.object = payload->object;
		err = vrdma_cmdq_exec(dev, opcode, &req, sizeof(req), NULL, 0, NULL, &cmd->mem);
	} else if (opcode == VRDMA_CMD_SET_AH_TABLE && status == VRDMA_STATUS_OK) {
		/* Nothing takes the table away from the device but a reset. */
		err = -EIO;
	} else if (is_undoing(opcode)) {
		/* The device may still have what it did not destroy. */
		err = status_to_errno(status);
	}
out:
	vrdma_mem_release(dev, cmd->mem, err);
	cmd->mem = NULL;
	cmd_put(cmd);
}

/* Takes the first command from one of the lists of @q. */
static struct vrdma_cmd *cmd_pop(struct vrdma_cmdq *q, struct list_head *list)
{
	struct vrdma_cmd *cmd;
	unsigned long flags;

	spin_lock_irqsave(&q->lock, flags);
	cmd = list_first_entry_or_null(list, struct vrdma_cmd, node);
	if (cmd)
		list_del(&cmd->node);
	spin_unlock_irqrestore(&q->lock, flags);
	return cmd;
}

static void orphan_work(struct work_struct *work)
{
	struct vrdma_cmdq *q = container_of(work, struct vrdma_cmdq, orphan_work);
	struct vrdma_dev *dev = container_of(q, struct vrdma_dev, cmdq);
	struct vrdma_cmd *cmd;

	while ((cmd = cmd_pop(q, &q->orphans)))
		orphan_end(dev, cmd);
}

/**
 * vrdma_cmdq_probe() - see to it that the device has a command to answer
 * @dev: the device
 */
void vrdma_cmdq_probe(struct vrdma_dev *dev)
{
	struct vrdma_cmd *cmd;

	cmdq_drain(dev);
	if (READ_ONCE(dev->cmdq.outstanding))
		return;
	cmd = cmd_alloc(VRDMA_CMD_QUERY_PORT, NULL, 0, sizeof(struct vrdma_query_port_resp), NULL);
	if (!cmd)
		return;
	cmd->orphan = true;
	cmdq_submit(&dev->cmdq, cmd);
	cmd_put(cmd);
}

/* @left, if not NULL, becomes true if the device has the command, or gets it, and did not answer. */
static int cmdq_exec(struct vrdma_dev *dev, u16 opcode, const void *req, size_t req_len,
		     void *resp, size_t resp_len, struct vrdma_runs *runs, struct vrdma_mem **mem,
		     bool patient, bool *left)
{
	bool stalled = vrdma_stalled(dev) && opcode != VRDMA_CMD_ADD_GID;
	unsigned long deadline = jiffies;
	bool submitted = false;
	struct vrdma_cmd *cmd;
	int err = -EIO;

	if (stalled && !patient && !is_undoing(opcode)) {
		vrdma_runs_free(runs);
		return -EIO;
	}
	cmd = cmd_alloc(opcode, req, req_len, resp_len, runs);
	if (!cmd)
		return -ENOMEM;
	if (!stalled)
		deadline += msecs_to_jiffies(READ_ONCE(cmd_timeout_ms));
	if (!stalled || patient)
		err = cmdq_run(dev, cmd, deadline, patient, &submitted);
	if (err) {
		if (!submitted && (vrdma_broken(dev) || !is_undoing(opcode)))
			goto out;
		if (cmd_leave(dev, cmd, submitted, mem)) {
			if (left)
				*left = true;
			goto out;
		}
		err = 0;
	}
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

/**
 * vrdma_cmdq_exec() - have the device carry out a command
 * @dev: the device
 * @opcode: the command
 * @req: its request structure, or NULL
 * @req_len: length of @req
 * @resp: where its reply goes if it succeeds, or NULL
 * @resp_len: length of @resp
 * @runs: memory that belongs to the command, or NULL; taken over, also on failure
 * @mem: memory of the object that the command creates or destroys, or NULL. Becomes NULL if the
 *       caller gives the command up and the device has it or will get it: it is freed when that
 *       ends
 *
 * Sleeps, but not for longer than the module parameter says. After an error the device did
 * not carry the command out, unless it did not answer (-EIO), in which case nobody knows.
 * While the device stands still nothing is asked of it, but for what destroys: that is carried
 * out when the device goes on, in the order in which it was asked for.
 */
int vrdma_cmdq_exec(struct vrdma_dev *dev, u16 opcode, const void *req, size_t req_len,
		    void *resp, size_t resp_len, struct vrdma_runs *runs, struct vrdma_mem **mem)
{
	return cmdq_exec(dev, opcode, req, req_len, resp, resp_len, runs, mem, false, NULL);
}

/**
 * vrdma_cmdq_exec_left() - have the device carry out a command, and say if it may do so later
 * @dev: the device
 * @opcode: the command, which is answered with a status only
 * @req: its request structure
 * @req_len: length of @req
 * @runs: memory that belongs to the command; taken over, also on failure
 * @left: becomes true if the caller gives the command up and the device has it
 *
 * Otherwise like vrdma_cmdq_exec().
 */
int vrdma_cmdq_exec_left(struct vrdma_dev *dev, u16 opcode, const void *req, size_t req_len,
			 struct vrdma_runs *runs, bool *left)
{
	return cmdq_exec(dev, opcode, req, req_len, NULL, 0, runs, NULL, false, left);
}

/**
 * vrdma_cmdq_exec_patient() - have the device carry out a command, however long it takes
 * @dev: the device
 * @opcode: a command that destroys, or ends the use of buffers
 * @req: its request structure
 * @req_len: length of @req
 *
 * For what the device may use buffers of, that are not the driver's to keep. Sleeps until the
 * device has answered, has been reset, or is broken (-EIO) and does not stand still.
 */
int vrdma_cmdq_exec_patient(struct vrdma_dev *dev, u16 opcode, const void *req, size_t req_len)
{
	return cmdq_exec(dev, opcode, req, req_len, NULL, 0, NULL, NULL, true, NULL);
}

/* The device has been reset: takes back what it did not answer. */
void vrdma_cmdq_cleanup(struct vrdma_dev *dev)
{
	struct vrdma_cmd *cmd;

	if (!dev->cmdq.vq)
		return;
	/* It may wait for an answer, and have memory of an orphan in hand. */
	wake_up_all(&dev->cmdq.wait);
	cancel_work_sync(&dev->cmdq.orphan_work);
	while ((cmd = virtqueue_detach_unused_buf(dev->cmdq.vq))) {
		vrdma_mem_free(dev, cmd->mem);
		cmd_put(cmd);
	}
	while ((cmd = cmd_pop(&dev->cmdq, &dev->cmdq.orphans)) ||
	       (cmd = cmd_pop(&dev->cmdq, &dev->cmdq.deferred))) {
		vrdma_mem_free(dev, cmd->mem);
		cmd_put(cmd);
	}
	dev->cmdq.vq = NULL;
}

void vrdma_cmdq_init(struct vrdma_cmdq *q)
{
	spin_lock_init(&q->lock);
	init_waitqueue_head(&q->wait);
	INIT_LIST_HEAD(&q->deferred);
	INIT_LIST_HEAD(&q->orphans);
	INIT_WORK(&q->orphan_work, orphan_work);
}
