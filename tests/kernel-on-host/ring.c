/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Runs the kernel module's ring.c against a device in plain memory: a CQ is polled, armed and
 * resized in random order. Each completion has to come once and in order, and each request for an
 * event has to be seen once. Prints how often each thing happened.
 */
#include <linux/types.h>
#include <stdio.h>

/* This file replaces these headers. */
#define VRDMA_H
#define VRDMA_MEM_H
#define VRDMA_BARRIER_H

struct vrdma_mem {
	void *vaddr;
};

struct vrdma_dev {
	struct {
		u32 max_cqe;
	} caps;
};

static struct vrdma_mem *vrdma_mem_alloc_pages(struct vrdma_dev *dev, size_t size);
static struct vrdma_mem *vrdma_mem_pin(struct vrdma_dev *dev, u64 addr, u64 len, int access);
static void vrdma_mb(void)
{
	__sync_synchronize();
}

#include "../../guest-driver/kernel/ring.c"

static struct vrdma_mem *vrdma_mem_alloc_pages(struct vrdma_dev *dev, size_t size)
{
	struct vrdma_mem *mem = malloc(sizeof(*mem));

	(void)dev;
	mem->vaddr = calloc(1, size);
	return mem;
}

static struct vrdma_mem *vrdma_mem_pin(struct vrdma_dev *dev, u64 addr, u64 len, int access)
{
	(void)dev, (void)addr, (void)len, (void)access;
	return NULL;
}

static void mem_free(struct vrdma_mem *mem, u32 entries)
{
	/* Later accesses find nonsense. */
	memset(mem->vaddr, 0xa5, ring_bytes(entries, false));
	free(mem->vaddr);
	free(mem);
}

#define CHECK(condition)							\
	do {									\
		if (!(condition)) {						\
			printf("seed %u: not so: %s\n", seed, #condition);	\
			exit(1);						\
		}								\
	} while (0)

/* The device's end of the CQ. */
static struct vrdma_cq_ring ring;
static u32 head, seen;

static u32 unconsumed(void)
{
	return head - le32_to_cpu(ring.rec->consumer);
}

static bool put(u32 id)
{
	struct vrdma_cqe *cqe = &ring.cqe[head & (ring.entries - 1)];

	if (unconsumed() >= ring.entries)
		return false;
	cqe->wqe_id = cpu_to_le32(id);
	cqe->phase = !(head & ring.entries);
	head++;
	return true;
}

static bool is_armed(void)
{
	u32 before = seen;

	seen = le32_to_cpu(ring.rec->arm_next);
	return seen != before;
}

static void use(const struct vrdma_mem *mem, u32 entries)
{
	ring = ring_in(mem, entries);
	head = 0;
}

static void count(struct vrdma_cqe *cqe, void *counter)
{
	(void)cqe;
	(*(u32 *)counter)++;
}

static unsigned long resized, found, refused, polled;

static void run(unsigned int seed)
{
	enum { IDLE, BEGUN, DONE } state = IDLE;
	u32 posted = 0, taken = 0, entries = 4, next_entries = 0, held = 0, n;
	struct vrdma_mem *next = NULL;
	struct vrdma_dev dev = {{1 << 20}};
	struct vrdma_cq cq = {0};
	struct vrdma_cqe *cqe;
	bool armed = false;
	int step, i;

	srand(seed);
	cq.mem = vrdma_ring_alloc(&dev, entries);
	vrdma_ring_start(&cq, entries);
	use(cq.mem, entries);
	seen = 0;
	for (step = 0; step < 200; step++) {
		switch (rand() % 8) {
		case 0:
			if (state != IDLE)
				break;
			next_entries = 2u << rand() % 4;
			next = vrdma_ring_alloc(&dev, next_entries);
			CHECK(!vrdma_ring_begin_resize(&cq, next, next_entries, &held));
			state = BEGUN;
			break;
		case 1:
			if (state != BEGUN)
				break;
			if (unconsumed() + held <= next_entries) {
				use(next, next_entries);
				state = DONE;
				break;
			}
			vrdma_ring_cancel_resize(&cq);
			mem_free(next, next_entries);
			state = IDLE;
			refused++;
			break;
		case 2:
			if (state != DONE)
				break;
			found += !cq.next.cqe;
			vrdma_ring_end_resize(&cq);
			mem_free(cq.mem, entries);
			cq.mem = next;
			entries = next_entries;
			state = IDLE;
			resized++;
			break;
		case 3:
			vrdma_ring_arm(&cq, false);
			armed = true;
			break;
		case 4:
			CHECK(is_armed() == armed);
			armed = false;
			break;
		case 5:
			n = 0;
			vrdma_ring_visit(&cq, count, &n);
			CHECK(n == posted - taken && vrdma_ring_ready(&cq) == !!n);
			break;
		default:
			for (i = rand() % 6; i > 0; i--)
				posted += put(posted);
			for (i = rand() % 6; i > 0 && (cqe = vrdma_ring_take(&cq)); i--)
				CHECK(le32_to_cpu(cqe->wqe_id) == taken++);
			CHECK(i <= 0 || taken == posted);
			vrdma_ring_publish(&cq);
			polled++;
		}
	}
	while ((cqe = vrdma_ring_take(&cq)))
		CHECK(le32_to_cpu(cqe->wqe_id) == taken++);
	CHECK(taken == posted);
	vrdma_ring_cleanup(&cq);
	if (state != IDLE)
		mem_free(next, next_entries);
	mem_free(cq.mem, entries);
}

int main(void)
{
	unsigned int seed;

	for (seed = 1; seed <= 5000; seed++)
		run(seed);
	printf("resized %lu, found %lu, refused %lu, polled %lu\n", resized, found, refused, polled);
	return !(resized > 1000 && found > 1000 && refused > 1000 && polled > 1000);
}
