/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_CMROUTE_H
#define VRDMA_CMROUTE_H

#include <linux/socket.h>

#include "vrdma.h"

struct iw_cm_id;
struct vrdma_cm_scope;

u8 vrdma_traffic_class(const struct vrdma_dev *dev, const struct iw_cm_id *cm_id);
int vrdma_find_next_hop(struct vrdma_dev *dev, const struct vrdma_cm_scope *scope,
			const struct sockaddr_storage *local,
			const struct sockaddr_storage *remote, struct vrdma_cm_connect_req *req);
int vrdma_has_address(struct vrdma_dev *dev, const struct vrdma_cm_scope *scope,
		      const struct sockaddr_storage *local);

#endif /* VRDMA_CMROUTE_H */
