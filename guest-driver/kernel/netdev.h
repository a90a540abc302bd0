/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_NETDEV_H
#define VRDMA_NETDEV_H

#include "vrdma.h"

int vrdma_netdev_init(struct vrdma_dev *dev);
void vrdma_netdev_cleanup(struct vrdma_dev *dev);

#endif /* VRDMA_NETDEV_H */
