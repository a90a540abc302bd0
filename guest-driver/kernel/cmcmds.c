// SPDX-License-Identifier: GPL-2.0
/* The commands about iWARP connections, one function each. */
#include "cmcmds.h"
#include "cmdexec.h"

int vrdma_cmd_cm_listen(struct vrdma_dev *dev, const struct vrdma_cm_listen_req *req,
			u32 *listener)
{
	struct vrdma_cmd cmd = VRDMA_COMMAND(VRDMA_CMD_CM_LISTEN, req);

	return vrdma_cmd_create(dev, &cmd, listener);
}

int vrdma_cmd_cm_close_listener(struct vrdma_dev *dev, u32 listener)
{
	return vrdma_cmd_on(dev, VRDMA_CMD_CM_CLOSE_LISTENER, listener, NULL);
}

int vrdma_cmd_cm_connect(struct vrdma_dev *dev, const struct vrdma_cm_connect_req *req,
			 u32 *connection)
{
	struct vrdma_cmd cmd = VRDMA_COMMAND(VRDMA_CMD_CM_CONNECT, req);

	return vrdma_cmd_create(dev, &cmd, connection);
}

int vrdma_cmd_cm_accept(struct vrdma_dev *dev, const struct vrdma_cm_accept_req *req)
{
	struct vrdma_cmd cmd = VRDMA_COMMAND(VRDMA_CMD_CM_ACCEPT, req);

	return vrdma_cmd_exec(dev, &cmd, NULL);
}

/* @pending becomes true if the device did not answer, and will execute the command later. */
int vrdma_cmd_cm_reject(struct vrdma_dev *dev, const struct vrdma_cm_reject_req *req,
			bool *pending)
{
	struct vrdma_cmd cmd = VRDMA_COMMAND(VRDMA_CMD_CM_REJECT, req);
	struct vrdma_cmd_result result = {};
	int err;

	err = vrdma_cmd_exec(dev, &cmd, &result);
	*pending = result.pending;
	return err;
}

int vrdma_cmd_cm_disconnect(struct vrdma_dev *dev, u32 qpn)
{
	return vrdma_cmd_on(dev, VRDMA_CMD_CM_DISCONNECT, qpn, NULL);
}

int vrdma_cmd_cm_release(struct vrdma_dev *dev, u32 connection)
{
	return vrdma_cmd_on(dev, VRDMA_CMD_CM_RELEASE, connection, NULL);
}

/* Has no timeout: an event that nobody waits for would be lost. */
int vrdma_cmd_cm_get_event(struct vrdma_dev *dev, struct vrdma_cm_event_resp *event)
{
	struct vrdma_cmd cmd = { .opcode = VRDMA_CMD_CM_GET_EVENT, .no_timeout = true };
	struct vrdma_cmd_result result = VRDMA_REPLY(event);

	return vrdma_cmd_exec(dev, &cmd, &result);
}
