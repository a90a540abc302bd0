// SPDX-License-Identifier: GPL-2.0
/* The verbs of the GID table: the addresses of the device. */
#include <rdma/ib_cache.h>

#include "cmds.h"
#include "gid.h"
#include "mac.h"
#include "objects.h"

/* Whether the netdev of this GID has the MAC address of the device, so that peers can reach it. */
static bool can_be_reached(const struct ib_gid_attr *attr)
{
	const struct net_device *netdev;
	bool can;

	rcu_read_lock();
	netdev = rcu_dereference(attr->ndev);
	can = netdev && vrdma_has_mac(to_vdev(attr->device), netdev);
	rcu_read_unlock();
	return can;
}

int vrdma_add_gid(const struct ib_gid_attr *attr, void **context)
{
	u16 vlan;
	int err;

	err = rdma_read_gid_l2_fields(attr, &vlan, NULL);
	if (err)
		return err;
	if (!can_be_reached(attr))
		return -EADDRNOTAVAIL;
	return vrdma_cmd_add_gid(to_vdev(attr->device), attr->index, &attr->gid, vlan);
}

int vrdma_del_gid(const struct ib_gid_attr *attr, void **context)
{
	return vrdma_cmd_del_gid(to_vdev(attr->device), attr->index);
}
