/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_KCHANNEL_H
#define VRDMA_KCHANNEL_H

#include "vrdma.h"

struct vrdma_qp;
struct vrdma_uctx;

void vrdma_backlog_init(struct vrdma_dev *dev);
void vrdma_backlog_cleanup(struct vrdma_dev *dev);
void vrdma_backlog_wait(struct vrdma_dev *dev);
void vrdma_backlog_drop_qp(struct vrdma_dev *dev, struct vrdma_qp *qp);
void vrdma_kernel_drain(struct vrdma_dev *dev);
int vrdma_kernel_post(struct vrdma_dev *dev, struct vrdma_qp *qp, const void *wqe,
		      unsigned int units);
int vrdma_user_post(struct vrdma_dev *dev, struct vrdma_uctx *uctx, const void *buf,
		    unsigned int units);

#endif /* VRDMA_KCHANNEL_H */
