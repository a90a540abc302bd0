/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_CMDBUF_H
#define VRDMA_CMDBUF_H

#include <linux/list.h>
#include <linux/refcount.h>
#include <linux/scatterlist.h>

#include "vrdma.h"

struct vrdma_runs;

/**
 * struct vrdma_cmdbuf - a command, its answer, and their memory
 * @node: node in a list of &struct vrdma_cmdq
 * @ref: references of the caller, and of the queue until the device has answered or was reset
 * @done: the device has answered; read it by vrdma_cmdbuf_done()
 * @abandoned: the caller does not wait any more (lock of the queue)
 * @mem: memory of the object that an abandoned command creates or destroys, or NULL
 * @used_len: number of bytes of the answer
 * @cookie: number that the answer has to repeat
 * @req: the request
 * @resp: the answer
 * @runs: extents that belong to the request, or NULL
 * @out: @req and @runs, which the device reads
 * @in: @resp, which the device writes
 */
struct vrdma_cmdbuf {
	struct list_head node;
	refcount_t ref;
	bool done;
	bool abandoned;
	struct vrdma_mem *mem;
	unsigned int used_len;
	u64 cookie;
	struct vrdma_cmd_req *req;
	struct vrdma_cmd_resp *resp;
	struct vrdma_runs *runs;
	struct sg_table out;
	struct scatterlist in;
};

/* Whether the device has answered. If so, the answer may be read. */
static inline bool vrdma_cmdbuf_done(const struct vrdma_cmdbuf *cmd)
{
	/* Pairs with the release in vrdma_cmdq_drain(). */
	return smp_load_acquire(&cmd->done);
}

bool vrdma_opcode_destroys(u16 opcode);
u16 vrdma_opcode_inverse(u16 opcode);
struct vrdma_cmdbuf *vrdma_cmdbuf_alloc(u16 opcode, const void *req, size_t req_len,
					size_t resp_len, struct vrdma_runs *runs);
void vrdma_cmdbuf_put(struct vrdma_cmdbuf *cmd);

#endif /* VRDMA_CMDBUF_H */
