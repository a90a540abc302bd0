// SPDX-License-Identifier: GPL-2.0
/*
 * The MAC address of the device.
 *
 * The device sends from the address in its configuration, and receives frames to that address. The
 * netdev and its upper netdevs may have other addresses.
 */
#include <linux/etherdevice.h>

#include "mac.h"

/**
 * vrdma_has_mac() - whether a netdev has the MAC address of the device
 * @dev: the device
 * @netdev: the netdev of the device, or an upper netdev
 *
 * The IP addresses of a netdev with another MAC address cannot be used. Peers would send to that
 * other MAC address, which they learn by ARP and neighbour discovery. This is logged once for each
 * MAC address that a netdev gets.
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

/* Called when the netdev is gone: its ifindex may be given to another one. */
void vrdma_forget_mac(struct vrdma_dev *dev, const struct net_device *netdev)
{
	xa_erase(&dev->told_macs, netdev->ifindex);
}
