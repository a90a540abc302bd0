// SPDX-License-Identifier: GPL-2.0
/*
 * Next hops of iWARP connections.
 *
 * A device with its own TCP has neither routes nor neighbours, and asks the guest for both.
 */
#include <linux/delay.h>
#include <linux/if_ether.h>
#include <linux/if_vlan.h>
#include <linux/inetdevice.h>
#include <net/addrconf.h>
#include <net/inet_ecn.h>
#include <net/ip6_route.h>
#include <net/neighbour.h>
#include <net/route.h>
#include <rdma/iw_cm.h>

#include "cmaddr.h"
#include "cmroute.h"
#include "compat.h"
#include "mac.h"

/*
 * Number of tries for a neighbour entry, and the wait for each in milliseconds. rdma_cm has
 * resolved the neighbour before.
 */
#define NEIGHBOUR_TRIES 50
#define NEIGHBOUR_WAIT_MS 20

/* Looks a route up as rdma_cm does, so that every peer with a route there has one here. */
static struct dst_entry *find_route(const struct vrdma_cm_scope *scope,
				    const struct sockaddr_storage *local,
				    const struct sockaddr_storage *remote)
{
	const struct sockaddr_in6 *from6 = (const struct sockaddr_in6 *)local;
	const struct sockaddr_in6 *to6 = (const struct sockaddr_in6 *)remote;
	const struct sockaddr_in *from = (const struct sockaddr_in *)local;
	const struct sockaddr_in *to = (const struct sockaddr_in *)remote;
	struct flowi6 fl6 = { .flowi6_oif = scope->oif };
	struct flowi4 fl4 = { .flowi4_oif = scope->oif };
	struct rtable *rt;

	if (remote->ss_family == AF_INET6) {
		fl6.saddr = from6->sin6_addr;
		fl6.daddr = to6->sin6_addr;
		if (to6->sin6_scope_id)
			fl6.flowi6_oif = to6->sin6_scope_id;
		return vrdma_ipv6_route(scope->net, &fl6);
	}
	fl4.saddr = from->sin_addr.s_addr;
	fl4.daddr = to->sin_addr.s_addr;
	rt = ip_route_output_key(scope->net, &fl4);
	return IS_ERR(rt) ? ERR_CAST(rt) : &rt->dst;
}

static int find_neighbour(struct dst_entry *dst, const struct sockaddr_storage *remote, u8 *mac)
{
	const struct sockaddr_in6 *to6 = (const struct sockaddr_in6 *)remote;
	const struct sockaddr_in *to = (const struct sockaddr_in *)remote;
	const void *addr = &to->sin_addr;
	struct neighbour *neigh;
	bool known = false;
	int i;

	if (remote->ss_family == AF_INET6)
		addr = &to6->sin6_addr;
	neigh = dst_neigh_lookup(dst, addr);
	if (!neigh)
		return -EHOSTUNREACH;
	for (i = 0; i < NEIGHBOUR_TRIES && !known; i++) {
		known = READ_ONCE(neigh->nud_state) & NUD_VALID;
		if (known) {
			neigh_ha_snapshot((char *)mac, neigh, neigh->dev);
		} else {
			neigh_event_send(neigh, NULL);
			msleep(NEIGHBOUR_WAIT_MS);
		}
	}
	neigh_release(neigh);
	return known ? 0 : -EHOSTUNREACH;
}

/**
 * vrdma_traffic_class() - get the DS field for the packets of a connection
 * @dev: the device
 * @cm_id: identifier whose program may have set a traffic class (rdma_set_option)
 *
 * The two ECN bits are cleared: they belong to TCP, as with Linux sockets.
 *
 * Return: the traffic class; 0 if the program set none, or if the device takes none
 */
u8 vrdma_traffic_class(const struct vrdma_dev *dev, const struct iw_cm_id *cm_id)
{
	if (!cm_id->tos_set || !(dev->caps.device_cap & VRDMA_CAP_CM_TRAFFIC_CLASS))
		return 0;
	return cm_id->tos & ~INET_ECN_MASK;
}

/* Maps @tos by the VLAN netdev's egress map, as rdma_cm does for the service level of RoCE. */
static u8 vlan_priority(struct net_device *vlan, u8 tos)
{
	u16 tci = vlan_dev_get_egress_qos_mask(vlan, rt_tos2priority(tos));

	return (tci & VLAN_PRIO_MASK) >> VLAN_PRIO_SHIFT;
}

/* Writes the next hop to @remote into @req, whose traffic class is already set. May sleep. */
int vrdma_find_next_hop(struct vrdma_dev *dev, const struct vrdma_cm_scope *scope,
			const struct sockaddr_storage *local,
			const struct sockaddr_storage *remote, struct vrdma_cm_connect_req *req)
{
	struct dst_entry *dst = find_route(scope, local, remote);
	int err = 0;

	if (IS_ERR(dst))
		return PTR_ERR(dst);
	if (dst->dev->flags & IFF_LOOPBACK) {
		/* The peer is the guest itself. */
		memcpy(req->next_hop, dev->mac, ETH_ALEN);
	} else if (dst->dev->addr_len != ETH_ALEN) {
		err = -EHOSTUNREACH;
	} else if (!vrdma_has_mac(dev, dst->dev)) {
		err = -EADDRNOTAVAIL;
	} else {
		err = find_neighbour(dst, remote, req->next_hop);
		if (is_vlan_dev(dst->dev)) {
			req->vlan = cpu_to_le16(vlan_dev_vlan_id(dst->dev));
			if (dev->caps.device_cap & VRDMA_CAP_CM_TRAFFIC_CLASS)
				req->priority = vlan_priority(dst->dev, req->traffic_class);
		}
		req->path_mtu = cpu_to_le16(min_t(u32, dst_mtu(dst), U16_MAX));
	}
	dst_release(dst);
	req->flags |= cpu_to_le32(VRDMA_CM_NEXT_HOP);
	return err;
}

/**
 * vrdma_has_address() - whether peers can reach the device by an address
 * @dev: the device
 * @scope: namespace of the address
 * @local: the address; the unspecified address always passes, and does not include addresses that
 *   the device cannot have
 *
 * If the device uses the host's TCP, the host has the address, whatever netdevs the guest has.
 *
 * Return: 0, or -EADDRNOTAVAIL
 */
int vrdma_has_address(struct vrdma_dev *dev, const struct vrdma_cm_scope *scope,
		      const struct sockaddr_storage *local)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)local;
	const struct sockaddr_in *in = (const struct sockaddr_in *)local;
	struct net_device *netdev = NULL;
	bool has = true;

	if (!(dev->caps.device_cap & VRDMA_CAP_NEXT_HOP))
		return 0;
	rcu_read_lock();
	if (local->ss_family == AF_INET6) {
		if (in6->sin6_scope_id)
			netdev = dev_get_by_index_rcu(scope->net, in6->sin6_scope_id);
		else if (!ipv6_addr_any(&in6->sin6_addr))
			netdev = vrdma_ipv6_netdev(scope->net, &in6->sin6_addr);
	} else if (in->sin_addr.s_addr) {
		netdev = __ip_dev_find(scope->net, in->sin_addr.s_addr, false);
	}
	if (netdev && !(netdev->flags & IFF_LOOPBACK) && netdev->addr_len == ETH_ALEN)
		has = vrdma_has_mac(dev, netdev);
	rcu_read_unlock();
	return has ? 0 : -EADDRNOTAVAIL;
}
