/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_CMCMDS_H
#define VRDMA_CMCMDS_H

#include "vrdma.h"

int vrdma_cmd_cm_listen(struct vrdma_dev *dev, const struct vrdma_cm_listen_req *req,
			u32 *listener);
int vrdma_cmd_cm_close_listener(struct vrdma_dev *dev, u32 listener);
int vrdma_cmd_cm_connect(struct vrdma_dev *dev, const struct vrdma_cm_connect_req *req,
			 u32 *connection);
int vrdma_cmd_cm_accept(struct vrdma_dev *dev, const struct vrdma_cm_accept_req *req);
int vrdma_cmd_cm_reject(struct vrdma_dev *dev, const struct vrdma_cm_reject_req *req,
			bool *pending);
int vrdma_cmd_cm_disconnect(struct vrdma_dev *dev, u32 qpn);
int vrdma_cmd_cm_release(struct vrdma_dev *dev, u32 connection);
int vrdma_cmd_cm_get_event(struct vrdma_dev *dev, struct vrdma_cm_event_resp *event);

#endif /* VRDMA_CMCMDS_H */
