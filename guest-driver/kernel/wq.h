/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_WQ_H
#define VRDMA_WQ_H

#include "objects.h"

int vrdma_wq_init(struct vrdma_wq *wq, u32 max);
void vrdma_wq_cleanup(struct vrdma_wq *wq);
bool vrdma_wq_has_room(struct vrdma_wq *wq, u32 count);
void vrdma_wq_posted(struct vrdma_wq *wq, u64 wr_id, u32 count);
bool vrdma_wq_complete(struct vrdma_wq *wq, u32 wqe_id, u64 *wr_id);
bool vrdma_wq_flush(struct vrdma_wq *wq, u64 *wr_id);

#endif /* VRDMA_WQ_H */
