/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_CM_H
#define VRDMA_CM_H

#include "vrdma.h"

struct iw_cm_conn_param;
struct iw_cm_id;

void vrdma_cm_init(struct vrdma_dev *dev);
void vrdma_cm_events(struct vrdma_dev *dev);
void vrdma_cm_fail(struct vrdma_dev *dev);
void vrdma_cm_cleanup(struct vrdma_dev *dev);

struct ib_qp *vrdma_iw_get_qp(struct ib_device *ibdev, int qpn);
void vrdma_iw_add_ref(struct ib_qp *ibqp);
void vrdma_iw_rem_ref(struct ib_qp *ibqp);
int vrdma_iw_connect(struct iw_cm_id *cm_id, struct iw_cm_conn_param *param);
int vrdma_iw_accept(struct iw_cm_id *cm_id, struct iw_cm_conn_param *param);
int vrdma_iw_reject(struct iw_cm_id *cm_id, const void *data, u8 len);
int vrdma_iw_create_listen(struct iw_cm_id *cm_id, int backlog);
int vrdma_iw_destroy_listen(struct iw_cm_id *cm_id);

#endif /* VRDMA_CM_H */
