// SPDX-License-Identifier: GPL-2.0
/* Addresses of iWARP connections, and the reservation of their TCP ports in the guest. */
#include <linux/in6.h>
#include <linux/net.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include <net/sock.h>
#include <rdma/iw_cm.h>
#include <rdma/rdma_cm.h>

#include "cmaddr.h"
#include "compat.h"

/* Writes an address in the form of the ABI: IPv6, or IPv4 mapped to IPv6. */
void vrdma_put_address(const struct sockaddr_storage *from, u8 *addr, __le16 *port)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)from;
	const struct sockaddr_in *in = (const struct sockaddr_in *)from;
	struct in6_addr mapped;

	if (from->ss_family == AF_INET6) {
		memcpy(addr, &in6->sin6_addr, sizeof(in6->sin6_addr));
		*port = cpu_to_le16(ntohs(in6->sin6_port));
		return;
	}
	/* An unspecified address is all zero in both families. */
	if (in->sin_addr.s_addr) {
		ipv6_addr_set_v4mapped(in->sin_addr.s_addr, &mapped);
		memcpy(addr, &mapped, sizeof(mapped));
	}
	*port = cpu_to_le16(ntohs(in->sin_port));
}

/* Returns the TCP port of an address, in the byte order of the CPU. */
u16 vrdma_port(const struct sockaddr_storage *of)
{
	if (of->ss_family == AF_INET6)
		return ntohs(((const struct sockaddr_in6 *)of)->sin6_port);
	return ntohs(((const struct sockaddr_in *)of)->sin_port);
}

/* Reads an address in the form of the ABI. */
void vrdma_get_address(struct sockaddr_storage *to, const u8 *addr, __le16 port)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)to;
	struct sockaddr_in *in = (struct sockaddr_in *)to;
	struct in6_addr from;

	memcpy(&from, addr, sizeof(from));
	memset(to, 0, sizeof(*to));
	if (ipv6_addr_v4mapped(&from)) {
		in->sin_family = AF_INET;
		in->sin_addr.s_addr = from.s6_addr32[3];
		in->sin_port = htons(le16_to_cpu(port));
	} else {
		in6->sin6_family = AF_INET6;
		in6->sin6_addr = from;
		in6->sin6_port = htons(le16_to_cpu(port));
	}
}

/*
 * Returns the network namespace and the interface of an identifier.
 *
 * rdma_cm is iw_cm's only user. The context of its iw_cm identifiers is its own identifier, which
 * knows the network namespace of its creator. The caller may have another namespace, if a work item
 * of the kernel connects.
 */
struct vrdma_cm_scope vrdma_scope_of(const struct iw_cm_id *cm_id)
{
	struct rdma_cm_id *id = cm_id->context;
	struct vrdma_cm_scope scope = { .net = &init_net };

	if (id && !WARN_ON_ONCE(rdma_iw_cm_id(id) != cm_id)) {
		scope.net = id->route.addr.dev_addr.net;
		scope.oif = id->route.addr.dev_addr.bound_dev_if;
	}
	return scope;
}

/* Keeps programs of the guest from binding a port that the device uses in the namespace @net. */
int vrdma_reserve_port(struct net *net, const struct sockaddr_storage *at, struct socket **port)
{
	size_t len = at->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) :
						 sizeof(struct sockaddr_in);
	int err;

	if (at->ss_family != AF_INET && at->ss_family != AF_INET6)
		return -EAFNOSUPPORT;
	err = sock_create_kern(net, at->ss_family, SOCK_STREAM, IPPROTO_TCP, port);
	if (err)
		return err;
	/* A kernel socket does not hold a reference to its namespace. */
	get_net(net);
	err = vrdma_bind(*port, at, len);
	if (err) {
		vrdma_release_port(*port);
		*port = NULL;
	}
	return err;
}

/* Releases a reserved port. */
void vrdma_release_port(struct socket *port)
{
	struct net *net = sock_net(port->sk);

	sock_release(port);
	put_net(net);
}
