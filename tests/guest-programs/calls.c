/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "calls.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- random choices ---- */

uint64_t below(struct world *w, uint64_t limit)
{
	return rng_below(&w->rng, limit);
}

bool one_in(struct world *w, unsigned n)
{
	return !below(w, n);
}

uint64_t odd_number(struct rng *rng)
{
	static const uint64_t borders[] = {0, 1, 2, 3, 7, 8, 63, 64, 65, 255, 256, 4095, 4096, 65535, 65536,
					   0x7fffffff, 0x80000000, 0xffffffff, 1ull << 32, ~0ull >> 1, ~0ull};

	switch (rng_below(rng, 4)) {
	case 0:
		return borders[rng_below(rng, sizeof(borders) / sizeof(*borders))];
	case 1:
		return rng_next(rng) >> rng_below(rng, 64);
	default:
		return rng_below(rng, 20);
	}
}

void *any_object(struct world *w, enum kind kind)
{
	return w->counts[kind] ? w->objects[kind][below(w, w->counts[kind])] : NULL;
}

bool keep(struct world *w, enum kind kind, void *object)
{
	if (object)
		w->objects[kind][w->counts[kind]++] = object;
	return object;
}

bool full(const struct world *w, enum kind kind)
{
	return w->counts[kind] == MOST_OBJECTS;
}

bool destroy_any(struct world *w, enum kind kind, int (*destroy)(void *))
{
	unsigned at;
	bool gone;

	if (!w->counts[kind])
		return false;
	at = below(w, w->counts[kind]);
	gone = !destroy(w->objects[kind][at]);
	if (gone || one_in(w, 16))
		w->objects[kind][at] = w->objects[kind][--w->counts[kind]];
	return gone;
}

int any_access(struct world *w)
{
	const int usual = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;

	if (one_in(w, 10))
		return odd_number(&w->rng);
	return one_in(w, 3) ? (int)below(w, 64) : usual;
}

/* ---- memory ---- */

static bool alloc_pd(struct world *w)
{
	return !full(w, PD) && keep(w, PD, ibv_alloc_pd(w->context));
}

static int free_pd(void *pd)
{
	return ibv_dealloc_pd(pd);
}

static bool dealloc_pd(struct world *w)
{
	return destroy_any(w, PD, free_pd);
}

static void any_range(struct world *w, uint8_t **start, size_t *length)
{
	const size_t at = below(w, MEMORY);

	*start = w->memory + at;
	*length = one_in(w, 8) ? odd_number(&w->rng) : below(w, MEMORY - at + 1);
	if (one_in(w, 32))
		*start = (uint8_t *)odd_number(&w->rng);
}

static bool reg_mr(struct world *w)
{
	struct ibv_pd *pd = any_object(w, PD);
	uint8_t *start;
	size_t length;

	if (!pd || full(w, MR))
		return false;
	any_range(w, &start, &length);
	return keep(w, MR, ibv_reg_mr_iova(pd, start, length, one_in(w, 4) ? odd_number(&w->rng) : (uintptr_t)start,
					   any_access(w)));
}

static bool rereg_mr(struct world *w)
{
	struct ibv_mr *mr = any_object(w, MR);
	uint8_t *start;
	size_t length;

	if (!mr)
		return false;
	any_range(w, &start, &length);
	return !ibv_rereg_mr(mr, 1 + below(w, 7), any_object(w, PD), start, length, any_access(w));
}

static int free_mr(void *mr)
{
	return ibv_dereg_mr(mr);
}

static bool dereg_mr(struct world *w)
{
	return destroy_any(w, MR, free_mr);
}

static bool alloc_mw(struct world *w)
{
	struct ibv_pd *pd = any_object(w, PD);

	return pd && !full(w, MW) && keep(w, MW, ibv_alloc_mw(pd, one_in(w, 2) ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2));
}

static int free_mw(void *mw)
{
	return ibv_dealloc_mw(mw);
}

