/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_AH_H
#define VRDMA_AH_H

#include "vrdma.h"

u32 vrdma_ah_reserved(const struct vrdma_dev *dev);
int vrdma_ah_init(struct vrdma_dev *dev);
void vrdma_ah_cleanup(struct vrdma_dev *dev);
int vrdma_create_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *attr, struct ib_udata *udata);
int vrdma_destroy_ah(struct ib_ah *ibah, u32 flags);

#endif /* VRDMA_AH_H */
