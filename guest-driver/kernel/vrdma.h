/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of the driver know of each other. Layers, from the top:
 *
 *	main.c, netdev.c	life of the device, pairing with the netdev
 *	verbs.c, uctx.c, cq.c,	the verbs; post.c is the data path of the kernel's
 *	qp.c, post.c, mr.c,	own QPs (processes have theirs in user space)
 *	ah.c
 *	event.c			event queues -> CQ, QP, port and device events
 *	cmds.c			one function a command
 *	cmdq.c, channel.c,	mechanics: control queue, channels, posting through the
 *	kchannel.c, doorbell.c,	kernel's, doorbells, memory that the device may touch
 *	mem.c
 */
#ifndef VRDMA_H
#define VRDMA_H

#include <linux/completion.h>
#include <linux/idr.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/scatterlist.h>
#include <linux/spinlock.h>
#include <linux/virtio.h>
#include <linux/virtio_ring.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

#include "vrdma_abi.h"

#define VRDMA_PORT 1

struct ib_umem;
struct vrdma_dev;
struct vrdma_uctx;

/**
 * struct vrdma_mem - memory of an object that the device may touch
 * @node: in &vrdma_dev.limbo, if the device may still touch it after the object is gone
 * @umem: pinned memory of a process, or NULL
 * @vaddr: memory of the kernel, or NULL
 * @dma: bus address of @vaddr, if it is in one piece
 * @sgt: the pages of @vaddr, if it is in pages
 * @size: bytes at @vaddr
 */
struct vrdma_mem {
	struct list_head node;
	struct ib_umem *umem;
	void *vaddr;
	dma_addr_t dma;
	struct sg_table sgt;
	size_t size;
};

/**
 * struct vrdma_runs - list of memory runs for a command
 * @nr: number of runs
 * @per_chunk: number of runs in each chunk but the last
 * @nr_chunks: number of chunks
 * @chunk: the runs; in pieces, since a long list is more than kmalloc gives readily
 */
struct vrdma_runs {
	u32 nr;
	u32 per_chunk;
	u32 nr_chunks;
	struct vrdma_run *chunk[] __counted_by(nr_chunks);
};

/**
 * struct vrdma_cmdq - the control queue
 * @vq: the virtqueue
 * @lock: protects @vq and @next_cookie
 * @wait: woken when a command completes or the device breaks
 * @next_cookie: cookie of the next command
 * @outstanding: commands that the device has (@lock)
 * @answered: how many it ever answered
 * @deferred: commands that destroy, given up by their callers before there was room for them
 *            (@lock)
 * @orphans: commands that were answered after their callers had given them up (@lock)
 * @orphan_work: ends them
 */
struct vrdma_cmdq {
	struct virtqueue *vq;
	spinlock_t lock;
	wait_queue_head_t wait;
	u64 next_cookie;
	u32 outstanding;
	u32 answered;
	struct list_head deferred;
	struct list_head orphans;
	struct work_struct orphan_work;
};

/**
 * struct vrdma_eq - an event queue
 * @dev: the device
 * @vq: the virtqueue
 * @lock: protects @vq
 * @bufs: the buffers, all of which belong to the device between interrupts
 * @num: number of buffers
 * @work: handles events that are not for interrupt context, or too many for it
 */
struct vrdma_eq {
	struct vrdma_dev *dev;
	struct virtqueue *vq;
	spinlock_t lock;
	struct vrdma_event *bufs;
	unsigned int num;
	struct work_struct work;
};

/**
 * struct vrdma_channel - a virtqueue of work requests
 * @dev: the device
 * @vq: the virtqueue, of which only notify is used: the rings are written here, or by a process
 * @vring: its rings
 * @num: entries
 * @slots: memory of the slots
 * @rings: first of the pages with the available and the used ring
 * @rings_len: length of these pages
 * @mappable: no part of the descriptor table is in these pages, and they can be mapped
 * @doorbell: address of the doorbell, or 0
 * @lock: protects the rings and @avail_idx of the kernel's channel
 * @avail_idx: the kernel's channel: entries made available
 * @free: in &vrdma_dev.free_channels
 * @owner: the context that has it, or NULL (&vrdma_dev.channel_lock)
 * @refs: the owner and its mappings (&vrdma_dev.channel_lock)
 * @lost: the device did not say that it is not bound, and may still read it
 *        (&vrdma_dev.channel_lock)
 */
