/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_MAC_H
#define VRDMA_MAC_H

#include <linux/netdevice.h>

#include "vrdma.h"

bool vrdma_has_mac(struct vrdma_dev *dev, const struct net_device *netdev);
void vrdma_forget_mac(struct vrdma_dev *dev, const struct net_device *netdev);

#endif /* VRDMA_MAC_H */
