/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_RING_H
#define VRDMA_RING_H

#include "objects.h"
#include "vrdma.h"

struct vrdma_mem *vrdma_ring_alloc(struct vrdma_dev *dev, u32 entries);
struct vrdma_mem *vrdma_ring_pin(struct vrdma_dev *dev, u64 buf, u32 entries, u32 cqe, bool timed);
void vrdma_ring_start(struct vrdma_cq *cq, u32 entries);
struct vrdma_cqe *vrdma_ring_take(struct vrdma_cq *cq);
bool vrdma_ring_ready(struct vrdma_cq *cq);
void vrdma_ring_visit(struct vrdma_cq *cq, void (*fn)(struct vrdma_cqe *cqe, void *arg), void *arg);
void vrdma_ring_publish(struct vrdma_cq *cq);
void vrdma_ring_arm(struct vrdma_cq *cq, bool solicited);
int vrdma_ring_begin_resize(struct vrdma_cq *cq, struct vrdma_mem *mem, u32 entries, u32 *held);
void vrdma_ring_end_resize(struct vrdma_cq *cq);
void vrdma_ring_cancel_resize(struct vrdma_cq *cq);
void vrdma_ring_cleanup(struct vrdma_cq *cq);

#endif /* VRDMA_RING_H */