struct vrdma_channel {
	struct vrdma_dev *dev;
	struct virtqueue *vq;
	const struct vring *vring;
	u16 num;
	struct vrdma_mem *slots;
	void *rings;
	u32 rings_len;
	bool mappable;
	phys_addr_t doorbell;
	spinlock_t lock;
	u16 avail_idx;
	struct list_head free;
	struct vrdma_uctx *owner;
	unsigned int refs;
	bool lost;
};

/**
 * struct vrdma_caps - what the device can do, from QUERY_DEVICE and the configuration space
 */
struct vrdma_caps {
	u64 fw_version;
	__be64 sys_image_guid;
	u64 max_mr_size;
	u32 max_mr_runs;
	u32 max_pd;
	u32 max_cq;
	u32 max_cqe;
	u32 max_mr;
	u32 max_qp;
	u32 max_qp_wr;
	u32 max_send_sge;
	u32 max_recv_sge;
	u32 max_inline;
	u32 max_rd_atomic;
	u32 max_dest_rd_atomic;
	u32 max_ah;
	u32 atomic_cap;
	u32 max_wqe_units;
	u32 max_mtu;
};

/**
 * struct vrdma_dev - a device
 * @ibdev: the verbs device
 * @vdev: the virtio device
 * @dma_dev: the device by which the memory is mapped: bus addresses are what goes into commands
 * @caps: limits
 * @mac: MAC address of the netdev that it belongs to
 * @gsi: the device has QP1
 * @registered: verbs events can be dispatched
 * @broken: latched when the device fails; commands fail from then on
 * @stalled: the device answers nothing for now; little is asked of it until it does again
 * @leaving: the driver is being removed from the device
 * @answered_then: &vrdma_cmdq.answered when it stalled
 * @is_reset: it stood still, and has been reset: it uses no memory any more
 * @stalled_since: jiffies when it stalled
 * @recover_work: looks whether a device that stalled goes on
 * @wq: events and the like
 * @fatal_work: tells everybody of @broken
 * @fatal_told: has dispatched the event (@fatal_work)
 * @config_work: looks at the configuration space
 * @netdev_nb: netdevice notifier
 * @netdev_lock: protects @netdev, @link and @last_state
 * @netdev: the netdev that it is paired with, for comparison only
 * @link: what the device last said of its link, enum ib_port_state; IB_PORT_NOP if nothing yet
 * @port: what the device said of its port when it started
 * @last_state: port state that was last announced
 * @told_mtu: path MTU that the device was last told of (@config_work)
 * @cmdq: the control queue
 * @eqs: event queues, the async event queue first
 * @num_eqs: their number
 * @channels: channels, the kernel's first
 * @num_channels: their number
 * @channel_lock: protects the pool of channels
 * @free_channels: channels that no context has
 * @backlog: requests of the kernel that its channel had no room for (lock of that channel)
 * @backlog_in: how many ever came into @backlog
 * @backlog_out: how many ever left it
 * @backlog_work: moves them
 * @cqs: CQs by number
 * @qps: QPs by number
 * @kqp_lock: serialises creation and destruction of the kernel's QPs, whose stale CQEs are
 *            removed from CQs by QPN
 * @ah_mem: the address handle table, or NULL
 * @ah_ida: entries in use
 * @ah_gen: last generation that an entry got
 * @limbo_lock: protects @limbo
 * @limbo: memory that the device may touch until it is reset
 */
struct vrdma_dev {
	struct ib_device ibdev;
	struct virtio_device *vdev;
	struct device *dma_dev;
	struct vrdma_caps caps;
	u8 mac[ETH_ALEN];
	bool gsi;
	bool registered;
	bool broken;
	bool stalled;
	bool leaving;
	bool is_reset;
	u32 answered_then;
	unsigned long stalled_since;
	struct delayed_work recover_work;

