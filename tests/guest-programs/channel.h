/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * For vr-hostile: the device memory of a process, found without the library that mapped it, and
 * requests that no library makes.
 */
#ifndef CHANNEL_H
#define CHANNEL_H

#include "common.h"
#include "vrdma_abi.h"

/* ---- mappings ---- */

struct mapping {
	uint8_t *start;
	size_t length;
	uint64_t offset; /* in the device file */
	bool readable, writable;
};

#define MAX_MAPPINGS 16

/* Finds the mappings of /dev/infiniband/uverbs* in this process, and returns their number. */
size_t mappings_find(struct mapping *found);
/*
 * Tries to map anything else of the device file: other offsets, lengths, rights, or by enlarging.
 * Prints mappings that should have failed, and returns their number. `tried` counts the attempts.
 */
unsigned mappings_probe(int fd, const struct mapping *own, size_t count, struct rng *rng, uint64_t *tried);
/* Returns the page-aligned address in anonymous memory that holds a CQE of this QP, or NULL if
 * there is none. */
uint8_t *cq_find(uint32_t qpn);

/* ---- the channel ---- */

struct channel {
	struct mapping rings, slots, doorbell;
	unsigned entries;
	size_t used_offset;
};

/* Returns false if this context has no channel. */
bool channel_find(struct channel *channel);
/* Dies if a fresh channel holds anything but its own initial state. */
void channel_check_fresh(const struct channel *channel);
volatile uint16_t *avail_idx(const struct channel *channel);
volatile uint16_t *avail_ring(const struct channel *channel);
volatile uint16_t *used_idx(const struct channel *channel);
void channel_kick(const struct channel *channel, uint16_t value);
/* Posts units as a library does. Returns false if the device takes no more requests. */
bool channel_post(const struct channel *channel, const void *units, unsigned count);

/* ---- forged requests ---- */

/* Memory of this process, or memory that a victim has announced. */
struct target {
	uint64_t address, length;
	uint32_t key;
};

struct forge {
	struct rng *rng;
	struct target own[8], foreign[64];
	uint32_t own_qps[16], foreign_qps[64];
	union ibv_gid foreign_gid;
	unsigned owns, foreigns, own_qp_count, foreign_qp_count;
};

/* Adds the QPs and memory in a file of vr-pingpong --announce. */
void forge_read(struct forge *forge, const char *path);
/* Writes a request of up to 8 units, and returns their number. Most requests are well formed
 * except for a few fields. */
unsigned forge_request(struct forge *forge, uint8_t *units);

#endif
