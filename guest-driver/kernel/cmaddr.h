/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_CMADDR_H
#define VRDMA_CMADDR_H

#include <linux/socket.h>
#include <linux/types.h>

struct socket;

void vrdma_put_address(const struct sockaddr_storage *from, u8 *addr, __le16 *port);
void vrdma_get_address(struct sockaddr_storage *to, const u8 *addr, __le16 port);
u16 vrdma_port(const struct sockaddr_storage *of);
int vrdma_reserve_port(const struct sockaddr_storage *at, struct socket **port);

#endif /* VRDMA_CMADDR_H */
