/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Many QPs of one process, which share its channel, with requests on all of them in random order.
 * No completion may be lost, doubled, or out of its QP's order. The received bytes have to be
 * those sent.
 */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char what[] =
	"Usage: vr-manyqps [OPTIONS] [HOST]\n\n"
	"Creates QPs, connects them with those of a second vr-manyqps (the server, which is the one without HOST) or with\n"
	"--local among themselves, and posts SENDs and WRITEs on random ones. The same options are needed on both sides.";

static struct {
	long qps, ops, seed;
	bool local;
} opts = {.qps = 4000};

static const struct option_spec table[] = {
	{"qps", 'q', NUMBER, &opts.qps, "queue pairs of this process (even if --local)"},
	{"ops", 'n', NUMBER, &opts.ops, "requests to post; 0: four for each QP"},
	{"seed", 0, NUMBER, &opts.seed, "of the random choices; 0: another one each time"},
	{"local", 'l', FLAG, &opts.local, "connect them among themselves; no server"},
	{NULL, 0, FLAG, NULL, NULL},
};

#define DEPTH 4 /* requests outstanding of each queue */

/* A QP's memory. */
struct place {
	uint64_t target;	 /* of the peer's WRITEs */
	uint64_t guard;
	uint64_t out[DEPTH], in[DEPTH];
};

struct conn {
	uint64_t posted, completed;	  /* sends */
	uint64_t receives, received;	  /* posted, completed */
	uint64_t sent;			  /* SENDs */
	uint64_t written;		  /* last value of a WRITE */
};

struct totals {
	uint64_t sent, written;
};

static struct device dev;
static struct waiter waiter;
static struct region region;
static struct ibv_mr *mr;
static struct ibv_qp **qps;
static struct conn *conns;
static struct place *places;
static struct {
	uint64_t address;
	uint32_t rkey;
} peer;
static uint64_t outstanding;

static size_t partner(size_t qp)
{
	return opts.local ? qp ^ 1 : qp;
}

static void post_receive(size_t qp)
{
	struct conn *conn = &conns[qp];
	struct ibv_sge sge = {
		.addr = (uintptr_t)&places[qp].in[conn->receives % DEPTH], .length = 8, .lkey = mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = (uint64_t)qp << 32 | 1u << 31 | (conn->receives & 0x7fffffff),
				 .sg_list = &sge,
				 .num_sge = 1},
			   *bad;
	int error = ibv_post_recv(qps[qp], &wr, &bad);

	if (error)
		die("QP %zu: ibv_post_recv: %s", qp, strerror(error));
	conn->receives++;
}

static void post(size_t qp, bool send)
{
	struct conn *conn = &conns[qp];
	uint64_t *source = &places[qp].out[conn->posted % DEPTH];
	struct ibv_sge sge = {.addr = (uintptr_t)source, .length = 8, .lkey = mr->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = (uint64_t)qp << 32 | (conn->posted & 0x7fffffff),
				       .sg_list = &sge,
				       .num_sge = 1,
				       .opcode = send ? IBV_WR_SEND : IBV_WR_RDMA_WRITE,
				       .send_flags = IBV_SEND_SIGNALED,
				       .wr.rdma = {.remote_addr = peer.address + partner(qp) * sizeof(struct place),
						   .rkey = peer.rkey}};
	int error;

	*source = send ? conn->sent++ : (conn->written = mix(conn->posted ^ qp << 32));
	error = ibv_post_send(qps[qp], &wr, &bad);
	if (error)
		die("QP %zu: ibv_post_send: %s", qp, strerror(error));
	conn->posted++;
	outstanding++;
}

static void complete(const struct ibv_wc *wc)
{
	const size_t qp = wc->wr_id >> 32;
	const bool receive = wc->wr_id >> 31 & 1;
	struct conn *conn;
	uint64_t next, posted;

	if (qp >= (size_t)opts.qps)
		die("a completion of QP %zu, which is none", qp);
	conn = &conns[qp];
	next = receive ? conn->received : conn->completed;
	posted = receive ? conn->receives : conn->posted;
	if (wc->status != IBV_WC_SUCCESS)
		die("QP %zu: %s %lu: %s", qp, receive ? "receive" : "send", next, ibv_wc_status_str(wc->status));
	if (next == posted || (next & 0x7fffffff) != (wc->wr_id & 0x7fffffff) || wc->qp_num != qps[qp]->qp_num)
		die("QP %zu: completion of %s %lu (QPN %#x), but %lu of %lu (QPN %#x) is next", qp,
		    receive ? "receive" : "send", (unsigned long)(wc->wr_id & 0x7fffffff), wc->qp_num, next, posted,
		    qps[qp]->qp_num);
	if (!receive) {
		conn->completed++;
		outstanding--;
		return;
	}
	if (wc->byte_len != 8 || places[qp].in[next % DEPTH] != next)
		die("QP %zu: message %lu of length %u says %lu", qp, next, wc->byte_len, places[qp].in[next % DEPTH]);
	conn->received++;
	post_receive(qp);
}

