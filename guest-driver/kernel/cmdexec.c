// SPDX-License-Identifier: GPL-2.0
/* Executing a command: how long the caller waits, and which result it gets. */
#include <linux/module.h>
#include <linux/moduleparam.h>

#include "broken.h"
#include "cmdbuf.h"
#include "cmdexec.h"
#include "cmdq.h"
#include "reply.h"
#include "runs.h"

static unsigned int cmd_timeout_ms = 60000;
module_param(cmd_timeout_ms, uint, 0644);
MODULE_PARM_DESC(cmd_timeout_ms,
		 "Time after which a device that does not answer stands still (default 60000 ms)");

/* How often a waiter polls, in case that an interrupt was lost or the device is gone. */
#define CMD_POLL_INTERVAL HZ

static unsigned long cmd_deadline(void)
{
	return jiffies + msecs_to_jiffies(READ_ONCE(cmd_timeout_ms));
}

/* Whether no answer will come. With @no_timeout, a stalled device has to be reset before that. */
static bool cmd_hopeless(struct vrdma_dev *dev, bool no_timeout)
{
	return vrdma_broken(dev) && !(no_timeout && vrdma_may_resume(dev));
}

/* Waits at most CMD_POLL_INTERVAL for room in the queue. Returns -ENOSPC if there is none yet. */
static int cmd_wait_room(struct vrdma_dev *dev, struct vrdma_cmdbuf *cmd, bool no_timeout)
{
	int err = -ENOSPC;

	wait_event_timeout(dev->wait, cmd_hopeless(dev, no_timeout) ||
			   (err = vrdma_cmdq_submit(&dev->cmdq, cmd)) != -ENOSPC,
			   CMD_POLL_INTERVAL);
	return err;
}

/* Waits for the answer until @deadline, at most CMD_POLL_INTERVAL. Returns whether it came. */
static bool cmd_wait_done(struct vrdma_dev *dev, struct vrdma_cmdbuf *cmd, bool no_timeout,
			  unsigned long deadline)
{
	wait_event_timeout(dev->wait, cmd_hopeless(dev, no_timeout) || vrdma_cmdbuf_done(cmd),
			   clamp((long)(deadline - jiffies), 1L, (long)CMD_POLL_INTERVAL));
	return vrdma_cmdbuf_done(cmd);
}

/*
 * Submits @cmd and waits for the answer until @deadline. With @no_timeout, waits as long as the
 * device is stalled.
 *
 * @submitted becomes true when the device has the command.
 */
static int cmd_run(struct vrdma_dev *dev, struct vrdma_cmdbuf *cmd, unsigned long deadline,
		   bool no_timeout, bool *submitted)
{
	bool warned = false;
	int err;

	*submitted = false;
	for (;;) {
		if (!*submitted) {
			err = cmd_wait_room(dev, cmd, no_timeout);
			*submitted = !err;
			if (err && err != -ENOSPC) {
				vrdma_set_broken(dev, "the control queue does not work");
				return -EIO;
			}
		} else if (cmd_wait_done(dev, cmd, no_timeout, deadline)) {
			return 0;
		}
		if (cmd_hopeless(dev, no_timeout))
			return -EIO;
		if (virtqueue_is_broken(dev->cmdq.vq)) {
			vrdma_set_broken(dev, "it was removed");
			return -EIO;
		}
		/* An interrupt may be late or lost. */
		vrdma_cmdq_drain(dev);
		vrdma_find_reset(dev);
		if (!time_after(jiffies, deadline) || (*submitted && vrdma_cmdbuf_done(cmd)))
			continue;
		if (warned && !vrdma_stalled(dev) && !READ_ONCE(dev->removing)) {
			/* The device resumed, and has to answer other commands first. */
			warned = false;
			deadline = cmd_deadline();
			continue;
		}
		/* Called again in each round, because the driver may be removed meanwhile. */
		vrdma_set_stalled(dev, "a command got no answer");
		if (!no_timeout)
			return -EIO;
		if (!warned)
			dev_warn(&dev->vdev->dev,
				 "command %u waits for the device to go on: it may use buffers of the kernel\n",
				 le16_to_cpu(cmd->req->opcode));
		warned = true;
		deadline = jiffies + CMD_POLL_INTERVAL;
	}
}