	struct workqueue_struct *wq;
	struct work_struct fatal_work;
	bool fatal_told;
	struct work_struct config_work;

	struct notifier_block netdev_nb;
	struct mutex netdev_lock;
	struct net_device *netdev;
	enum ib_port_state link;
	struct vrdma_query_port_resp port;
	enum ib_port_state last_state;
	u32 told_mtu;

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
	struct mutex kqp_lock;

	struct vrdma_mem *ah_mem;
	struct ida ah_ida;
	atomic_t ah_gen;

	spinlock_t limbo_lock;
	struct list_head limbo;
};

struct vrdma_mmap_entry {
	struct rdma_user_mmap_entry rdma;
	struct vrdma_channel *chan;
	unsigned long pfn;
	bool io;
};

struct vrdma_uctx {
	struct ib_ucontext ibuctx;
	u32 context;
	struct vrdma_channel *chan;
	struct vrdma_mmap_entry *rings;
	struct vrdma_mmap_entry *slots;
	struct vrdma_mmap_entry *doorbell;
};

struct vrdma_pd {
	struct ib_pd ibpd;
	u32 pdn;
};

/**
 * struct vrdma_cq - a completion queue
 * @ibcq: the verbs object
 * @cqn: its number
 * @ref: event handlers, and the owner
 * @unused: completed when @ref drops to 0
 * @mem: ring and record
 * @lock: the kernel's CQs: protects what follows
 * @ring: the kernel's CQs: the ring, otherwise NULL
 * @rec: the kernel's CQs: the shared words
 * @entries: size of the ring
 * @consumer: CQEs consumed
 * @armed: somebody has asked for an event at least once
 */
struct vrdma_cq {
	struct ib_cq ibcq;
	u32 cqn;
	refcount_t ref;
	struct completion unused;
	struct vrdma_mem *mem;
	spinlock_t lock;
	struct vrdma_cqe *ring;
	struct vrdma_cq_record *rec;
	u32 entries;
	u32 consumer;
	bool armed;
};

/**
 * struct vrdma_wq - one direction of a kernel QP
 * @lock: serialises posting
 * @wr_id: wr_id of each outstanding request
 * @mask: size of @wr_id - 1
 * @max: most requests outstanding
 * @head: requests posted
 * @tail: requests that completed; written under the lock of the CQ
 */
struct vrdma_wq {
	spinlock_t lock;
	u64 *wr_id;
	u32 mask;
	u32 max;
	u32 head;
	u32 tail;
};

/**
 * struct vrdma_qp - a queue pair
 * @ibqp: the verbs object
 * @uctx: the context that has it, or NULL if the kernel has it
 * @ref: event handlers, and the owner
 * @unused: completed when @ref drops to 0
 * @cap: capabilities
 * @sig_all: each send makes a CQE
 * @via_kernel: requests for it went through the kernel's channel (lock of that channel)
 * @sq: the kernel's QPs: sends
 * @rq: the kernel's QPs: receives
 */
struct vrdma_qp {
	struct ib_qp ibqp;
	struct vrdma_uctx *uctx;
	refcount_t ref;
	struct completion unused;
	struct ib_qp_cap cap;
	bool sig_all;
	bool via_kernel;
	struct vrdma_wq sq;
	struct vrdma_wq rq;
};

struct vrdma_mr {
	struct ib_mr ibmr;
	struct vrdma_mem *mem;
};

struct vrdma_ah {
	struct ib_ah ibah;
	u32 index;
};

