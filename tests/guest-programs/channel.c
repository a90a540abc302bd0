/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "channel.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ul

/* ---- mappings ---- */

size_t mappings_find(struct mapping *found)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long start, end, offset;
	char line[512], rights[8];
	size_t count = 0;

	if (!maps)
		die_errno("/proc/self/maps");
	while (fgets(line, sizeof(line), maps)) {
		if (!strstr(line, "/dev/infiniband/uverbs") || count == MAX_MAPPINGS)
			continue;
		if (sscanf(line, "%lx-%lx %7s %lx", &start, &end, rights, &offset) != 4)
			die("/proc/self/maps: %s", line);
		found[count++] = (struct mapping){.start = (uint8_t *)start,
						  .length = end - start,
						  .offset = offset,
						  .readable = rights[0] == 'r',
						  .writable = rights[1] == 'w'};
	}
	fclose(maps);
	return count;
}

static bool is_own(const struct mapping *own, size_t count, uint64_t offset, size_t length)
{
	for (size_t i = 0; i < count; i++)
		if (own[i].offset == offset && own[i].length == length)
			return true;
	return false;
}

static unsigned try_map(int fd, const struct mapping *own, size_t count, uint64_t offset, size_t length, struct rng *rng)
{
	static const int rights[] = {PROT_READ, PROT_WRITE, PROT_READ | PROT_WRITE, PROT_READ | PROT_EXEC};
	const int prot = rights[rng_below(rng, 4)], flags = rng_below(rng, 8) ? MAP_SHARED : MAP_PRIVATE;
	void *map = mmap(NULL, length, prot, flags, fd, offset);

	if (map == MAP_FAILED)
		return 0;
	munmap(map, length);
	if (is_own(own, count, offset, length))
		return 0;
	printf("MAPPED: offset %#lx length %#zx rights %d flags %d\n", offset, length, prot, flags);
	return 1;
}

unsigned mappings_probe(int fd, const struct mapping *own, size_t count, struct rng *rng, uint64_t *tried)
{
	unsigned faults = 0;

	for (uint64_t page = 0; page < 64; page++)
		for (size_t pages = 1; pages <= 6; pages++, ++*tried)
			faults += try_map(fd, own, count, page * PAGE, pages * PAGE, rng);
	for (int i = 0; i < 400; i++, ++*tried) {
		/* Up to the largest offset that fits, with all magnitudes equally likely. */
		const uint64_t offset = (rng_next(rng) >> (1 + rng_below(rng, 63))) & ~(PAGE - 1);

		faults += try_map(fd, own, count, offset, (1 + rng_below(rng, 600)) * PAGE, rng);
	}
	for (size_t i = 0; i < count; i++, *tried += 2) {
		const size_t longer = own[i].length + PAGE * (1 + rng_below(rng, 4));
		void *map = mremap(own[i].start, own[i].length, longer, 0);

		if (map != MAP_FAILED) {
			printf("ENLARGED: offset %#lx from %#zx to %#zx\n", own[i].offset, own[i].length, longer);
			faults++;
		}
		map = mremap(own[i].start, 0, longer, MREMAP_MAYMOVE);
		if (map != MAP_FAILED) {
			printf("ENLARGED BY A COPY: offset %#lx from %#zx to %#zx\n", own[i].offset, own[i].length,
			       longer);
			faults++;
		}
	}
	return faults;
}

uint8_t *cq_find(uint32_t qpn)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long start, end, inode;
	char line[512], rights[8];
	uint8_t *found = NULL;

	if (!maps)
		die_errno("/proc/self/maps");
	while (!found && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx %7s %*x %*s %lu", &start, &end, rights, &inode) != 4 || inode ||
		    strcmp(rights, "rw-p"))
			continue;
		for (unsigned long at = start; at < end; at += PAGE) {
			const struct vrdma_cqe *cqe = (const struct vrdma_cqe *)at;

			if (cqe->qpn == qpn && cqe->status == VRDMA_WC_SUCCESS && cqe->phase == 1 &&
			    cqe->opcode == VRDMA_WC_OP_RDMA_WRITE)
				found = (uint8_t *)at;
		}
	}
	fclose(maps);
	return found;
}

/* ---- the channel ---- */

bool channel_find(struct channel *channel)
{
	struct mapping found[MAX_MAPPINGS];
	size_t count = mappings_find(found);

	memset(channel, 0, sizeof(*channel));
	for (size_t i = 0; i < count; i++) {
		/* In the driver's order of offsets: rings, slots, doorbell. */
		if (!found[i].readable)
			channel->doorbell = found[i];
		else if (!channel->rings.start || found[i].offset < channel->rings.offset) {
			channel->slots = channel->rings;
			channel->rings = found[i];
		} else
			channel->slots = found[i];
	}
	if (!count)
		return false;
	if (!channel->rings.start || !channel->slots.start || !channel->doorbell.start)
		die("%zu mappings of the device, but not rings, slots and doorbell", count);
	channel->entries = channel->slots.length / VRDMA_WQE_UNIT_SIZE;
	/* The used ring begins at a cache line, as in Linux' layout of virtqueues. */
	channel->used_offset = (6 + 2 * channel->entries + 63) / 64 * 64;
	return true;
}

