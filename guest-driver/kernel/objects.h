/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The verbs objects. Their types are known on all floors that handle requests and completions;
 * their verbs are in cq.h, qp.h and the like.
 */
#ifndef VRDMA_OBJECTS_H
#define VRDMA_OBJECTS_H

#include <linux/completion.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/spinlock.h>
#include <rdma/ib_verbs.h>

#include "umap.h"
#include "vrdma_abi.h"

struct vrdma_channel;
struct vrdma_end;
struct vrdma_mem;

/**
 * struct vrdma_uctx - context of a process
 * @ibuctx: the verbs object
 * @context: its number
 * @chan: its channel, or NULL
 * @rings: mapping of the available and the used ring of @chan
 * @slots: mapping of the slots of @chan
 * @doorbell: mapping of the doorbell of @chan, or NULL
 * @dm_bytes: device memory that it has (@dm_lock of the device)
 */
struct vrdma_uctx {
	struct ib_ucontext ibuctx;
	u32 context;
	struct vrdma_channel *chan;
	struct vrdma_umap *rings;
	struct vrdma_umap *slots;
	struct vrdma_umap *doorbell;
	size_t dm_bytes;
};

struct vrdma_pd {
	struct ib_pd ibpd;
	u32 pdn;
};

/**
 * struct vrdma_cq_ring - a ring of CQEs in memory of the kernel
 * @cqe: the CQEs; NULL if there is no such ring
 * @rec: the shared words
 * @entries: number of CQEs, a power of two
 */
struct vrdma_cq_ring {
	struct vrdma_cqe *cqe;
	struct vrdma_cq_record *rec;
	u32 entries;
};

/**
 * struct vrdma_cq - a completion queue
 * @ibcq: the verbs object
 * @cqn: its number
 * @ref: event handlers, and the owner
 * @unused: completed when @ref drops to 0
 * @timed: CQEs have a time stamp
 * @resize_lock: serialises resizing, protects @mem and @next_mem
 * @mem: ring and record
 * @next_mem: those of a resize that is under way, or that the device did not answer; or NULL
 * @lock: the kernel's CQs: protects what follows
 * @ring: the kernel's CQs: the ring
 * @next: the kernel's CQs: the ring that it goes on in when the device does
 * @consumer: CQEs consumed of @ring
 * @held: CQEs that were left in former rings
 * @held_first: the first of those that were not taken
 * @held_end: their end
 * @armed: an event has been requested at least once
 */
struct vrdma_cq {
	struct ib_cq ibcq;
	u32 cqn;
	refcount_t ref;
	struct completion unused;
	bool timed;
	struct mutex resize_lock;
	struct vrdma_mem *mem;
	struct vrdma_mem *next_mem;
	spinlock_t lock;
	struct vrdma_cq_ring ring;
	struct vrdma_cq_ring next;
	u32 consumer;
	struct vrdma_cqe *held;
	u32 held_first;
	u32 held_end;
	bool armed;
};

/**
 * struct vrdma_request - an outstanding request of a kernel QP
 * @wr_id: its wr_id
 * @continues: the next one belongs to it
 */
struct vrdma_request {
	u64 wr_id;
	bool continues;
};

/**
 * struct vrdma_wq - one direction of a kernel QP
 * @lock: serialises posting
 * @requests: those that are outstanding
 * @mask: size of @requests - 1
 * @max: most requests outstanding
 * @head: requests posted
 * @tail: requests that completed; written under the lock of the CQ
 */
struct vrdma_wq {
	spinlock_t lock;
	struct vrdma_request *requests;
	u32 mask;
	u32 max;
	u32 head;
	u32 tail;
};

/**
 * struct vrdma_target - what requests are posted to: a QP or an SRQ
 * @via_kernel: requests for it went through the kernel's channel (lock of that channel)
 */
struct vrdma_target {
	bool via_kernel;
};

