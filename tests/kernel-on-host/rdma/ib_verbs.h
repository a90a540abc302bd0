/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The contents of the kernel's headers, as far as ring.c and the verbs objects need them.
 * There is one thread, so locks and barriers do nothing. */
#ifndef IB_VERBS_H
#define IB_VERBS_H

#include <errno.h>
#include <linux/types.h>
#include <stdlib.h>
#include <string.h>

typedef int refcount_t;
typedef int spinlock_t;
struct completion {
	int nothing;
};
struct mutex {
	int nothing;
};

struct ib_ucontext {
	int nothing;
};
struct ib_pd {
	int nothing;
};
struct ib_cq {
	int cqe;
};
struct ib_qp {
	int qp_type;
};
struct ib_qp_cap {
	int nothing;
};
struct ib_xrcd {
	int nothing;
};
struct ib_srq {
	int nothing;
};
struct ib_mr {
	int nothing;
};
struct ib_ah {
	int nothing;
};
struct ib_mw {
	int nothing;
};
struct ib_dm {
	int nothing;
};
struct vm_area_struct;
struct rdma_user_mmap_entry {
	u64 offset;
};
typedef u64 phys_addr_t;
#define IB_ACCESS_LOCAL_WRITE 1
#define IB_QPT_XRC_TGT 10

#define container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))
#define cpu_to_le32 htole32
#define cpu_to_le64 htole64
#define rdma_user_mmap_get_offset(entry) ((entry)->offset)
#define READ_ONCE(x) (*(volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, value) (*(volatile __typeof__(x) *)&(x) = (value))
#define virt_rmb() __sync_synchronize()
#define virt_store_release(p, value) __atomic_store_n(p, value, __ATOMIC_RELEASE)
#define spin_lock_irqsave(lock, flags) ((void)(lock), (void)((flags) = 0))
#define spin_unlock_irqrestore(lock, flags) ((void)(lock), (void)(flags))
#define kvcalloc(n, size, gfp) calloc(n, size)
#define kvfree free
#define ERR_PTR(error) ((void *)(long)(error))
#define PAGE_ALIGNED(address) (!((address) & 4095))
#define is_power_of_2(n) ((n) && !((n) & ((n) - 1)))

#endif /* IB_VERBS_H */
