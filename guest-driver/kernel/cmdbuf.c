// SPDX-License-Identifier: GPL-2.0
/*
 * One command: its opcode and its buffers.
 *
 * The buffers have two owners: the caller, and the control queue until the device has answered or
 * was reset. So a caller that times out never frees a buffer that the device may still write.
 */
#include <linux/slab.h>

#include "cmdbuf.h"
#include "runs.h"

/**
 * vrdma_opcode_destroys() - whether a command destroys or releases what another command made
 * @opcode: the command
 *
 * Such a command is never dropped. A stalled device executes it when it resumes.
 */
bool vrdma_opcode_destroys(u16 opcode)
{
	switch (opcode) {
	case VRDMA_CMD_DEL_GID:
	case VRDMA_CMD_DEALLOC_CONTEXT:
	case VRDMA_CMD_UNBIND_CHANNEL:
	case VRDMA_CMD_DEALLOC_PD:
	case VRDMA_CMD_DEALLOC_XRCD:
	case VRDMA_CMD_DESTROY_CQ:
	case VRDMA_CMD_DEREG_MR:
	case VRDMA_CMD_DEALLOC_MW:
	case VRDMA_CMD_DESTROY_QP:
	case VRDMA_CMD_DESTROY_SRQ:
	case VRDMA_CMD_DETACH_MCAST:
	case VRDMA_CMD_CM_CLOSE_LISTENER:
	case VRDMA_CMD_CM_RELEASE:
		return true;
	default:
		return false;
	}
}

/* Returns the command that destroys what @opcode creates, or 0 if there is none. */
u16 vrdma_opcode_inverse(u16 opcode)
{
	switch (opcode) {
	case VRDMA_CMD_ALLOC_CONTEXT:
		return VRDMA_CMD_DEALLOC_CONTEXT;
	case VRDMA_CMD_ALLOC_PD:
		return VRDMA_CMD_DEALLOC_PD;
	case VRDMA_CMD_ALLOC_XRCD:
		return VRDMA_CMD_DEALLOC_XRCD;
	case VRDMA_CMD_CREATE_CQ:
		return VRDMA_CMD_DESTROY_CQ;
	case VRDMA_CMD_REG_MR:
	case VRDMA_CMD_GET_DMA_MR:
	case VRDMA_CMD_ALLOC_FAST_MR:
		return VRDMA_CMD_DEREG_MR;
	case VRDMA_CMD_ALLOC_MW:
		return VRDMA_CMD_DEALLOC_MW;
	case VRDMA_CMD_CREATE_QP:
		return VRDMA_CMD_DESTROY_QP;
	case VRDMA_CMD_CREATE_SRQ:
		return VRDMA_CMD_DESTROY_SRQ;
	case VRDMA_CMD_CM_LISTEN:
		return VRDMA_CMD_CM_CLOSE_LISTENER;
	case VRDMA_CMD_CM_CONNECT:
		return VRDMA_CMD_CM_RELEASE;
	default:
		return 0;
	}
}

void vrdma_cmdbuf_put(struct vrdma_cmdbuf *cmd)
{
	if (!refcount_dec_and_test(&cmd->ref))
		return;
	sg_free_table(&cmd->out);
	vrdma_runs_free(cmd->runs);
	kfree(cmd->resp);
	kfree(cmd->req);
	kfree(cmd);
}

/**
 * vrdma_cmdbuf_alloc() - make a command
 * @opcode: the command
 * @req: request structure, or NULL
 * @req_len: length of @req
 * @resp_len: length of the reply, without the header
 * @runs: extents that belong to the command, or NULL; taken over, also on failure
 *
 * Return: the command, with one reference; NULL if there is no memory. A command that destroys
 * never fails for lack of memory.
 */
struct vrdma_cmdbuf *vrdma_cmdbuf_alloc(u16 opcode, const void *req, size_t req_len,
					size_t resp_len, struct vrdma_runs *runs)
{
	/* The caller of a command that destroys has no way to handle a failure. */
	gfp_t gfp = vrdma_opcode_destroys(opcode) ? GFP_KERNEL | __GFP_NOFAIL : GFP_KERNEL;
	u32 i, chunks = runs ? runs->nr_chunks : 0;
	struct scatterlist *sg;
	struct vrdma_cmdbuf *cmd;
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
		vrdma_cmdbuf_put(cmd);
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
