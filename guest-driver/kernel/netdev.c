// SPDX-License-Identifier: GPL-2.0
/*
 * Pairing with the netdev that has the same MAC address. It may come after the device, go
 * before it, and come back; without it the device has no GIDs and its port is down.
 */
#include <linux/etherdevice.h>
#include <linux/netdevice.h>
#include <linux/virtio_config.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>

#include "vrdma.h"

/* Neither sleeps nor asks the device by a command: it may be called under the RTNL. */
static bool link_up(struct vrdma_dev *dev)
{
	u8 link;

	if (READ_ONCE(dev->link) == IB_PORT_DOWN)
		return false;
	virtio_cread_bytes(dev->vdev, offsetof(struct vrdma_config, link), &link, sizeof(link));
	return link == VRDMA_LINK_UP;
}

/**
 * vrdma_port_state() - state of the port
 * @dev: the device
 * @mtu: gets the largest path MTU that the netdev's frames can hold
 */
enum ib_port_state vrdma_port_state(struct vrdma_dev *dev, enum ib_mtu *mtu)
{
	struct net_device *netdev = ib_device_get_netdev(&dev->ibdev, VRDMA_PORT);
	enum ib_port_state state = IB_PORT_DOWN;

	*mtu = IB_MTU_4096;
	if (!netdev)
		return state;
	/* The configuration space of a device that stands still might not be answered for. */
	if (netif_running(netdev) && netif_carrier_ok(netdev) && !vrdma_broken(dev) &&
	    !vrdma_stalled(dev) && link_up(dev))
		state = IB_PORT_ACTIVE;
	*mtu = iboe_get_mtu(netdev->mtu);
	/* Less than the smallest path MTU: nothing can be sent, but ports have to have one. */
	if (!*mtu)
		*mtu = IB_MTU_256;
	dev_put(netdev);
	return state;
}

/**
 * vrdma_phys_state() - physical state of the port
 * @dev: the device
 * @state: its state
 *
 * A port that is up and has no carrier, or whose device has none, looks for one.
 */
u8 vrdma_phys_state(struct vrdma_dev *dev, enum ib_port_state state)
{
	struct net_device *netdev;
	bool up;

	if (state == IB_PORT_ACTIVE)
		return IB_PORT_PHYS_STATE_LINK_UP;
	netdev = ib_device_get_netdev(&dev->ibdev, VRDMA_PORT);
	up = netdev && netif_running(netdev);
	dev_put(netdev);
	return up ? IB_PORT_PHYS_STATE_POLLING : IB_PORT_PHYS_STATE_DISABLED;
}

/**
 * vrdma_port_update() - tell of a change of the port's state, if there is one
 * @dev: the device
 */
void vrdma_port_update(struct vrdma_dev *dev)
{
	struct ib_event event = {
		.device = &dev->ibdev,
		.element.port_num = VRDMA_PORT,
	};
	enum ib_port_state state;
	enum ib_mtu mtu;

	mutex_lock(&dev->netdev_lock);
	state = vrdma_port_state(dev, &mtu);
	/* Before the device is registered there is nobody to tell. */
	if (dev->registered && state != dev->last_state) {
		dev->last_state = state;
		event.event = state == IB_PORT_ACTIVE ? IB_EVENT_PORT_ACTIVE : IB_EVENT_PORT_ERR;
		ib_dispatch_event(&event);
	}
	mutex_unlock(&dev->netdev_lock);
}

/**
 * vrdma_link_event() - the device says how its link is
 * @dev: the device
 * @link: IB_PORT_ACTIVE or IB_PORT_DOWN
 *
 * Each change is told, also one that does not last.
 */
void vrdma_link_event(struct vrdma_dev *dev, enum ib_port_state link)
{
	mutex_lock(&dev->netdev_lock);
	WRITE_ONCE(dev->link, link);
	mutex_unlock(&dev->netdev_lock);
	vrdma_port_update(dev);
}

/* Tells the device what fits the netdev's frames, if it does not know yet. From @config_work. */
void vrdma_mtu_update(struct vrdma_dev *dev)
{
	enum ib_mtu mtu;
	u32 bytes;

	vrdma_port_state(dev, &mtu);
	bytes = min_t(u32, ib_mtu_enum_to_int(mtu), dev->caps.max_mtu);
	/* A device that does not know the command goes by its own MTU. */
	if (bytes != dev->told_mtu && vrdma_cmd_set_port_mtu(dev, bytes) != -EIO)
		dev->told_mtu = bytes;
}

/* Asks how the link is, when the device starts. From then on there are events. */
int vrdma_link_query(struct vrdma_dev *dev)
{
	struct vrdma_query_port_resp resp;
	int err;

	err = vrdma_cmd_query_port(dev, &resp);
	if (err)
		return err;
	dev->port = resp;
	mutex_lock(&dev->netdev_lock);
	/* An event that was faster is newer. */
	if (dev->link == IB_PORT_NOP)
		WRITE_ONCE(dev->link,
			   resp.state == VRDMA_PORT_ACTIVE ? IB_PORT_ACTIVE : IB_PORT_DOWN);
	mutex_unlock(&dev->netdev_lock);
	return 0;
}

/*
 * The netdev of the device's Ethernet function. Others may have the same address: VLANs, IPVLANs,
 * bonds and the like on top of it. They are of no bus and made of other netdevs; their
 * addresses make GIDs all the same, since the core looks at what is on top of a netdev.
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
		if (dev->netdev == netdev) {
			pair(dev, NULL);
			vrdma_port_update(dev);
		}
		break;
	case NETDEV_UP:
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

/* Pairs with the netdev, now if it is there. Before the device is registered. */
int vrdma_netdev_init(struct vrdma_dev *dev)
{
	int err;

	dev->netdev_nb.notifier_call = netdev_event;
	/* Before the core's, which makes GIDs for netdevs that are paired when it looks. */
	dev->netdev_nb.priority = 1;
	err = register_netdevice_notifier(&dev->netdev_nb);
	if (err)
		dev->netdev_nb.notifier_call = NULL;
	return err;
}

/* Is told that every netdev goes, and so unpairs. */
void vrdma_netdev_cleanup(struct vrdma_dev *dev)
{
	if (!dev->netdev_nb.notifier_call)
		return;
	unregister_netdevice_notifier(&dev->netdev_nb);
	dev->netdev_nb.notifier_call = NULL;
}
