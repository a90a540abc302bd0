/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * For vr-random: verbs calls with random arguments, on any existing objects.
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
	/* Returns whether the call succeeded. */
	bool (*make)(struct world *world);
	/* How often the call is made, relative to the others. */
	unsigned weight;
};

/* An entry without a name ends the list. */
extern const struct call calls[];
#define MOST_CALLS 48

/* Returns a random number: a usual one, one at a limit, or one that makes no sense. */
uint64_t odd_number(struct rng *rng);

/* For the files of calls: random choices, and the lists of objects. */
uint64_t below(struct world *w, uint64_t limit);
bool one_in(struct world *w, unsigned n);
int any_access(struct world *w);
void *any_object(struct world *w, enum kind kind);
/* Adds an object to its list. Returns false for NULL. */
bool keep(struct world *w, enum kind kind, void *object);
bool full(const struct world *w, enum kind kind);
/* Destroys a random object. One that cannot be destroyed at the moment mostly stays in the
 * list. */
bool destroy_any(struct world *w, enum kind kind, int (*destroy)(void *));

bool create_qp(struct world *w);
bool create_xrc_qp(struct world *w);
bool modify_qp(struct world *w);
bool connect_qps(struct world *w);
bool query_qp(struct world *w);
bool destroy_qp(struct world *w);
bool post_send(struct world *w);
bool post_recv(struct world *w);
bool attach_mcast(struct world *w);
bool detach_mcast(struct world *w);

#endif
