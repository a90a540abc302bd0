// SPDX-License-Identifier: GPL-2.0
/* The port: its state follows the carrier of the netdev and the link of the device. */
#include <linux/netdevice.h>
#include <linux/virtio_config.h>
#include <rdma/ib_addr.h>

#include "broken.h"
#include "cmds.h"
#include "port.h"

/*
 * Whether the device's link is up. Neither sleeps nor sends a command, because the RTNL may be
 * held.
 */
static bool link_up(struct vrdma_dev *dev)
{
	u8 link;

	if (READ_ONCE(dev->link) == IB_PORT_DOWN)
		return false;
	virtio_cread_bytes(dev->vdev, offsetof(struct vrdma_config, link), &link, sizeof(link));
	return link == VRDMA_LINK_UP;
}

/**
 * vrdma_port_state() - get the state of the port
 * @dev: the device
 * @mtu: becomes the largest path MTU that fits into the netdev's frames
 */
enum ib_port_state vrdma_port_state(struct vrdma_dev *dev, enum ib_mtu *mtu)
{
	struct net_device *netdev = ib_device_get_netdev(&dev->ibdev, VRDMA_PORT);
	enum ib_port_state state = IB_PORT_DOWN;

	*mtu = IB_MTU_4096;
	if (!netdev)
		return state;
	/* A stalled device might not answer a read of its configuration space. */
	if (netif_running(netdev) && netif_carrier_ok(netdev) && !vrdma_broken(dev) &&
	    !vrdma_stalled(dev) && link_up(dev))
		state = IB_PORT_ACTIVE;
	*mtu = iboe_get_mtu(netdev->mtu);
	/*
	 * The netdev's MTU is below the smallest path MTU. Nothing can be sent, but a port needs an
	 * MTU.
	 */
	if (!*mtu)
		*mtu = IB_MTU_256;
	dev_put(netdev);
	return state;
}

/* Sets speed and width for @mbps, or for the next lower rate that exists. */
void vrdma_port_set_speed(struct ib_port_attr *attr, u32 mbps)
{
	static const struct {
		u32 mbps;
		u16 speed;
		u8 width;
	} speeds[] = {
		{ 400000, IB_SPEED_NDR, IB_WIDTH_4X },
		{ 200000, IB_SPEED_HDR, IB_WIDTH_4X },
		{ 100000, IB_SPEED_EDR, IB_WIDTH_4X },
		{ 50000, IB_SPEED_HDR, IB_WIDTH_1X },
		{ 40000, IB_SPEED_QDR, IB_WIDTH_4X },
		{ 25000, IB_SPEED_EDR, IB_WIDTH_1X },
		{ 10000, IB_SPEED_QDR, IB_WIDTH_1X },
		{ 5000, IB_SPEED_DDR, IB_WIDTH_1X },
		{ 0, IB_SPEED_SDR, IB_WIDTH_1X },
	};
	const typeof(speeds[0]) *s = speeds;

	while (s->mbps > mbps)
		s++;
	attr->active_speed = s->speed;
	attr->active_width = s->width;
}

/**
 * vrdma_phys_state() - get the physical state of the port
 * @dev: the device
 * @state: logical state of the port
 *
 * A port that is enabled but has no link is polling for one.
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
 * vrdma_port_update() - dispatch an event if the state of the port has changed
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
	/* Nobody can be told before the device is registered. */
	if (dev->registered && state != dev->last_state) {
		dev->last_state = state;
		if (state != IB_PORT_ACTIVE)
			WRITE_ONCE(dev->link_downed, dev->link_downed + 1);
		event.event = state == IB_PORT_ACTIVE ? IB_EVENT_PORT_ACTIVE : IB_EVENT_PORT_ERR;
		ib_dispatch_event(&event);
	}
	mutex_unlock(&dev->netdev_lock);
}

/**
 * vrdma_link_event() - handle a report of the device that its link has changed
 * @dev: the device
 * @link: IB_PORT_ACTIVE or IB_PORT_DOWN
 *
 * Each change is dispatched, even if it does not last.
 */
void vrdma_link_event(struct vrdma_dev *dev, enum ib_port_state link)
{
	mutex_lock(&dev->netdev_lock);
	WRITE_ONCE(dev->link, link);
	mutex_unlock(&dev->netdev_lock);
	vrdma_port_update(dev);
}

/* Sends the device the path MTU that fits into the netdev's frames, if it has changed. */
static void mtu_update(struct vrdma_dev *dev)
{
	enum ib_mtu mtu;
	u32 bytes;

	vrdma_port_state(dev, &mtu);
	bytes = min_t(u32, ib_mtu_enum_to_int(mtu), dev->caps.max_mtu);
	/* A device without this command uses its own MTU. */
	if (bytes != dev->sent_mtu && vrdma_cmd_set_port_mtu(dev, bytes) != -EIO)
		dev->sent_mtu = bytes;
}

/* Queries the link when the device starts. Later changes come as events. */
int vrdma_link_query(struct vrdma_dev *dev)
{
	struct vrdma_query_port_resp resp;
	int err;

	err = vrdma_cmd_query_port(dev, &resp);
	if (err)
		return err;
	dev->port = resp;
	mutex_lock(&dev->netdev_lock);
	/* If an event came first, it is newer. */
	if (dev->link == IB_PORT_NOP)
		WRITE_ONCE(dev->link,
			   resp.state == VRDMA_PORT_ACTIVE ? IB_PORT_ACTIVE : IB_PORT_DOWN);
	mutex_unlock(&dev->netdev_lock);
	return 0;
}

static void config_work(struct work_struct *work)
{
	struct vrdma_dev *dev = container_of(work, struct vrdma_dev, config_work);

	if (dev->vdev->config->get_status(dev->vdev) & VIRTIO_CONFIG_S_NEEDS_RESET)
		vrdma_set_broken(dev, "it needs a reset");
	vrdma_port_update(dev);
	mtu_update(dev);
}

void vrdma_port_init(struct vrdma_dev *dev)
{
	mutex_init(&dev->netdev_lock);
	dev->last_state = IB_PORT_DOWN;
	INIT_WORK(&dev->config_work, config_work);
}