static bool dealloc_mw(struct world *w)
{
	return destroy_any(w, MW, free_mw);
}

static bool bind_mw(struct world *w)
{
	struct ibv_mw *mw = any_object(w, MW);
	struct ibv_qp *qp = any_object(w, QP);
	struct ibv_mr *mr = any_object(w, MR);
	struct ibv_mw_bind bind = {.bind_info = {.mr = mr, .mw_access_flags = any_access(w)}};

	if (!mw || !qp || !mr)
		return false;
	bind.bind_info.addr = (uintptr_t)mr->addr;
	bind.bind_info.length = below(w, mr->length + 2);
	return !ibv_bind_mw(qp, mw, &bind);
}

static bool alloc_dm(struct world *w)
{
	struct ibv_alloc_dm_attr attr = {.length = one_in(w, 4) ? odd_number(&w->rng) : 1 + below(w, 20000)};

	return !full(w, DM) && keep(w, DM, ibv_alloc_dm(w->context, &attr));
}

static int drop_dm(void *dm)
{
	return ibv_free_dm(dm);
}

static bool free_dm(struct world *w)
{
	return destroy_any(w, DM, drop_dm);
}

static bool reg_dm_mr(struct world *w)
{
	struct ibv_pd *pd = any_object(w, PD);
	struct ibv_dm *dm = any_object(w, DM);

	if (!pd || !dm || full(w, MR))
		return false;
	return keep(w, MR, ibv_reg_dm_mr(pd, dm, one_in(w, 2) ? 0 : odd_number(&w->rng), 1 + below(w, 5000),
					 IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE | any_access(w)));
}

/* ---- completion queues ---- */

static bool create_channel(struct world *w)
{
	struct ibv_comp_channel *channel;

	if (full(w, CHANNEL))
		return false;
	channel = ibv_create_comp_channel(w->context);
	if (channel)
		fcntl(channel->fd, F_SETFL, O_NONBLOCK);
	return keep(w, CHANNEL, channel);
}

static int free_channel(void *channel)
{
	return ibv_destroy_comp_channel(channel);
}

static bool destroy_channel(struct world *w)
{
	return destroy_any(w, CHANNEL, free_channel);
}

static bool create_cq(struct world *w)
{
	const int entries = one_in(w, 6) ? odd_number(&w->rng) : 1 + below(w, 300);

	return !full(w, CQ) && keep(w, CQ, ibv_create_cq(w->context, entries, w, any_object(w, CHANNEL), below(w, 4)));
}

static bool resize_cq(struct world *w)
{
	struct ibv_cq *cq = any_object(w, CQ);

	return cq && !ibv_resize_cq(cq, one_in(w, 4) ? odd_number(&w->rng) : 1 + below(w, 600));
}

static bool modify_cq(struct world *w)
{
	struct ibv_cq *cq = any_object(w, CQ);
	struct ibv_modify_cq_attr attr = {.attr_mask = IBV_CQ_ATTR_MODERATE,
					  .moderate = {.cq_count = odd_number(&w->rng), .cq_period = below(w, 2000)}};

	return cq && !ibv_modify_cq(cq, &attr);
}

static bool notify_cq(struct world *w)
{
	struct ibv_cq *cq = any_object(w, CQ);

	return cq && !ibv_req_notify_cq(cq, below(w, 2));
}

static bool poll_cq(struct world *w)
{
	struct ibv_cq *cq = any_object(w, CQ);
	struct ibv_wc wc[16];

	return cq && ibv_poll_cq(cq, 16, wc) > 0;
}

static bool take_event(struct world *w)
{
	struct ibv_comp_channel *channel = any_object(w, CHANNEL);
	struct ibv_cq *cq;
	void *context;

	if (!channel || ibv_get_cq_event(channel, &cq, &context))
		return false;
	/* The library does not destroy a CQ while one of its events is unacknowledged. */
	ibv_ack_cq_events(cq, 1);
	return true;
}

