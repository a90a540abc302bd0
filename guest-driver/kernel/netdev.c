// SPDX-License-Identifier: GPL-2.0
/*
 * Pairing with the netdev that has the same MAC address.
 *
 * The netdev may appear after the device, disappear before it, and come back. Without it the device
 * has no GIDs, and its port is down.
 */
#include <linux/etherdevice.h>
#include <linux/netdevice.h>

#include "mac.h"
#include "netdev.h"
#include "port.h"

/*
 * Whether @netdev is the netdev of the device's Ethernet function.
 *
 * Other netdevs on top of it may have the same address, for example VLANs, IPVLANs and bonds. They
 * have no parent on a bus, or have lower netdevs. Their addresses become GIDs nevertheless, because
 * the core also asks for those of upper netdevs.
 */
static bool is_our_netdev(struct vrdma_dev *dev, const struct net_device *netdev)
{
	return netdev->type == ARPHRD_ETHER && netdev->addr_len == ETH_ALEN &&
	       ether_addr_equal_unaligned(netdev->perm_addr, dev->mac) &&
	       netdev->dev.parent && list_empty(&netdev->adj_list.lower) &&
	       !netif_is_failover(netdev);
}

static void pair(struct vrdma_dev *dev, struct net_device *netdev)
{
	int err;

	err = ib_device_set_netdev(&dev->ibdev, netdev, VRDMA_PORT);
	if (err) {
		dev_warn(&dev->vdev->dev, "pairing with a netdev failed: %d\n", err);
		return;
	}
	dev->netdev = netdev;
	if (netdev)
		strscpy(dev->ibdev.iw_ifname, netdev->name, sizeof(dev->ibdev.iw_ifname));
}

/*
 * Logs that a netdev with another MAC address cannot be used, if its addresses would be the
 * device's.
 */
static void tell_other_mac(struct vrdma_dev *dev, struct net_device *netdev)
{
	if (dev->netdev == netdev ||
	    (dev->iwarp && dev->netdev && netdev_has_upper_dev(dev->netdev, netdev)))
		vrdma_has_mac(dev, netdev);
}

static int netdev_event(struct notifier_block *nb, unsigned long event, void *info)
{
	struct vrdma_dev *dev = container_of(nb, struct vrdma_dev, netdev_nb);
	struct net_device *netdev = netdev_notifier_info_to_dev(info);

	switch (event) {
	case NETDEV_REGISTER:
		if (!dev->netdev && is_our_netdev(dev, netdev)) {
			pair(dev, netdev);
			vrdma_port_update(dev);
			queue_work(dev->wq, &dev->config_work);
		}
		break;
	case NETDEV_UNREGISTER:
		vrdma_forget_mac(dev, netdev);
		if (dev->netdev == netdev) {
			pair(dev, NULL);
			vrdma_port_update(dev);
		}
		break;
	case NETDEV_CHANGEADDR:
		/*
		 * For RoCE, the core adds all GIDs again. Each of these calls checks the MAC
		 * address, and logs a wrong one. A device of iWARP has no such GIDs.
		 */
		tell_other_mac(dev, netdev);
		break;
	case NETDEV_UP:
		tell_other_mac(dev, netdev);
		/* A deleted bond restores the MTU of its ports without an MTU event. */
		if (dev->netdev == netdev)
			queue_work(dev->wq, &dev->config_work);
		fallthrough;
	case NETDEV_DOWN:
	case NETDEV_CHANGE:
		if (dev->netdev == netdev)
			vrdma_port_update(dev);
		break;
	case NETDEV_CHANGEMTU:
		if (dev->netdev == netdev)
			queue_work(dev->wq, &dev->config_work);
		break;
	}
	return NOTIFY_DONE;
}

/* Pairs with the netdev, immediately if it is there. Called before the device is registered. */
int vrdma_netdev_init(struct vrdma_dev *dev)
{
	int err;

	dev->netdev_nb.notifier_call = netdev_event;
	/*
	 * Runs before the core's notifier, which adds GIDs only for netdevs that are paired
	 * already.
	 */
	dev->netdev_nb.priority = 1;
	err = register_netdevice_notifier(&dev->netdev_nb);
	if (err)
		dev->netdev_nb.notifier_call = NULL;
	return err;
}

/* Unregistering reports each netdev as gone, which ends the pairing. */
void vrdma_netdev_cleanup(struct vrdma_dev *dev)
{
	if (!dev->netdev_nb.notifier_call)
		return;
	unregister_netdevice_notifier(&dev->netdev_nb);
	dev->netdev_nb.notifier_call = NULL;
}
