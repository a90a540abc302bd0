/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_CMLISTEN_H
#define VRDMA_CMLISTEN_H

#include "vrdma.h"

struct iw_cm_event;
struct iw_cm_id;

int vrdma_iw_create_listen(struct iw_cm_id *cm_id, int backlog);
int vrdma_iw_destroy_listen(struct iw_cm_id *cm_id);
void vrdma_cm_requested(struct vrdma_dev *dev, struct iw_cm_event *event, u32 number, u32 of);

#endif /* VRDMA_CMLISTEN_H */