#define VRDMA_CONVERT(to, from, member)						\
	static inline struct vrdma_##to *to_v##to(struct ib_##from *obj)	\
	{									\
		return container_of(obj, struct vrdma_##to, member);		\
	}

VRDMA_CONVERT(dev, device, ibdev)
VRDMA_CONVERT(uctx, ucontext, ibuctx)
VRDMA_CONVERT(pd, pd, ibpd)
VRDMA_CONVERT(cq, cq, ibcq)
VRDMA_CONVERT(qp, qp, ibqp)
VRDMA_CONVERT(mr, mr, ibmr)
VRDMA_CONVERT(ah, ah, ibah)

static inline bool vrdma_broken(const struct vrdma_dev *dev)
{
	return READ_ONCE(dev->broken);
}

/* Such a device is not given up so soon: it may be its host that has no time for it. */
static inline bool vrdma_stalled(const struct vrdma_dev *dev)
{
	return READ_ONCE(dev->stalled);
}

/*
 * It stands still, and may use memory that it has been given when it goes on, even if it was
 * given up meanwhile.
 */
static inline bool vrdma_may_go_on(const struct vrdma_dev *dev)
{
	return vrdma_stalled(dev) && !READ_ONCE(dev->is_reset);
}

/*
 * What was stored before is visible to the device before anything is read after. Not virt_mb():
 * that is a locked instruction on x86, which QEMU's TCG makes a plain one in a VM with a single
 * processor, and then a kick, an interrupt or an event is lost. mb() is a fence everywhere.
 */
static inline void vrdma_mb(void)
{
	mb(); /* See above. */
}

/* virtqueue_kick_prepare() and virtqueue_enable_cb() have no such barrier of their own. */
static inline bool vrdma_kick_prepare(struct virtqueue *vq)
{
	vrdma_mb();
	return virtqueue_kick_prepare(vq);
}

static inline bool vrdma_enable_cb(struct virtqueue *vq)
{
	unsigned int last = virtqueue_enable_cb_prepare(vq);

	vrdma_mb();
	return !virtqueue_poll(vq, last);
}

/* Context number of an object: that of @uctx, or the kernel's. */
static inline u32 vrdma_context(const struct vrdma_uctx *uctx)
{
	return uctx ? uctx->context : VRDMA_KERNEL_CONTEXT;
}

/* main.c */
void vrdma_set_broken(struct vrdma_dev *dev, const char *why);
void vrdma_set_stalled(struct vrdma_dev *dev, const char *why);

/* netdev.c */
int vrdma_netdev_init(struct vrdma_dev *dev);
void vrdma_netdev_cleanup(struct vrdma_dev *dev);
enum ib_port_state vrdma_port_state(struct vrdma_dev *dev, enum ib_mtu *mtu);
u8 vrdma_phys_state(struct vrdma_dev *dev, enum ib_port_state state);
void vrdma_port_update(struct vrdma_dev *dev);
void vrdma_link_event(struct vrdma_dev *dev, enum ib_port_state link);
int vrdma_link_query(struct vrdma_dev *dev);
void vrdma_mtu_update(struct vrdma_dev *dev);

/* verbs.c */
void vrdma_verbs_init(struct vrdma_dev *dev);

/* uctx.c */
extern const struct uapi_definition vrdma_uapi_defs[];
int vrdma_alloc_ucontext(struct ib_ucontext *ibuctx, struct ib_udata *udata);
void vrdma_dealloc_ucontext(struct ib_ucontext *ibuctx);
int vrdma_mmap(struct ib_ucontext *ibuctx, struct vm_area_struct *vma);
void vrdma_mmap_free(struct rdma_user_mmap_entry *rdma);
void vrdma_disassociate_ucontext(struct ib_ucontext *ibuctx);

/* cmdq.c */
void vrdma_cmdq_init(struct vrdma_cmdq *q);
void vrdma_cmdq_cleanup(struct vrdma_dev *dev);
void vrdma_cmdq_probe(struct vrdma_dev *dev);
void vrdma_cmdq_interrupt(struct virtqueue *vq);
int vrdma_cmdq_exec(struct vrdma_dev *dev, u16 opcode, const void *req, size_t req_len,
		    void *resp, size_t resp_len, struct vrdma_runs *runs, struct vrdma_mem **mem);
int vrdma_cmdq_exec_left(struct vrdma_dev *dev, u16 opcode, const void *req, size_t req_len,
			 struct vrdma_runs *runs, bool *left);
int vrdma_cmdq_exec_patient(struct vrdma_dev *dev, u16 opcode, const void *req, size_t req_len);

/* cmds.c */
int vrdma_cmd_query_device(struct vrdma_dev *dev, struct vrdma_caps *caps);
int vrdma_cmd_query_port(struct vrdma_dev *dev, struct vrdma_query_port_resp *resp);
int vrdma_cmd_set_port_mtu(struct vrdma_dev *dev, u32 mtu);
int vrdma_cmd_add_gid(struct vrdma_dev *dev, u32 index, const union ib_gid *gid, u16 vlan);
int vrdma_cmd_del_gid(struct vrdma_dev *dev, u32 index);
int vrdma_cmd_alloc_context(struct vrdma_dev *dev, u32 *context);
int vrdma_cmd_dealloc_context(struct vrdma_dev *dev, u32 context);
int vrdma_cmd_bind_channel(struct vrdma_dev *dev, u32 context, u16 queue,
			   struct vrdma_runs *runs, bool *left);
int vrdma_cmd_unbind_channel(struct vrdma_dev *dev, u16 queue);
int vrdma_cmd_alloc_pd(struct vrdma_dev *dev, u32 context, u32 *pdn);
int vrdma_cmd_dealloc_pd(struct vrdma_dev *dev, u32 pdn);
int vrdma_cmd_create_cq(struct vrdma_dev *dev, u32 context, u32 entries, u32 vector,
			struct vrdma_runs *runs, u32 *cqn, struct vrdma_mem **mem);
int vrdma_cmd_destroy_cq(struct vrdma_dev *dev, u32 cqn, struct vrdma_mem **mem);
int vrdma_cmd_reg_mr(struct vrdma_dev *dev, struct vrdma_reg_mr_req *req,
		     struct vrdma_runs *runs, struct ib_mr *ibmr, struct vrdma_mem **mem);
int vrdma_cmd_dereg_mr(struct vrdma_dev *dev, u32 lkey, struct vrdma_mem **mem);
int vrdma_cmd_get_dma_mr(struct vrdma_dev *dev, u32 pdn, u32 access, struct ib_mr *ibmr);
int vrdma_cmd_create_qp(struct vrdma_dev *dev, const struct vrdma_create_qp_req *req, u32 *qpn);
int vrdma_cmd_modify_qp(struct vrdma_dev *dev, const struct vrdma_modify_qp_req *req);
int vrdma_cmd_modify_qp_patient(struct vrdma_dev *dev, const struct vrdma_modify_qp_req *req);
int vrdma_cmd_query_qp(struct vrdma_dev *dev, u32 qpn, struct vrdma_qp_attr *attr);
int vrdma_cmd_destroy_qp(struct vrdma_dev *dev, u32 qpn);
int vrdma_cmd_destroy_qp_patient(struct vrdma_dev *dev, u32 qpn);
int vrdma_cmd_set_ah_table(struct vrdma_dev *dev, u32 entries, struct vrdma_runs *runs,
			   struct vrdma_mem **mem);

/* channel.c */
int vrdma_channels_init(struct vrdma_dev *dev, struct virtqueue *vqs[], unsigned int num);
void vrdma_channels_cleanup(struct vrdma_dev *dev);
int vrdma_channel_bind(struct vrdma_channel *chan, u32 context, bool *left);
struct vrdma_channel *vrdma_channel_get_free(struct vrdma_dev *dev, struct vrdma_uctx *owner);
void vrdma_channel_hold(struct vrdma_channel *chan);
void vrdma_channel_put(struct vrdma_channel *chan);
void vrdma_channel_found(struct vrdma_dev *dev, u32 queue);

/* kchannel.c */
void vrdma_backlog_init(struct vrdma_dev *dev);
void vrdma_backlog_cleanup(struct vrdma_dev *dev);
void vrdma_backlog_wait(struct vrdma_dev *dev);
void vrdma_backlog_forget_qp(struct vrdma_dev *dev, struct vrdma_qp *qp);
void vrdma_channel_drain(struct vrdma_dev *dev);
int vrdma_kernel_post(struct vrdma_dev *dev, struct vrdma_qp *qp, const void *wqe,
		      unsigned int units);
int vrdma_user_post(struct vrdma_dev *dev, struct vrdma_uctx *uctx, const void *buf,
		    unsigned int units);

/* doorbell.c */
void vrdma_doorbells_find(struct vrdma_dev *dev);

/* event.c */
int vrdma_eqs_init(struct vrdma_dev *dev, struct virtqueue *vqs[], unsigned int num);
int vrdma_eqs_fill(struct vrdma_dev *dev);
void vrdma_eqs_cancel(struct vrdma_dev *dev);
void vrdma_eqs_cleanup(struct vrdma_dev *dev);
void vrdma_async_interrupt(struct virtqueue *vq);
void vrdma_comp_interrupt(struct virtqueue *vq);

/* mem.c */
struct vrdma_mem *vrdma_mem_alloc(struct vrdma_dev *dev, size_t size, gfp_t gfp);
struct vrdma_mem *vrdma_mem_alloc_pages(struct vrdma_dev *dev, size_t size);
struct vrdma_mem *vrdma_mem_pin(struct vrdma_dev *dev, u64 addr, u64 len, int access);
struct vrdma_runs *vrdma_mem_runs(struct vrdma_dev *dev, const struct vrdma_mem *mem);
void vrdma_runs_free(struct vrdma_runs *runs);
void vrdma_mem_free(struct vrdma_dev *dev, struct vrdma_mem *mem);
void vrdma_mem_release(struct vrdma_dev *dev, struct vrdma_mem *mem, int err);
void vrdma_limbo_cleanup(struct vrdma_dev *dev);

/* mr.c */
int vrdma_check_access(int access);

/* cq.c */
struct vrdma_cq *vrdma_cq_get(struct vrdma_dev *dev, u32 cqn);
void vrdma_cq_put(struct vrdma_cq *cq);
int vrdma_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		    struct uverbs_attr_bundle *attrs);
int vrdma_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata);
int vrdma_poll_cq(struct ib_cq *ibcq, int num, struct ib_wc *wc);
int vrdma_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags);
void vrdma_cq_forget_qp(struct vrdma_cq *cq, u32 qpn);
void vrdma_cqs_flush(struct vrdma_dev *dev);

