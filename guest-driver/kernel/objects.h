/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The verbs objects.
 *
 * All floors that handle requests and completions know these types. The verbs of the objects are in
 * cq.h, qp.h and similar headers.
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
 * struct vrdma_uctx - the verbs context of a process
 * @ibuctx: the verbs object
 * @context: number of the context
 * @chan: channel of the context, or NULL
 * @rings: mapping of the available ring and the used ring of @chan
 * @slots: mapping of the 64-byte units of @chan
 * @doorbell: mapping of the doorbell of @chan, or NULL
 * @dm_bytes: bytes of device memory that the context has (@dm_lock of the device)
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
 * @rec: the words that driver and device share
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
 * @cqn: number of the CQ
 * @ref: references of event handlers and of the owner
 * @unused: completed when @ref drops to 0
 * @timed: CQEs have a time stamp
 * @resize_lock: serialises resizing; protects @mem and @next_mem
 * @mem: memory of the ring and its record
 * @next_mem: memory of the next ring while a resize is under way, or if the device did not answer
 *   the resize; else NULL
 * @lock: kernel CQs: protects all members below
 * @ring: kernel CQs: the ring that is polled
 * @next: kernel CQs: the ring in which the device continues after a resize
 * @consumer: number of CQEs consumed from @ring
 * @held: CQEs saved from rings that were replaced
 * @held_first: index of the first CQE in @held that was not taken
 * @held_end: index after the last CQE in @held
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
 * @wr_id: identifier from the work request
 * @continues: the next entry belongs to the same work request
 */
struct vrdma_request {
	u64 wr_id;
	bool continues;
};

/**
 * struct vrdma_wq - one direction of a kernel QP
 * @lock: serialises posting
 * @requests: ring of outstanding requests
 * @mask: size of @requests - 1
 * @max: most requests that may be outstanding
 * @head: number of requests posted
 * @tail: number of requests completed; written under the lock of the CQ
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
 * @via_kernel: some of its requests went through the kernel's channel (lock of that channel)
 */
struct vrdma_target {
	bool via_kernel;
};

/**
 * struct vrdma_qp - a queue pair
 * @ibqp: the verbs object
 * @uctx: context of the owner, or NULL if the kernel has the QP
 * @ref: references of event handlers and of the owner
 * @unused: completed when @ref drops to 0
 * @cap: capabilities
 * @sig_all: every send creates a CQE
 * @target: posting state of the QP
 * @end: iWARP: the connection by which iw_cm has the QP connected, or NULL (@cm_lock of the device)
 * @connecter: iWARP, kernel QPs: the task that made the QP ready for connecting, or NULL. The
 *   pointer is compared, and never followed.
 * @sq: kernel QPs: outstanding sends
 * @rq: kernel QPs: outstanding receives
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
 * struct vrdma_slot - an entry for one receive of a kernel SRQ
 * @wr_id: identifier from the work request, if the receive is outstanding
 * @next: index of the next free entry, if this one is free
 */
struct vrdma_slot {
	u64 wr_id;
	u32 next;
};

/**
 * struct vrdma_slots - the receives of a kernel SRQ
 * @lock: protects the other members; no other lock is taken under it
 * @slot: the entries
 * @num: number of entries
 * @max: most entries that may be taken
 * @taken: number of entries that are taken
 * @free: index of the first free entry
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
 * @uctx: context of the owner, or NULL if the kernel has the SRQ
 * @srqn: number of the SRQ
 * @max_sge: most SGEs of a receive
 * @ref: references of event handlers and of the owner
 * @unused: completed when @ref drops to 0
 * @target: posting state of the SRQ
 * @lock: kernel SRQs: serialises posting
 * @slots: kernel SRQs: receives that are outstanding
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
 * @mem: memory of the region, or NULL
 * @iova: address by which requests name the first byte
 * @access: IB_ACCESS_* and IB_ZERO_BASED
 * @lost: region and memory belong to an abandoned command, or to a device that failed
 * @pages: fast registration: the page list, which is in @mem; otherwise NULL
 * @page_list: bus address of the page list
 * @num_pages: number of pages in the list
 * @max_pages: most pages that the list can have
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
 * @umap: the mapping; the whole object is freed through it
 * @uctx: context of the owner
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

/* Whether the kernel posts to the QP. (XRC targets have no context either, but no requests.) */
static inline bool vrdma_is_of_kernel(const struct vrdma_qp *qp)
{
	return !qp->uctx && qp->ibqp.qp_type != IB_QPT_XRC_TGT;
}

/* Context number of an object: the one of @uctx, or the kernel's if @uctx is NULL. */
static inline u32 vrdma_context(const struct vrdma_uctx *uctx)
{
	return uctx ? uctx->context : VRDMA_KERNEL_CONTEXT;
}

#endif /* VRDMA_OBJECTS_H */
