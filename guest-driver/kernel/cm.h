/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_CM_H
#define VRDMA_CM_H

#include "vrdma.h"

struct iw_cm_conn_param;
struct iw_cm_id;
struct vrdma_qp;

void vrdma_cm_init(struct vrdma_dev *dev);
void vrdma_cm_events(struct vrdma_dev *dev);
void vrdma_cm_qp_ended(struct vrdma_dev *dev, struct vrdma_qp *qp);
void vrdma_cm_fail(struct vrdma_dev *dev);
void vrdma_cm_stop(struct vrdma_dev *dev);
void vrdma_cm_cancel(struct vrdma_dev *dev);
void vrdma_cm_cleanup(struct vrdma_dev *dev);

int vrdma_iw_connect(struct iw_cm_id *cm_id, struct iw_cm_conn_param *param);
int vrdma_iw_accept(struct iw_cm_id *cm_id, struct iw_cm_conn_param *param);
int vrdma_iw_reject(struct iw_cm_id *cm_id, const void *data, u8 len);

#endif /* VRDMA_CM_H */