volatile uint16_t *avail_idx(const struct channel *channel)
{
	return (volatile uint16_t *)channel->rings.start + 1;
}

volatile uint16_t *avail_ring(const struct channel *channel)
{
	return (volatile uint16_t *)channel->rings.start + 2;
}

volatile uint16_t *used_idx(const struct channel *channel)
{
	return (volatile uint16_t *)(channel->rings.start + channel->used_offset) + 1;
}

void channel_check_fresh(const struct channel *channel)
{
	const size_t avail_end = 4 + 2 * channel->entries;
	const size_t used_end = channel->used_offset + 4 + 8 * channel->entries;

	for (size_t i = 0; i < channel->slots.length; i++)
		if (channel->slots.start[i])
			die("a fresh slot holds somebody's data at %#zx", i);
	/* The library numbers the available ring. `used.flags` and `avail_event` may say
	 * whether the device sleeps. */
	for (size_t i = 0; i < channel->rings.length; i++) {
		const bool numbers = i >= 4 && i < avail_end;
		const bool wishes = (i >= channel->used_offset && i < channel->used_offset + 2) ||
				    (i >= used_end && i < used_end + 2);
		const uint8_t expected = numbers ? (uint8_t)((i - 4) / 2 >> (i % 2 * 8)) : 0;

		if (!wishes && channel->rings.start[i] != expected)
			die("fresh rings hold %#x at %#zx", channel->rings.start[i], i);
	}
}

void channel_kick(const struct channel *channel, uint16_t value)
{
	*(volatile uint16_t *)channel->doorbell.start = value;
}

bool channel_post(const struct channel *channel, const void *units, unsigned count)
{
	const uint16_t next = *avail_idx(channel);
	const double deadline = seconds() + 0.2;

	while ((uint16_t)(next - *used_idx(channel)) + count > channel->entries) {
		channel_kick(channel, 0);
		if (seconds() > deadline)
			return false;
		sleep_ms(0.1);
	}
	for (unsigned i = 0; i < count; i++) {
		const uint16_t slot = (uint16_t)(next + i) & (channel->entries - 1);

		memcpy(channel->slots.start + slot * VRDMA_WQE_UNIT_SIZE, (const uint8_t *)units + i * VRDMA_WQE_UNIT_SIZE,
		       VRDMA_WQE_UNIT_SIZE);
		avail_ring(channel)[slot] = slot;
	}
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	*avail_idx(channel) = next + count;
	return true;
}

/* ---- forged requests ---- */

void forge_read(struct forge *forge, const char *path)
{
	FILE *file = fopen(path, "r");
	unsigned long numbers[3];
	char kind[8];

	if (!file)
		die_errno("%s", path);
	while (fscanf(file, "%7s %lu %lu %lu", kind, &numbers[0], &numbers[1], &numbers[2]) == 4) {
		if (!strcmp(kind, "mr") && forge->foreigns < 64)
			forge->foreign[forge->foreigns++] = (struct target){numbers[1], numbers[2], numbers[0]};
		if (!strcmp(kind, "qp") && forge->foreign_qp_count < 64)
			forge->foreign_qps[forge->foreign_qp_count++] = numbers[0];
		if (!strcmp(kind, "gid"))
			memcpy(forge->foreign_gid.raw, numbers, 16);
	}
	fclose(file);
}

static uint64_t odd_number(struct rng *rng)
{
	static const uint64_t odd[] = {0, 1, 2, 63, 64, 4096, 0x7fffffff, 0x80000000, 0xffffffff, UINT64_MAX, 1ul << 63};

	return rng_below(rng, 3) ? odd[rng_below(rng, sizeof(odd) / sizeof(*odd))]
				 : rng_next(rng) >> rng_below(rng, 64);
}

/* Returns own memory that allows every access. */
static struct target good_target(struct forge *forge)
{
	return forge->own[rng_below(forge->rng, 2)];
}

/* Returns memory that may not be used, or that the request is not meant for. */
static struct target bad_target(struct forge *forge)
{
	struct target target = good_target(forge);

	switch (rng_below(forge->rng, 8)) {
	case 0:
		target.address = odd_number(forge->rng);
		break;
	case 1: /* over the end, or from before the start */
		target.address += rng_below(forge->rng, 2) ? target.length - 1 : -1ul;
		break;
	case 2:
		target.key = odd_number(forge->rng);
		break;
	case 3:
		target.key ^= 1u << rng_below(forge->rng, 32);
		break;
	case 4:
		target.length = odd_number(forge->rng);
		break;
	case 5:
		target = forge->own[rng_below(forge->rng, forge->owns)];
		break;
	default:
		if (forge->foreigns)
			target = forge->foreign[rng_below(forge->rng, forge->foreigns)];
		break;
	}
	return target;
}