/* Reads the answer of a command that is done. */
static int cmd_read(struct vrdma_dev *dev, const struct vrdma_cmdbuf *cmd,
		    const struct vrdma_cmd_result *result)
{
	int err;

	if (cmd->used_len < sizeof(*cmd->resp) || le64_to_cpu(cmd->resp->cookie) != cmd->cookie) {
		vrdma_set_broken(dev, "its answer to a command makes no sense");
		return -EIO;
	}
	err = vrdma_status_to_errno(le32_to_cpu(cmd->resp->status));
	if (err)
		return err;
	if (!vrdma_reply_read(result->resp, result->resp_len, result->resp_len - result->added,
			      cmd->resp + 1, cmd->used_len - sizeof(*cmd->resp))) {
		vrdma_set_broken(dev, "its answer to a command is too short");
		return -EIO;
	}
	return 0;
}

/**
 * vrdma_cmd_exec() - have the device execute a command
 * @dev: the device
 * @cmd: the command; its extents are taken over, also on failure
 * @result: result of the command, or NULL if its answer is only a status
 *
 * Sleeps until the device answers, but not longer than the module parameter cmd_timeout_ms allows,
 * unless the command has no timeout.
 *
 * After an error other than -EIO, the device did not execute the command. After -EIO this is not
 * known.
 *
 * A stalled device gets no new commands. Commands that destroy are an exception: they stay queued,
 * and the device executes them in order when it resumes.
 */
int vrdma_cmd_exec(struct vrdma_dev *dev, const struct vrdma_cmd *cmd,
		   struct vrdma_cmd_result *result)
{
	/* The core adds a GID only once, so this command waits for a stalled device too. */
	bool stalled = vrdma_stalled(dev) && cmd->opcode != VRDMA_CMD_ADD_GID;
	bool destroys = vrdma_opcode_destroys(cmd->opcode);
	unsigned long deadline = stalled ? jiffies : cmd_deadline();
	struct vrdma_cmd_result none = {};
	struct vrdma_cmdbuf *buf;
	int err = -EIO;

	if (!result)
		result = &none;
	result->submitted = false;
	result->pending = false;
	if (stalled && !cmd->no_timeout && !destroys) {
		vrdma_runs_free(cmd->runs);
		return -EIO;
	}
	buf = vrdma_cmdbuf_alloc(cmd->opcode, cmd->req, cmd->req_len, result->resp_len, cmd->runs);
	if (!buf)
		return -ENOMEM;
	if (!stalled || cmd->no_timeout)
		err = cmd_run(dev, buf, deadline, cmd->no_timeout, &result->submitted);
	if (err) {
		if (!result->submitted && (vrdma_broken(dev) || !destroys))
			goto out;
		if (vrdma_cmdq_abandon(&dev->cmdq, buf, result->submitted, cmd->mem)) {
			result->pending = true;
			goto out;
		}
	}
	err = cmd_read(dev, buf, result);
out:
	vrdma_cmdbuf_put(buf);
	return err;
}

/**
 * vrdma_cmd_on() - have the device execute a command on one object
 * @dev: the device
 * @opcode: a command whose request is a number, and whose answer is only a status
 * @object: number of the object
 * @mem: see &struct vrdma_cmd
 */
int vrdma_cmd_on(struct vrdma_dev *dev, u16 opcode, u32 object, struct vrdma_mem **mem)
{
	struct vrdma_object_req req = { .object = cpu_to_le32(object) };
	struct vrdma_cmd cmd = VRDMA_COMMAND(opcode, &req);

	cmd.mem = mem;
	return vrdma_cmd_exec(dev, &cmd, NULL);
}

/**
 * vrdma_cmd_create() - have the device create an object
 * @dev: the device
 * @cmd: a command whose answer is the number of the object
 * @object: becomes the number on success
 */
int vrdma_cmd_create(struct vrdma_dev *dev, const struct vrdma_cmd *cmd, u32 *object)
{
	struct vrdma_object_resp resp;
	struct vrdma_cmd_result result = VRDMA_REPLY(&resp);
	int err;

	err = vrdma_cmd_exec(dev, cmd, &result);
	if (!err)
		*object = le32_to_cpu(resp.object);
	return err;
}

/**
 * vrdma_cmd_probe() - make sure that the device has a command to answer
 * @dev: the device
 *
 * Sends an abandoned QUERY_PORT if no command is outstanding.
 */
void vrdma_cmd_probe(struct vrdma_dev *dev)
{
	struct vrdma_cmdbuf *cmd;

	vrdma_cmdq_drain(dev);
	if (READ_ONCE(dev->cmdq.outstanding))
		return;
	cmd = vrdma_cmdbuf_alloc(VRDMA_CMD_QUERY_PORT, NULL, 0,
				 sizeof(struct vrdma_query_port_resp), NULL);
	if (!cmd)
		return;
	cmd->abandoned = true;
	vrdma_cmdq_submit(&dev->cmdq, cmd);
	vrdma_cmdbuf_put(cmd);
}
