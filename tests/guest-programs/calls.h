/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * For vr-random: verbs calls with random arguments, on whatever objects there are.
 */
#ifndef CALLS_H
#define CALLS_H

#include "common.h"

enum kind { PD, MR, MW, CQ, CHANNEL, QP, SRQ, AH, XRCD, DM, KINDS };

#define MOST_OBJECTS 12
#define MEMORY (1 << 20)

/* A context and its objects. */
struct world {
	struct rng rng;
	struct ibv_context *context;
	union ibv_gid gid;
	int gid_index;
	uint8_t *memory; /* MEMORY bytes */
	void *objects[KINDS][MOST_OBJECTS];
	unsigned counts[KINDS];
};

struct call {
	const char *name;
	/* Whether it succeeded. */
	bool (*make)(struct world *world);
	/* How often it is made, beside the others. */
	unsigned weight;
};

/* The last one has no name. */
extern const struct call calls[];
#define MOST_CALLS 48

/* One of these at random: a number as it is usual, at a border, or none that makes sense. */
uint64_t odd_number(struct rng *rng);

#endif