static int free_cq(void *cq)
{
	return ibv_destroy_cq(cq);
}

static bool destroy_cq(struct world *w)
{
	return destroy_any(w, CQ, free_cq);
}

/* ---- queues for requests ---- */

static bool create_srq(struct world *w)
{
	struct ibv_pd *pd = any_object(w, PD);
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = one_in(w, 8) ? odd_number(&w->rng) : below(w, 100),
						  .max_sge = below(w, 6),
						  .srq_limit = below(w, 5)}};

	return pd && !full(w, SRQ) && keep(w, SRQ, ibv_create_srq(pd, &attr));
}

static bool create_xrc_srq(struct world *w)
{
	struct ibv_srq_init_attr_ex attr = {.attr = {.max_wr = 1 + below(w, 50), .max_sge = 1 + below(w, 3)},
					    .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD |
							 IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD,
					    .srq_type = IBV_SRQT_XRC,
					    .pd = any_object(w, PD),
					    .xrcd = any_object(w, XRCD),
					    .cq = any_object(w, CQ)};

	if (!attr.pd || !attr.xrcd || !attr.cq || full(w, SRQ))
		return false;
	return keep(w, SRQ, ibv_create_srq_ex(w->context, &attr));
}

static bool modify_srq(struct world *w)
{
	struct ibv_srq *srq = any_object(w, SRQ);
	struct ibv_srq_attr attr = {.max_wr = odd_number(&w->rng), .srq_limit = odd_number(&w->rng)};

	return srq && !ibv_modify_srq(srq, &attr, 1 + below(w, 3));
}

static bool query_srq(struct world *w)
{
	struct ibv_srq *srq = any_object(w, SRQ);
	struct ibv_srq_attr attr;

	return srq && !ibv_query_srq(srq, &attr);
}

static int free_srq(void *srq)
{
	return ibv_destroy_srq(srq);
}

static bool destroy_srq(struct world *w)
{
	return destroy_any(w, SRQ, free_srq);
}

static bool open_xrcd(struct world *w)
{
	struct ibv_xrcd_init_attr attr = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
					  .fd = one_in(w, 8) ? (int)below(w, 20) : -1,
					  .oflags = O_CREAT | (one_in(w, 4) ? O_EXCL : 0)};

	return !full(w, XRCD) && keep(w, XRCD, ibv_open_xrcd(w->context, &attr));
}

static int free_xrcd(void *xrcd)
{
	return ibv_close_xrcd(xrcd);
}

static bool close_xrcd(struct world *w)
{
	return destroy_any(w, XRCD, free_xrcd);
}

/* ---- other objects ---- */

static bool create_ah(struct world *w)
{
	struct ibv_pd *pd = any_object(w, PD);
	struct ibv_ah_attr attr = {
		.is_global = !one_in(w, 8),
		.port_num = one_in(w, 16) ? odd_number(&w->rng) : 1,
		.grh = {.dgid = w->gid, .sgid_index = one_in(w, 8) ? (int)odd_number(&w->rng) : w->gid_index}};

	return pd && !full(w, AH) && keep(w, AH, ibv_create_ah(pd, &attr));
}

static int free_ah(void *ah)
{
	return ibv_destroy_ah(ah);
}

static bool destroy_ah(struct world *w)
{
	return destroy_any(w, AH, free_ah);
}

static bool query_device(struct world *w)
{
	struct ibv_device_attr_ex attr;

	return !ibv_query_device_ex(w->context, NULL, &attr);
}

static bool query_port(struct world *w)
{
	struct ibv_port_attr attr;

	return !ibv_query_port(w->context, one_in(w, 4) ? odd_number(&w->rng) : 1, &attr);
}

static bool query_gid(struct world *w)
{
	struct ibv_gid_entry entry;

	return !ibv_query_gid_ex(w->context, 1, odd_number(&w->rng), &entry, 0);
}

