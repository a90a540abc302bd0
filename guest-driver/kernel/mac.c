// SPDX-License-Identifier: GPL-2.0
/*
 * Whose MAC address the device has: it sends from that of its configuration, and takes what
 * comes to that, while the netdev and its upper netdevs may have others.
 */
#include <linux/etherdevice.h>

#include "mac.h"

/**
 * vrdma_has_mac() - whether the MAC address of a netdev is the device's
 * @dev: the device
 * @netdev: its netdev, or one on top of it
 *
 * Of one that is not no address may be used: peers would send to the other MAC address, which
 * ARP and neighbour discovery tell them. The log says so once for each MAC address that a netdev
 * gets.
 */
bool vrdma_has_mac(struct vrdma_dev *dev, const struct net_device *netdev)
{
	const u8 *mac = netdev->dev_addr;
	void *told = xa_mk_value(ether_addr_to_u64(mac) & LONG_MAX);

	if (ether_addr_equal_unaligned(mac, dev->mac))
		return true;
	if (xa_store(&dev->told_macs, netdev->ifindex, told, GFP_ATOMIC) != told)
		dev_warn(&dev->vdev->dev,
			 "no RDMA by addresses of %s: its MAC address is %pM, the device's is %pM (an extra-mac is for Ethernet alone)\n",
			 netdev->name, mac, dev->mac);
	return false;
}

/* The netdev is gone; its number may be another's. */
void vrdma_forget_mac(struct vrdma_dev *dev, const struct net_device *netdev)
{
	xa_erase(&dev->told_macs, netdev->ifindex);
}
