/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_KCHANNEL_H
#define VRDMA_KCHANNEL_H

#include "vrdma.h"

struct vrdma_target;
struct vrdma_uctx;

void vrdma_backlog_init(struct vrdma_dev *dev);
void vrdma_backlog_cleanup(struct vrdma_dev *dev);
void vrdma_backlog_wait(struct vrdma_dev *dev);
void vrdma_kernel_settle(struct vrdma_dev *dev, struct vrdma_target *target);
int vrdma_kernel_post(struct vrdma_dev *dev, struct vrdma_target *target, const void *wqe,
		      unsigned int units);
int vrdma_user_post(struct vrdma_dev *dev, struct vrdma_uctx *uctx, const void *buf,
		    unsigned int units);

#endif /* VRDMA_KCHANNEL_H */
