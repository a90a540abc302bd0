/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What differs between the kernels that the driver is for: Debian's 6.1, 6.12 and the newest.
 *
 * No other file asks for a version. The other files use the names of Linux 6.12, or those that are
 * defined here. Kbuild finds the changes of which it is unknown in which version they were made
 * (VRDMA_HAS_*).
 */
#ifndef VRDMA_COMPAT_H
#define VRDMA_COMPAT_H

#include <linux/err.h>
#include <linux/net.h>
#include <linux/netdevice.h>
#include <linux/socket.h>
#include <linux/version.h>
#include <linux/virtio_config.h>
#include <linux/workqueue.h>
#include <net/addrconf.h>
#include <net/ipv6.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

#ifndef __counted_by
#define __counted_by(member)
#endif

/* Linux 6.17 names what was the default before, and later wants to be told. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 17, 0)
#define WQ_PERCPU 0
#endif

/* Linux 6.4 has it. */
#ifndef VIRTIO_F_NOTIFICATION_DATA
#define VIRTIO_F_NOTIFICATION_DATA 38
#endif

/*
 * Linux 6.2 has ATOMIC WRITE and FLUSH. The core of older kernels passes the flag and the requests
 * of processes on, but refuses regions with the right to flush. Their users in the kernel have
 * neither.
 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0)
#define IB_DEVICE_ATOMIC_WRITE BIT_ULL(40)
#define IB_DEVICE_FLUSH_GLOBAL 0
#define IB_WC_ATOMIC_WRITE 9
#define IB_WR_ATOMIC_WRITE 15
#endif

/* Linux 6.11 describes each virtqueue by a structure, which older kernels have as two arrays. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
static inline int vrdma_find_vqs(struct virtio_device *vdev, unsigned int num,
				 struct virtqueue *vqs[], struct virtqueue_info info[])
{
	return virtio_find_vqs(vdev, num, vqs, info, NULL);
}
#else
struct virtqueue_info {
	const char *name;
	vq_callback_t *callback;
};

static inline int vrdma_find_vqs(struct virtio_device *vdev, unsigned int num,
				 struct virtqueue *vqs[], struct virtqueue_info info[])
{
	vq_callback_t **callbacks = kcalloc(num, sizeof(*callbacks), GFP_KERNEL);
	const char **names = kcalloc(num, sizeof(*names), GFP_KERNEL);
	int err = -ENOMEM;
	unsigned int i;

	if (callbacks && names) {
		for (i = 0; i < num; i++) {
			callbacks[i] = info[i].callback;
			names[i] = info[i].name;
		}
		err = virtio_find_vqs(vdev, num, vqs, callbacks, names, NULL);
	}
	kfree(names);
	kfree(callbacks);
	return err;
}
#endif

/* The last parameter of create_cq() is a struct vrdma_cq_attrs; NULL if the kernel is the user. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
#define vrdma_cq_attrs uverbs_attr_bundle

static inline struct ib_udata *vrdma_cq_udata(struct vrdma_cq_attrs *attrs)
{
	return attrs ? &attrs->driver_udata : NULL;
}
#else
#define vrdma_cq_attrs ib_udata

static inline struct ib_udata *vrdma_cq_udata(struct vrdma_cq_attrs *attrs)
{
	return attrs;
}
#endif

/* CQs of processes have an own method where the core tells them apart from those of the kernel. */
#ifdef VRDMA_HAS_CREATE_USER_CQ
#define VRDMA_CREATE_CQ_OPS(method) .create_cq = method, .create_user_cq = method
#else
#define VRDMA_CREATE_CQ_OPS(method) .create_cq = method
#endif

/* CQs of the kernel are not resized where the method is for processes only. */
#ifdef VRDMA_HAS_RESIZE_USER_CQ
#define VRDMA_RESIZE_CQ_OP(method) .resize_user_cq = method
#define VRDMA_RESIZE_CQ_ENTRIES unsigned int
#else
#define VRDMA_RESIZE_CQ_OP(method) .resize_cq = method
#define VRDMA_RESIZE_CQ_ENTRIES int
#endif

/* A DMA handle is NULL for a device that makes none, as this one. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
#define VRDMA_DMAH_PARAM struct ib_dmah *dmah,
#else
#define VRDMA_DMAH_PARAM
#endif

static inline struct ib_umem *vrdma_umem_get(struct ib_device *ibdev, u64 addr, u64 len, int access)
{
#ifdef VRDMA_HAS_UMEM_GET_VA
	return ib_umem_get_va(ibdev, addr, len, access);
#else
	return ib_umem_get(ibdev, addr, len, access);
#endif
}

/*
 * Older kernels have it, and do not export it. A netdev is freed after all readers of RCU who may
 * have found it as a port's, because it first leaves the port.
 */
#ifndef VRDMA_HAS_GET_NETDEV
static inline struct net_device *ib_device_get_netdev(struct ib_device *ibdev, u32 port)
{
	struct net_device *netdev = NULL;

	rcu_read_lock();
	if (ibdev->port_data)
		netdev = rcu_dereference(ibdev->port_data[port].netdev);
	if (netdev && netdev->reg_state != NETREG_REGISTERED)
		netdev = NULL;
	dev_hold(netdev);
	rcu_read_unlock();
	return netdev;
}
#endif

/* Updates of Linux 6.12 have it. */
#ifndef VRDMA_HAS_UMEM_CHECK_REREG
static inline int ib_umem_check_rereg(struct ib_umem *umem, int flags, int access)
{
	bool writes = flags & IB_MR_REREG_ACCESS && ib_access_writable(access);

	return writes && umem && !umem->writable ? -EPERM : 0;
}
#endif

/* kernel_bind() with an address of any family. */
static inline int vrdma_bind(struct socket *socket, const struct sockaddr_storage *at, int len)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 19, 0)
	return kernel_bind(socket, (struct sockaddr_unsized *)at, len);
#else
	return kernel_bind(socket, (struct sockaddr *)at, len);
#endif
}

/* Newer kernels have IPv6 in the kernel itself, or not at all. */
#ifdef VRDMA_HAS_IPV6_STUB
static inline struct dst_entry *vrdma_ipv6_route(struct net *net, struct flowi6 *fl6)
{
	return ipv6_stub->ipv6_dst_lookup_flow(net, NULL, fl6, NULL);
}

static inline struct net_device *vrdma_ipv6_netdev(struct net *net, const struct in6_addr *addr)
{
	return ipv6_stub->ipv6_dev_find(net, addr, NULL);
}
#elif IS_ENABLED(CONFIG_IPV6)
static inline struct dst_entry *vrdma_ipv6_route(struct net *net, struct flowi6 *fl6)
{
	return ip6_dst_lookup_flow(net, NULL, fl6, NULL);
}

static inline struct net_device *vrdma_ipv6_netdev(struct net *net, const struct in6_addr *addr)
{
	return ipv6_dev_find(net, addr, NULL);
}
#else
static inline struct dst_entry *vrdma_ipv6_route(struct net *net, struct flowi6 *fl6)
{
	return ERR_PTR(-EAFNOSUPPORT);
}

static inline struct net_device *vrdma_ipv6_netdev(struct net *net, const struct in6_addr *addr)
{
	return NULL;
}
#endif

#endif /* VRDMA_COMPAT_H */
