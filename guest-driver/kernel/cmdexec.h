/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_CMDEXEC_H
#define VRDMA_CMDEXEC_H

#include "vrdma.h"

struct vrdma_runs;

/**
 * struct vrdma_cmd - a command for the device
 * @opcode: opcode of the command
 * @req: request structure, or NULL
 * @req_len: length of @req
 * @runs: extents that belong to the command, or NULL
 * @mem: memory of the object that the command creates or destroys, or NULL. Becomes NULL if the
 *   command is abandoned: then the memory is freed after the device has answered.
 * @no_timeout: wait until the device has answered, has been reset, or is broken and not stalled. It
 *   is for objects whose buffers belong to other users of the kernel, so that the driver cannot
 *   keep them. It is also for answers that must not be lost.
 */
struct vrdma_cmd {
	u16 opcode;
	const void *req;
	size_t req_len;
	struct vrdma_runs *runs;
	struct vrdma_mem **mem;
	bool no_timeout;
};

/**
 * struct vrdma_cmd_result - the result of a command
 * @resp: buffer for the reply of a successful command, or NULL
 * @resp_len: length of @resp
 * @added: bytes at the end of @resp that older devices do not write; then they are zero
 * @submitted: the command was given to the device
 * @pending: the command was abandoned: the device did not answer, and may still execute it
 */
struct vrdma_cmd_result {
	void *resp;
	size_t resp_len;
	size_t added;
	bool submitted;
	bool pending;
};

/* A command with a request structure. */
#define VRDMA_COMMAND(op, request) \
	{ .opcode = (op), .req = (request), .req_len = sizeof(*(request)) }

/* A buffer for a reply structure. */
#define VRDMA_REPLY(response) { .resp = (response), .resp_len = sizeof(*(response)) }

int vrdma_cmd_exec(struct vrdma_dev *dev, const struct vrdma_cmd *cmd,
		   struct vrdma_cmd_result *result);
int vrdma_cmd_on(struct vrdma_dev *dev, u16 opcode, u32 object, struct vrdma_mem **mem);
int vrdma_cmd_create(struct vrdma_dev *dev, const struct vrdma_cmd *cmd, u32 *object);
void vrdma_cmd_probe(struct vrdma_dev *dev);

#endif /* VRDMA_CMDEXEC_H */
