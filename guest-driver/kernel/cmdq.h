/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_CMDQ_H
#define VRDMA_CMDQ_H

#include "vrdma.h"

struct vrdma_cmdbuf;

void vrdma_cmdq_init(struct vrdma_cmdq *q);
void vrdma_cmdq_cleanup(struct vrdma_dev *dev);
void vrdma_cmdq_interrupt(struct virtqueue *vq);
int vrdma_cmdq_submit(struct vrdma_cmdq *q, struct vrdma_cmdbuf *cmd);
void vrdma_cmdq_drain(struct vrdma_dev *dev);
bool vrdma_cmdq_abandon(struct vrdma_cmdq *q, struct vrdma_cmdbuf *cmd, bool submitted,
			struct vrdma_mem **mem);
struct vrdma_cmdbuf *vrdma_cmdq_pop_abandoned(struct vrdma_cmdq *q);

#endif /* VRDMA_CMDQ_H */