/**
 * struct vrdma_qp - a queue pair
 * @ibqp: the verbs object
 * @uctx: the context that has it, or NULL if the kernel has it
 * @ref: event handlers, and the owner
 * @unused: completed when @ref drops to 0
 * @cap: capabilities
 * @sig_all: each send makes a CQE
 * @target: what its requests are posted to
 * @end: iWARP: the connection that iw_cm has it connected by, or NULL (@cm_lock of the device)
 * @connecter: iWARP, the kernel's QPs: the task that has made it ready to be connected, or NULL; it
 *	       is compared, and never followed
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
	struct vrdma_target target;
	struct vrdma_end *end;
	const struct task_struct *connecter;
	struct vrdma_wq sq;
	struct vrdma_wq rq;
};

/**
 * struct vrdma_slot - a receive of a kernel SRQ
 * @wr_id: its wr_id, if it is outstanding
 * @next: the next free slot, if it is not
 */
struct vrdma_slot {
	u64 wr_id;
	u32 next;
};

/**
 * struct vrdma_slots - the receives of a kernel SRQ
 * @lock: protects the others; no other lock is taken under it
 * @slot: the slots
 * @num: their number
 * @max: most that may be taken
 * @taken: how many are
 * @free: the first free one
 */
struct vrdma_slots {
	spinlock_t lock;
	struct vrdma_slot *slot;
	u32 num;
	u32 max;
	u32 taken;
	u32 free;
};

/**
 * struct vrdma_srq - a shared receive queue
 * @ibsrq: the verbs object
 * @uctx: the context that has it, or NULL if the kernel has it
 * @srqn: its number
 * @max_sge: most elements of a receive
 * @ref: event handlers, and the owner
 * @unused: completed when @ref drops to 0
 * @target: what its receives are posted to
 * @lock: the kernel's SRQs: serialises posting
 * @slots: the kernel's SRQs: receives that are outstanding
 */
struct vrdma_srq {
	struct ib_srq ibsrq;
	struct vrdma_uctx *uctx;
	u32 srqn;
	u32 max_sge;
	refcount_t ref;
	struct completion unused;
	struct vrdma_target target;
	spinlock_t lock;
	struct vrdma_slots slots;
};

/**
 * struct vrdma_mr - a memory region
 * @ibmr: the verbs object
 * @mem: its memory, or NULL
 * @iova: address by which requests name its first byte
 * @access: IB_ACCESS_* and IB_ZERO_BASED
 * @lost: an abandoned command, or a device that failed, has the region and its memory
 * @pages: for fast registration: the list of pages, which is in @mem; otherwise NULL
 * @page_list: where the device finds it
 * @num_pages: pages in the list
 * @max_pages: most pages in the list
 */
struct vrdma_mr {
	struct ib_mr ibmr;
	struct vrdma_mem *mem;
	u64 iova;
	int access;
	bool lost;
	__le64 *pages;
	dma_addr_t page_list;
	u32 num_pages;
	u32 max_pages;
};

struct vrdma_mw {
	struct ib_mw ibmw;
};

struct vrdma_xrcd {
	struct ib_xrcd ibxrcd;
	u32 xrcdn;
};

/**
 * struct vrdma_dm - device memory: pages of the kernel that a process maps
 * @ibdm: the verbs object
 * @umap: the mapping, by which the whole is freed
 * @uctx: the context that has it
 * @mem: the pages
 */
struct vrdma_dm {
	struct ib_dm ibdm;
	struct vrdma_umap umap;
	struct vrdma_uctx *uctx;
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

VRDMA_CONVERT(uctx, ucontext, ibuctx)
VRDMA_CONVERT(pd, pd, ibpd)
VRDMA_CONVERT(cq, cq, ibcq)
VRDMA_CONVERT(qp, qp, ibqp)
VRDMA_CONVERT(srq, srq, ibsrq)
VRDMA_CONVERT(mr, mr, ibmr)
VRDMA_CONVERT(dm, dm, ibdm)
VRDMA_CONVERT(ah, ah, ibah)
VRDMA_CONVERT(xrcd, xrcd, ibxrcd)

/* Whether the kernel posts to it. (XRC targets have no context either, and no requests.) */
static inline bool vrdma_is_of_kernel(const struct vrdma_qp *qp)
{
	return !qp->uctx && qp->ibqp.qp_type != IB_QPT_XRC_TGT;
}

/* Context number of an object: that of @uctx, or the kernel's. */
static inline u32 vrdma_context(const struct vrdma_uctx *uctx)
{
	return uctx ? uctx->context : VRDMA_KERNEL_CONTEXT;
}

#endif /* VRDMA_OBJECTS_H */