/* Opens a second context of the same device file, as another process does that received the
 * file. Imports a PD, a region and device memory of the first context by their numbers. */
static bool import(struct world *w)
{
	const struct ibv_pd *pd = any_object(w, PD);
	const struct ibv_mr *mr = any_object(w, MR);
	struct ibv_context *context = ibv_import_device(dup(w->context->cmd_fd));
	struct ibv_pd *own_pd;
	struct ibv_mr *own_mr;
	struct ibv_dm *own_dm;

	if (!context)
		return false;
	own_pd = pd ? ibv_import_pd(context, pd->handle) : NULL;
	own_mr = own_pd && mr ? ibv_import_mr(own_pd, mr->handle) : NULL;
	own_dm = ibv_import_dm(context, below(w, 40));
	if (own_dm)
		ibv_unimport_dm(own_dm);
	if (own_mr)
		ibv_unimport_mr(own_mr);
	if (own_pd)
		ibv_unimport_pd(own_pd);
	return !ibv_close_device(context) && own_mr;
}

/* Discards pages that regions pin. */
static bool change_memory(struct world *w)
{
	const size_t at = below(w, MEMORY) & ~4095, length = 4096 * (1 + below(w, 20));

	return !madvise(w->memory + at, length < MEMORY - at ? length : MEMORY - at, MADV_DONTNEED);
}

/* Forks a child, which has the device's file and mappings too. It ends before or after its
 * parent. */
static bool fork_child(struct world *w)
{
	const unsigned ms = below(w, 100);
	const pid_t child = fork();

	if (!child) {
		sleep_ms(ms);
		_exit(0);
	}
	if (child > 0 && one_in(w, 2))
		waitpid(child, NULL, 0);
	return child > 0;
}

const struct call calls[] = {
	{"alloc_pd", alloc_pd, 3},
	{"dealloc_pd", dealloc_pd, 1},
	{"reg_mr", reg_mr, 4},
	{"rereg_mr", rereg_mr, 2},
	{"dereg_mr", dereg_mr, 2},
	{"alloc_mw", alloc_mw, 2},
	{"dealloc_mw", dealloc_mw, 1},
	{"bind_mw", bind_mw, 2},
	{"alloc_dm", alloc_dm, 2},
	{"free_dm", free_dm, 1},
	{"reg_dm_mr", reg_dm_mr, 2},
	{"create_channel", create_channel, 2},
	{"destroy_channel", destroy_channel, 1},
	{"create_cq", create_cq, 4},
	{"resize_cq", resize_cq, 3},
	{"modify_cq", modify_cq, 1},
	{"notify_cq", notify_cq, 4},
	{"poll_cq", poll_cq, 6},
	{"take_event", take_event, 3},
	{"destroy_cq", destroy_cq, 2},
	{"create_srq", create_srq, 3},
	{"create_xrc_srq", create_xrc_srq, 2},
	{"modify_srq", modify_srq, 2},
	{"query_srq", query_srq, 1},
	{"destroy_srq", destroy_srq, 2},
	{"open_xrcd", open_xrcd, 2},
	{"close_xrcd", close_xrcd, 1},
	{"create_qp", create_qp, 6},
	{"create_xrc_qp", create_xrc_qp, 2},
	{"modify_qp", modify_qp, 8},
	{"connect_qps", connect_qps, 6},
	{"query_qp", query_qp, 2},
	{"destroy_qp", destroy_qp, 3},
	{"post_send", post_send, 12},
	{"post_recv", post_recv, 8},
	{"attach_mcast", attach_mcast, 3},
	{"detach_mcast", detach_mcast, 2},
	{"create_ah", create_ah, 3},
	{"destroy_ah", destroy_ah, 1},
	{"query_device", query_device, 1},
	{"query_port", query_port, 1},
	{"query_gid", query_gid, 1},
	{"import", import, 2},
	{"change_memory", change_memory, 1},
	{"fork_child", fork_child, 1},
	{NULL, NULL, 0},
};