static bool poll_some(double ms)
{
	struct ibv_wc wc[64];
	int count = wait_completions(&waiter, wc, 64, ms);

	for (int i = 0; i < count; i++)
		complete(&wc[i]);
	return count > 0;
}

static void post_all(struct rng *rng)
{
	double progress = seconds();
	long posted = 0;

	while (posted < opts.ops || outstanding) {
		int tries = 0;

		/* A few posts between two polls, so that the rings fill up. */
		while (posted < opts.ops && tries++ < 64) {
			size_t qp = rng_below(rng, opts.qps);

			if (conns[qp].posted - conns[qp].completed == DEPTH)
				continue;
			post(qp, rng_below(rng, 2));
			posted++;
		}
		if (poll_some(posted < opts.ops ? 0 : 100))
			progress = seconds();
		else if (seconds() > progress + 60)
			die("no progress for a minute: %lu requests outstanding", outstanding);
	}
}

/* Compares the totals with the peer's. The peer may still wait for messages of this side, so
 * this keeps polling until the peer is done. */
static void compare(int link)
{
	struct totals *theirs = calloc(opts.qps, sizeof(*theirs));
	const double deadline = seconds() + 60;
	bool all = false;

	if (!theirs)
		die("no memory");
	for (long qp = 0; qp < opts.qps; qp++) {
		const struct conn *conn = &conns[partner(qp)];

		theirs[qp] = (struct totals){conn->sent, conn->written};
	}
	if (!opts.local) {
		link_send(link, theirs, opts.qps * sizeof(*theirs));
		while (!link_ready(link)) {
			if (seconds() > deadline + 120)
				die("the peer does not come to an end");
			poll_some(20);
		}
		if (!link_recv(link, theirs, opts.qps * sizeof(*theirs)))
			die("the peer went away");
	}
	while (!all) {
		all = true;
		for (long qp = 0; qp < opts.qps; qp++)
			all &= conns[qp].received == theirs[qp].sent;
		if (!all && !poll_some(100) && seconds() > deadline)
			die("receive completions are missing");
	}
	for (long qp = 0; qp < opts.qps; qp++)
		if (places[qp].target != theirs[qp].written)
			die("QP %ld: %#lx was written last, but %#lx is there", qp, theirs[qp].written,
			    places[qp].target);
	if (poll_some(100))
		die("completions too many");
	free(theirs);
}

static void create(void)
{
	waiter.cq = cq_create(&dev, opts.qps * 2 * DEPTH, NULL);
	region_create(&region, opts.qps * sizeof(struct place), false);
	memset(region.area, 0, region.length);
	places = (struct place *)region.area;
	mr = mr_create(&dev, region.area, region.length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	qps = calloc(opts.qps, sizeof(struct ibv_qp *));
	conns = calloc(opts.qps, sizeof(*conns));
	if (!qps || !conns)
		die("no memory");
	for (long qp = 0; qp < opts.qps; qp++) {
		qps[qp] = qp_create(&dev, waiter.cq, DEPTH, DEPTH);
		for (int i = 0; i < DEPTH; i++)
			post_receive(qp);
	}
	peer.address = (uintptr_t)region.area;
	peer.rkey = mr->rkey;
}

int main(int argc, char **argv)
{
	double start = seconds(), created, connected, posted;
	struct rng rng;
	int link = -1;

	parse_options(argc, argv, what, table);
	check_range("qps", opts.qps, 1, 100000);
	if (opts.local)
		opts.qps = (opts.qps + 1) & ~1L;
	if (!opts.ops)
		opts.ops = 4 * opts.qps;
	rng = rng_create(opts.seed);
	device_open(&dev);
	if (!opts.local)
		link = link_open();
	create();
	created = seconds();
	if (opts.local) {
		for (long qp = 0; qp < opts.qps; qp++) {
			struct address to = qp_address(&dev, qps[partner(qp)]);

			qp_connect(&dev, qps[qp], qp_address(&dev, qps[qp]).psn, &to);
		}
	} else {
		link_send(link, &peer, sizeof(peer));
		if (!link_recv(link, &peer, sizeof(peer)))
			die("the peer went away");
		qps_connect(&dev, link, qps, opts.qps, NULL);
	}
	connected = seconds();
	post_all(&rng);
	posted = seconds();
	compare(link);
	region_check(&region, "the region");
	for (long qp = 0; qp < opts.qps; qp++)
		if (ibv_destroy_qp(qps[qp]))
			die("ibv_destroy_qp failed");
	if (ibv_dereg_mr(mr) || ibv_destroy_cq(waiter.cq))
		die("something cannot be destroyed");
	device_close(&dev);
	printf("QPs %ld requests %ld: created in %.1f s, connected in %.1f s, posted in %.1f s, destroyed in %.1f s\n",
	       opts.qps, opts.ops, created - start, connected - created, posted - connected, seconds() - posted);
	return OK;
}
