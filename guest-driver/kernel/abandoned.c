// SPDX-License-Identifier: GPL-2.0
/*
 * Handling of abandoned commands that the device has answered.
 *
 * An object that such a command created is destroyed. Memory of an object that it destroyed is
 * freed.
 */
#include "abandoned.h"
#include "channel.h"
#include "cmdbuf.h"
#include "cmdexec.h"
#include "cmdq.h"
#include "cmds.h"
#include "mem.h"
#include "reply.h"

/* Ends a BIND_CHANNEL or UNBIND_CHANNEL. The channel must not stay bound. */
static void end_channel(struct vrdma_dev *dev, u16 opcode, const void *payload, u32 status)
{
	const struct vrdma_bind_channel_req *bind = payload;
	const struct vrdma_object_req *unbind = payload;
	u16 queue;

	if (opcode == VRDMA_CMD_UNBIND_CHANNEL) {
		vrdma_channel_unbound(dev, le32_to_cpu(unbind->object));
		return;
	}
	queue = le16_to_cpu(bind->queue);
	/* If this command is not answered either, it is abandoned in turn. */
	if (status != VRDMA_STATUS_OK || !vrdma_cmd_unbind_channel(dev, queue))
		vrdma_channel_unbound(dev, queue);
}

/*
 * Destroys the region of a REREG_MR by its present key. Its verbs object does not refer to it any
 * more.
 *
 * Returns 0 if the memory may be freed. A region with bound windows stays in the device until a
 * reset, with its memory.
 */
static int end_rereg(struct vrdma_dev *dev, struct vrdma_cmdbuf *cmd, u32 status)
{
	const struct vrdma_rereg_mr_req *payload = (void *)(cmd->req + 1);
	const struct vrdma_reg_mr_resp *keys = (void *)(cmd->resp + 1);
	__le32 lkey = payload->lkey;

	if (status == VRDMA_STATUS_OK) {
		if (cmd->used_len < sizeof(*cmd->resp) + sizeof(*keys))
			return -EIO;
		lkey = keys->lkey;
	}
	return vrdma_cmd_on(dev, VRDMA_CMD_DEREG_MR, le32_to_cpu(lkey), &cmd->mem);
}

/*
 * Destroys what @cmd created. Repeats @cmd if it failed to destroy an object that was in use.
 *
 * The abandoned commands that used the object have been handled before. Returns 0 if the memory of
 * the object may be freed.
 */
static int end_object(struct vrdma_dev *dev, struct vrdma_cmdbuf *cmd, u16 opcode, u32 status)
{
	const struct vrdma_object_resp *created = (void *)(cmd->resp + 1);
	const struct vrdma_object_req *payload = (void *)(cmd->req + 1);
	u16 inverse = vrdma_opcode_inverse(opcode);

	if (opcode == VRDMA_CMD_REREG_MR)
		return end_rereg(dev, cmd, status);
	if (inverse && status == VRDMA_STATUS_OK) {
		if (cmd->used_len < sizeof(*cmd->resp) + sizeof(*created))
			return -EIO;
		/* The number of the object is the first word of each of these replies. */
		return vrdma_cmd_on(dev, inverse, le32_to_cpu(created->object), &cmd->mem);
	}
	if (vrdma_opcode_destroys(opcode)) {
		if (status != VRDMA_STATUS_BUSY)
			/* The device may still have an object that it did not destroy. */
			return vrdma_status_to_errno(status);
		return vrdma_cmd_on(dev, opcode, le32_to_cpu(payload->object), &cmd->mem);
	}
	/* Only a reset takes the table away from the device. */
	if (opcode == VRDMA_CMD_SET_AH_TABLE && status == VRDMA_STATUS_OK)
		return -EIO;
	return 0;
}

static void end_command(struct vrdma_dev *dev, struct vrdma_cmdbuf *cmd)
{
	u16 opcode = le16_to_cpu(cmd->req->opcode);
	int err = 0;
	u32 status;

	if (cmd->used_len < sizeof(*cmd->resp)) {
		err = -EIO;
	} else {
		status = le32_to_cpu(cmd->resp->status);
		if (opcode == VRDMA_CMD_BIND_CHANNEL || opcode == VRDMA_CMD_UNBIND_CHANNEL)
			end_channel(dev, opcode, cmd->req + 1, status);
		else
			err = end_object(dev, cmd, opcode, status);
	}
	vrdma_mem_release(dev, cmd->mem, err);
	cmd->mem = NULL;
	vrdma_cmdbuf_put(cmd);
}

static void abandoned_work(struct work_struct *work)
{
	struct vrdma_dev *dev = container_of(work, struct vrdma_dev, cmdq.abandoned_work);
	struct vrdma_cmdbuf *cmd;

	while ((cmd = vrdma_cmdq_pop_abandoned(&dev->cmdq)))
		end_command(dev, cmd);
}

void vrdma_abandoned_init(struct vrdma_dev *dev)
{
	INIT_WORK(&dev->cmdq.abandoned_work, abandoned_work);
}
