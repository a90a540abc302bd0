/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_SLOTS_H
#define VRDMA_SLOTS_H

#include "objects.h"

int vrdma_slots_init(struct vrdma_slots *slots, u32 max);
void vrdma_slots_cleanup(struct vrdma_slots *slots);
int vrdma_slots_grow(struct vrdma_slots *slots, u32 num);
void vrdma_slots_limit(struct vrdma_slots *slots, u32 max);
bool vrdma_slots_take(struct vrdma_slots *slots, u64 wr_id, u32 *index);
bool vrdma_slots_complete(struct vrdma_slots *slots, u32 index, u64 *wr_id);

#endif /* VRDMA_SLOTS_H */