static uint32_t pick_qp(struct forge *forge)
{
	switch (rng_below(forge->rng, 12)) {
	case 0:
		if (forge->foreign_qp_count)
			return forge->foreign_qps[rng_below(forge->rng, forge->foreign_qp_count)];
		/* fall through */
	case 1:
		return odd_number(forge->rng);
	case 2: /* another generation of an own QP */
		return forge->own_qps[0] ^ 1u << rng_below(forge->rng, 32);
	default:
		return forge->own_qps[rng_below(forge->rng, forge->own_qp_count)];
	}
}

unsigned forge_request(struct forge *forge, uint8_t *units)
{
	static const uint8_t opcodes[] = {VRDMA_WR_RDMA_WRITE, VRDMA_WR_RDMA_WRITE_WITH_IMM, VRDMA_WR_SEND,
					  VRDMA_WR_SEND_WITH_IMM, VRDMA_WR_RDMA_READ, VRDMA_WR_ATOMIC_CMP_AND_SWP,
					  VRDMA_WR_ATOMIC_FETCH_AND_ADD, VRDMA_WR_RECV};
	struct rng *rng = forge->rng;
	struct vrdma_wqe *wqe = (struct vrdma_wqe *)units;
	struct vrdma_wqe_rdma *body = (struct vrdma_wqe_rdma *)(units + VRDMA_WQE_BODY_OFFSET);
	struct vrdma_sge *sges = (struct vrdma_sge *)(units + VRDMA_WQE_DATA_OFFSET);
	const bool bad_local = !rng_below(rng, 4), bad_remote = rng_below(rng, 2);
	const struct target remote = bad_remote ? bad_target(forge) : good_target(forge);
	unsigned count = 1 + rng_below(rng, rng_below(rng, 4) ? 2 : VRDMA_WQE_MAX_SGE_V1_1), length;
	bool atomic;

	memset(units, 0, VRDMA_WQE_MAX_UNITS_V1_1 * VRDMA_WQE_UNIT_SIZE);
	wqe->opcode = opcodes[rng_below(rng, sizeof(opcodes))];
	atomic = wqe->opcode == VRDMA_WR_ATOMIC_CMP_AND_SWP || wqe->opcode == VRDMA_WR_ATOMIC_FETCH_AND_ADD;
	wqe->flags = rng_below(rng, 2) | (rng_below(rng, 16) << 1 & (VRDMA_WQE_F_SOLICITED | VRDMA_WQE_F_FENCE));
	wqe->object = pick_qp(forge);
	wqe->wqe_id = rng_next(rng);
	body->remote_addr = remote.address;
	body->rkey = remote.key;
	if (atomic) {
		sges = (struct vrdma_sge *)(units + VRDMA_WQE_ATOMIC_SGE_OFFSET);
		count = 1;
	}
	for (unsigned i = 0; i < count; i++) {
		const struct target local = bad_local ? bad_target(forge) : good_target(forge);

		sges[i] = (struct vrdma_sge){local.address, atomic ? 8 : rng_below(rng, local.length / count + 2),
					     local.key};
	}
	wqe->sge_count = count;
	length = (uint8_t *)(sges + count) - units;
	if (!atomic && !rng_below(rng, 6)) {
		wqe->flags |= VRDMA_WQE_F_INLINE;
		wqe->sge_count = 0;
		wqe->inline_len = rng_below(rng, VRDMA_WQE_MAX_INLINE_V1_1 + 1);
		length = VRDMA_WQE_DATA_OFFSET + wqe->inline_len;
	}
	wqe->units = (length + VRDMA_WQE_UNIT_SIZE - 1) / VRDMA_WQE_UNIT_SIZE;
	length = wqe->units;

	for (unsigned i = rng_below(rng, 4) ? 0 : 1 + rng_below(rng, 2); i; i--)
		switch (rng_below(rng, 8)) {
		case 0:
			wqe->opcode = rng_next(rng);
			break;
		case 1: /* rarely, as it breaks the channel */
			if (!rng_below(rng, 20))
				wqe->units = rng_below(rng, 2) ? rng_next(rng) : rng_below(rng, 12);
			break;
		case 2:
			wqe->flags = rng_next(rng);
			break;
		case 3:
			wqe->sge_count = rng_next(rng);
			break;
		case 4:
			wqe->inline_len = odd_number(rng);
			break;
		case 5:
			wqe->reserved = rng_next(rng);
			break;
		case 6:
			sges[0].length = odd_number(rng);
			break;
		default:
			units[rng_below(rng, length * VRDMA_WQE_UNIT_SIZE)] = rng_next(rng);
			break;
		}
	return length;
}
