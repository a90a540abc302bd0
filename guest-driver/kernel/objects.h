/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The verbs objects. Their types are known on all floors that handle requests and completions;
 * their verbs are in cq.h, qp.h and the like.
 */
#ifndef VRDMA_OBJECTS_H
#define VRDMA_OBJECTS_H

#include <linux/completion.h>
#include <linux/refcount.h>
#include <linux/spinlock.h>
#include <rdma/ib_verbs.h>

#include "vrdma_abi.h"

struct vrdma_channel;
struct vrdma_mem;
struct vrdma_mmap_entry;

/**
 * struct vrdma_uctx - context of a process
 * @ibuctx: the verbs object
 * @context: its number
 * @chan: its channel, or NULL
 * @rings: mapping of the available and the used ring of @chan
 * @slots: mapping of the slots of @chan
 * @doorbell: mapping of the doorbell of @chan, or NULL
 */
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
 * @armed: an event has been requested at least once
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

VRDMA_CONVERT(uctx, ucontext, ibuctx)
VRDMA_CONVERT(pd, pd, ibpd)
VRDMA_CONVERT(cq, cq, ibcq)
VRDMA_CONVERT(qp, qp, ibqp)
VRDMA_CONVERT(srq, srq, ibsrq)
VRDMA_CONVERT(mr, mr, ibmr)
VRDMA_CONVERT(ah, ah, ibah)

/* Context number of an object: that of @uctx, or the kernel's. */
static inline u32 vrdma_context(const struct vrdma_uctx *uctx)
{
	return uctx ? uctx->context : VRDMA_KERNEL_CONTEXT;
}

#endif /* VRDMA_OBJECTS_H */
