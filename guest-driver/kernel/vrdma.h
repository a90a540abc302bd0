/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The device structure, which every file of the driver knows.
 *
 * A file includes the headers of lower floors only. README.md lists the floors.
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

#include "compat.h"
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
 * @outstanding: number of commands that the device has not answered yet (@lock)
 * @deferred: destroying commands that were abandoned while the queue had no room (@lock)
 * @abandoned: abandoned commands that the device has answered (@lock)
 * @abandoned_work: handles the commands in @abandoned
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
 * @wq: workqueue for all work items of the device
 * @caps: limits and functions of the device
 * @mac: permanent MAC address of the paired netdev; the device's packets carry it
 * @told_macs: for each netdev, by ifindex: the last other MAC address that was logged
 * @iwarp: the transport is iWARP; if false, RoCE
 * @gsi: the device has QP1
 * @registered: verbs events can be dispatched
 * @broken: the device has failed; never cleared, and all later commands fail
 * @stalled: the device does not answer at present, and gets no new commands
 * @removing: the driver is being removed from the device
 * @is_reset: the device has been reset, and uses no memory any more
 * @wait: woken when a command completes, and when the device breaks or is reset
 * @answered: number of commands answered so far (written under the lock of @cmdq)
 * @answered_at_stall: @answered when the device stalled
 * @stalled_since: jiffies when the device stalled
 * @recover_work: checks whether a stalled device answers again
 * @watch_work: checks whether somebody else has reset the device
 * @fatal_work: reports a broken device
 * @fatal_dispatched: the fatal event has been dispatched (@fatal_work)
 * @config_work: reads the configuration space
 * @netdev_nb: netdevice notifier
 * @netdev_lock: protects @netdev, @link, @last_state and, for writers, @link_downed
 * @netdev: the paired netdev; the pointer is compared, and never followed
 * @link: link state that the device last reported, enum ib_port_state; IB_PORT_NOP if none yet
 * @port: reply of QUERY_PORT at the start of the device
 * @last_state: port state that was last announced
 * @link_downed: how often the port was announced to be down
 * @sent_mtu: path MTU that was last sent to the device (@config_work)
 * @cmdq: the control queue
 * @eqs: event queues, the async event queue first
 * @num_eqs: number of @eqs
 * @channels: channels, the kernel's first
 * @num_channels: number of @channels
 * @channel_lock: protects the pool of channels
 * @free_channels: channels that no context has
 * @backlog: kernel requests that found no room in the kernel's channel (lock of that channel)
 * @backlog_in: number of requests ever added to @backlog
 * @backlog_out: number of requests ever removed from @backlog
 * @backlog_work: moves requests from @backlog into the channel
 * @cqs: CQs by number
 * @qps: QPs by number
 * @srqs: SRQs by number
 * @kqp_lock: serialises creation and destruction of the kernel's QPs, because stale CQEs of a QP
 *   are removed from CQs by QPN
 * @ah_mem: the address handle table, or NULL
 * @ah_ida: entries of the table in use
 * @ah_gen: last generation number given to an entry
 * @cm_lock: serialises the handling of iWARP connections
 * @cm_stopped: no new connections are allowed (@cm_lock)
 * @cm_listeners: listeners by number (@cm_lock)
 * @cm_ends: connections by number (@cm_lock)
 * @cm_requests: incoming connections reported to iw_cm, by the number that iw_cm uses (@cm_lock)
 * @cm_next_request: where the search for the next free number begins (@cm_lock)
 * @cm_event: connection event that was fetched last (@cm_event_work)
 * @cm_event_work: fetches connection events from the device
 * @cm_expire_work: gives up connections that wait for too long
 * @dm_lock: protects @dm_bytes and &vrdma_uctx.dm_bytes
 * @dm_bytes: bytes of device memory that all contexts have
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