/* qp.c */
struct vrdma_qp *vrdma_qp_get(struct vrdma_dev *dev, u32 qpn);
void vrdma_qp_put(struct vrdma_qp *qp);
int vrdma_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *attr, struct ib_udata *udata);
int vrdma_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		    struct ib_udata *udata);
int vrdma_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		   struct ib_qp_init_attr *init_attr);
int vrdma_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata);
bool vrdma_probe_gsi(struct vrdma_dev *dev);

/* post.c */
int vrdma_wq_init(struct vrdma_wq *wq, u32 max);
void vrdma_wq_cleanup(struct vrdma_wq *wq);
bool vrdma_wq_complete(struct vrdma_wq *wq, u32 wqe_id, u64 *wr_id);
bool vrdma_wq_flush(struct vrdma_wq *wq, u64 *wr_id);
int vrdma_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
		    const struct ib_send_wr **bad_wr);
int vrdma_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
		    const struct ib_recv_wr **bad_wr);

/* mr.c */
struct ib_mr *vrdma_get_dma_mr(struct ib_pd *ibpd, int access);
struct ib_mr *vrdma_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length, u64 virt_addr,
				int access, struct ib_udata *udata);
int vrdma_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata);

/* ah.c */
u32 vrdma_ah_reserved(const struct vrdma_dev *dev);
int vrdma_ah_init(struct vrdma_dev *dev);
void vrdma_ah_cleanup(struct vrdma_dev *dev);
int vrdma_create_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *attr, struct ib_udata *udata);
int vrdma_destroy_ah(struct ib_ah *ibah, u32 flags);

#endif /* VRDMA_H */
