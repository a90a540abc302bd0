/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_CMDEXEC_H
#define VRDMA_CMDEXEC_H

#include "vrdma.h"

struct vrdma_runs;

int vrdma_cmd_exec(struct vrdma_dev *dev, u16 opcode, const void *req, size_t req_len,
		   void *resp, size_t resp_len, struct vrdma_runs *runs, struct vrdma_mem **mem);
int vrdma_cmd_exec_any_length(struct vrdma_dev *dev, u16 opcode, void *resp, size_t resp_len,
			      size_t least);
int vrdma_cmd_exec_pending(struct vrdma_dev *dev, u16 opcode, const void *req, size_t req_len,
			   void *resp, size_t resp_len, struct vrdma_runs *runs,
			   struct vrdma_mem **mem, bool *pending, bool *submitted);
int vrdma_cmd_exec_no_timeout(struct vrdma_dev *dev, u16 opcode, const void *req,
			      size_t req_len, void *resp, size_t resp_len);
void vrdma_cmd_probe(struct vrdma_dev *dev);

#endif /* VRDMA_CMDEXEC_H */
