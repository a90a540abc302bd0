/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A library for LD_PRELOAD before librspreload, for programs that open sockets with SOCK_CLOEXEC
 * and accept connections by accept4, as Python does. librspreload takes the former for an unknown
 * type of socket, and does not intercept the latter. All connections would go by TCP.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <sys/socket.h>

int socket(int domain, int type, int protocol)
{
	static int (*next)(int, int, int);

	if (!next)
		next = (int (*)(int, int, int))dlsym(RTLD_NEXT, "socket");
	if (domain == AF_INET || domain == AF_INET6)
		type &= ~SOCK_CLOEXEC;
	return next(domain, type, protocol);
}

int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
	(void)flags;
	return accept(fd, address, length);
}
