/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The device, which every file knows. What else a file may know is in the headers that it
 * includes: those of the floors below it, see README.md.
 */
#ifndef VRDMA_H
#define VRDMA_H

#include <linux/idr.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/virtio.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>

#include "reply.h"
#include "vrdma_abi.h"

#define VRDMA_PORT 1

struct vrdma_channel;
struct vrdma_eq;
struct vrdma_mem;

/**
 * struct vrdma_cmdq - the control queue
 * @vq: the virtqueue
 * @lock: protects @vq and @next_cookie
 * @next_cookie: cookie of the next command
 * @outstanding: commands that the device has (@lock)
 * @deferred: commands that destroy, abandoned before there was room for them (@lock)
 * @abandoned: abandoned commands that have been answered (@lock)
 * @abandoned_work: handles them
 */
struct vrdma_cmdq {
	struct virtqueue *vq;
	spinlock_t lock;
	u64 next_cookie;
	u32 outstanding;
	struct list_head deferred;
	struct list_head abandoned;
	struct work_struct abandoned_work;
};

/**
 * struct vrdma_dev - a device
 * @ibdev: the verbs device
 * @vdev: the virtio device
 * @dma_dev: the device that memory is mapped for; commands carry its bus addresses
 * @wq: for all works
 * @caps: limits
 * @mac: MAC address of the netdev that it belongs to, which its packets have
 * @told_macs: the last other MAC address of each netdev of which the log says so, by ifindex
 * @iwarp: its transport is iWARP, else RoCE
 * @gsi: the device has QP1
 * @registered: verbs events can be dispatched
 * @broken: set for good when the device fails; commands fail from then on
 * @stalled: the device answers nothing for now, and is asked for nothing new
 * @removing: the driver is being removed from the device
 * @is_reset: the device has been reset, and uses no memory any more
 * @wait: woken when a command completes, the device breaks or is reset
 * @answered: commands that the device ever answered (written under the lock of @cmdq)
 * @answered_at_stall: @answered when it stalled
 * @stalled_since: jiffies when it stalled
 * @recover_work: looks whether a stalled device answers again
 * @watch_work: looks whether somebody else has reset the device
 * @fatal_work: reports a broken device
 * @fatal_dispatched: the event has been dispatched (@fatal_work)
 * @config_work: reads the configuration space
 * @netdev_nb: netdevice notifier
 * @netdev_lock: protects @netdev, @link, @last_state and, for writers, @link_downed
 * @netdev: the netdev that it is paired with, for comparison only
 * @link: what the device last said of its link, enum ib_port_state; IB_PORT_NOP if nothing yet
 * @port: what the device said of its port when it started
 * @last_state: port state that was last announced
 * @link_downed: how often it was announced that the port is down
 * @sent_mtu: path MTU that was last sent to the device (@config_work)
 * @cmdq: the control queue
 * @eqs: event queues, the async event queue first
 * @num_eqs: their number
 * @channels: channels, the kernel's first
 * @num_channels: their number
 * @channel_lock: protects the pool of channels
 * @free_channels: channels that no context has
 * @backlog: requests of the kernel that its channel had no room for (lock of that channel)
 * @backlog_in: requests that were ever added to @backlog
 * @backlog_out: requests that were ever removed from it
 * @backlog_work: moves them into the channel
 * @cqs: CQs by number
 * @qps: QPs by number
 * @srqs: SRQs by number
 * @kqp_lock: serialises creation and destruction of the kernel's QPs, whose stale CQEs are
 *            removed from CQs by QPN
 * @ah_mem: the address handle table, or NULL
 * @ah_ida: entries in use
 * @ah_gen: last generation that an entry got
 * @cm_lock: serialises what happens to connections of iWARP
 * @cm_stopped: there are no new connections (@cm_lock)
 * @cm_listeners: listeners by number (@cm_lock)
 * @cm_ends: connections by number (@cm_lock)
 * @cm_requests: connections that iw_cm was asked about, by what it knows them by (@cm_lock)
 * @cm_next_request: where the search for the next of these begins (@cm_lock)
 * @cm_event: what happened last (@cm_event_work)
 * @cm_event_work: fetches what happens to connections
 * @cm_expire_work: gives up connections that wait for too long
 * @dm_lock: protects @dm_bytes and those of the contexts
 * @dm_bytes: device memory that all contexts have
 * @quarantine_lock: protects @quarantine
 * @quarantine: memory of former objects that the device may use until it is reset
 */
struct vrdma_dev {
	struct ib_device ibdev;
	struct virtio_device *vdev;
	struct device *dma_dev;
	struct workqueue_struct *wq;
	struct vrdma_caps caps;
	u8 mac[ETH_ALEN];
	struct xarray told_macs;
	bool iwarp;
	bool gsi;
	bool registered;

	bool broken;
	bool stalled;
	bool removing;
	bool is_reset;
	wait_queue_head_t wait;
	u32 answered;
	u32 answered_at_stall;
	unsigned long stalled_since;
	struct delayed_work recover_work;
	struct delayed_work watch_work;
	struct work_struct fatal_work;
	bool fatal_dispatched;
	struct work_struct config_work;

	struct notifier_block netdev_nb;
	struct mutex netdev_lock;
	struct net_device *netdev;
	enum ib_port_state link;
	struct vrdma_query_port_resp port;
	enum ib_port_state last_state;
	u32 link_downed;
	u32 sent_mtu;

	struct vrdma_cmdq cmdq;
	struct vrdma_eq *eqs;
	unsigned int num_eqs;
	struct vrdma_channel *channels;
	unsigned int num_channels;
	spinlock_t channel_lock;
	struct list_head free_channels;
	struct list_head backlog;
	u32 backlog_in;
	u32 backlog_out;
	struct work_struct backlog_work;

	struct xarray cqs;
	struct xarray qps;
	struct xarray srqs;
	struct mutex kqp_lock;

	struct vrdma_mem *ah_mem;
	struct ida ah_ida;
	atomic_t ah_gen;

	struct mutex cm_lock;
	bool cm_stopped;
	struct xarray cm_listeners;
	struct xarray cm_ends;
	struct xarray cm_requests;
	u32 cm_next_request;
	struct vrdma_cm_event_resp cm_event;
	struct delayed_work cm_event_work;
	struct delayed_work cm_expire_work;

	spinlock_t dm_lock;
	size_t dm_bytes;

	spinlock_t quarantine_lock;
	struct list_head quarantine;
};

static inline struct vrdma_dev *to_vdev(struct ib_device *ibdev)
{
	return container_of(ibdev, struct vrdma_dev, ibdev);
}

#endif /* VRDMA_H */
