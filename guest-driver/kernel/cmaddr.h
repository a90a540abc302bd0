/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_CMADDR_H
#define VRDMA_CMADDR_H

#include <linux/socket.h>
#include <linux/types.h>

struct iw_cm_id;
struct socket;

/**
 * struct vrdma_cm_scope - where addresses and routes of an iw_cm identifier are looked up
 * @net: network namespace of the identifier, which lives as long as the identifier
 * @oif: index of the interface that the identifier is bound to, or 0
 */
struct vrdma_cm_scope {
	struct net *net;
	int oif;
};

void vrdma_put_address(const struct sockaddr_storage *from, u8 *addr, __le16 *port);
void vrdma_get_address(struct sockaddr_storage *to, const u8 *addr, __le16 port);
u16 vrdma_port(const struct sockaddr_storage *of);
struct vrdma_cm_scope vrdma_scope_of(const struct iw_cm_id *cm_id);
int vrdma_reserve_port(struct net *net, const struct sockaddr_storage *at, struct socket **port);
void vrdma_release_port(struct socket *port);

#endif /* VRDMA_CMADDR_H */
