/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Many idle connected QPs, with a single operation now and then. Each operation has to wake the
 * device and the peer's process if they sleep.
 */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char what[] =
	"Usage: vr-idle [OPTIONS] [HOST]\n\n"
	"Connects QPs with a second vr-idle (the server, which is the one without HOST), prints `idle`, and idles. Then the\n"
	"client does operations one at a time with pauses between: WRITEs, polled or by event, and SENDs that are answered.";

static struct {
	long qps, idle, ops, pause, deadline, seed;
} opts = {.qps = 100, .idle = 0, .ops = 1000, .pause = 20, .deadline = 60};

static const struct option_spec table[] = {
	{"qps", 'q', NUMBER, &opts.qps, "queue pairs (client)"},
	{"idle", 'i', NUMBER, &opts.idle, "seconds to idle; 0: until a line comes on standard input (client)"},
	{"ops", 'n', NUMBER, &opts.ops, "operations (client)"},
	{"pause", 0, NUMBER, &opts.pause, "longest pause between two operations, in ms (client)"},
	{"deadline", 0, NUMBER, &opts.deadline, "seconds that an operation may take (client)"},
	{"seed", 0, NUMBER, &opts.seed, "of the random choices; 0: another one each time (client)"},
	{NULL, 0, FLAG, NULL, NULL},
};

enum operation { WRITE_POLL, WRITE_EVENT, SEND_ANSWER, OPERATIONS };

struct hello {
	uint64_t qps, address;
	uint32_t rkey;
};

/* A QP's part of the region. */
struct place {
	uint64_t out, in, target;
};

static struct device dev;
static struct waiter waiter;
static struct region region;
static struct ibv_mr *mr;
static struct ibv_qp **qps;
static struct place *places;
static struct hello peer;

static void post_receive(size_t qp)
{
	struct ibv_sge sge = {.addr = (uintptr_t)&places[qp].in, .length = 8, .lkey = mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = qp, .sg_list = &sge, .num_sge = 1}, *bad;
	int error = ibv_post_recv(qps[qp], &wr, &bad);

	if (error)
		die("ibv_post_recv: %s", strerror(error));
}

static void post(size_t qp, enum ibv_wr_opcode opcode, uint64_t value)
{
	struct ibv_sge sge = {.addr = (uintptr_t)&places[qp].out, .length = 8, .lkey = mr->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = qp,
				       .sg_list = &sge,
				       .num_sge = 1,
				       .opcode = opcode,
				       .send_flags = IBV_SEND_SIGNALED,
				       .wr.rdma = {.remote_addr = peer.address + qp * sizeof(struct place) +
								  offsetof(struct place, target),
						   .rkey = peer.rkey}};
	int error;

	places[qp].out = value;
	error = ibv_post_send(qps[qp], &wr, &bad);
	if (error)
		die("ibv_post_send: %s", strerror(error));
}

static void check(const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS)
		die("QP %lu: %s", (unsigned long)wc->wr_id, ibv_wc_status_str(wc->status));
}

/* ---- the server: answers SENDs, and sleeps in between ---- */

static void serve(int link)
{
	struct ibv_wc wc;
	char byte;

	while (!link_ready(link)) {
		if (!wait_completions(&waiter, &wc, 1, 50))
			continue;
		check(&wc);
		if (wc.opcode & IBV_WC_RECV) {
			uint64_t value = places[wc.wr_id].in;

			post_receive(wc.wr_id);
			post(wc.wr_id, IBV_WR_SEND, value + 1);
		}
	}
	if (!link_recv(link, &byte, 1) || byte != 'D')
		die("the client went away");
}

/* ---- the client ---- */

/* Waits for `sends` and `receives` completions of the QP. */
static void await(size_t qp, int sends, int receives, bool event)
{
	const double deadline = seconds() + opts.deadline;
	struct waiter poller = {.cq = waiter.cq};
	struct ibv_wc wc;

	while (sends || receives) {
		if (!wait_completions(event ? &waiter : &poller, &wc, 1, 1000)) {
			if (seconds() > deadline)
				die("QP %zu: nothing within %ld s: a wake-up was lost", qp, opts.deadline);
			continue;
		}
		check(&wc);
		if (wc.wr_id != qp)
			die("QP %zu: a completion of QP %lu", qp, (unsigned long)wc.wr_id);
		if (wc.opcode & IBV_WC_RECV)
			receives--;
		else
			sends--;
		if (sends < 0 || receives < 0)
			die("QP %zu: a completion too many", qp);
	}
}

static void operate(size_t qp, enum operation operation, uint64_t value)
{
	switch (operation) {
	case WRITE_POLL:
	case WRITE_EVENT:
		post(qp, IBV_WR_RDMA_WRITE, value);
		await(qp, 1, 0, operation == WRITE_EVENT);
		break;
	default:
		post(qp, IBV_WR_SEND, value);
		await(qp, 1, 1, true);
		if (places[qp].in != value + 1)
			die("QP %zu: the answer to %lu is %lu", qp, value, places[qp].in);
		post_receive(qp);
		break;
	}
}

static void idle(void)
{
	char line[64];

	puts("idle");
	fflush(stdout);
	if (opts.idle)
		sleep_ms(opts.idle * 1e3);
	else if (!fgets(line, sizeof(line), stdin))
		die("standard input ended");
}

static void drive(int link)
{
	struct rng rng = rng_create(opts.seed);
	double longest = 0, sum = 0;
	char done = 'D';

	idle();
	for (long i = 0; i < opts.ops; i++) {
		double start = seconds(), took;

		operate(rng_below(&rng, opts.qps), rng_below(&rng, OPERATIONS), rng_next(&rng));
		took = seconds() - start;
		longest = took > longest ? took : longest;
		sum += took;
		sleep_ms(rng_below(&rng, opts.pause * 1000 + 1) / 1e3);
	}
	link_send(link, &done, 1);
	printf("operations %ld, mean %.3f ms, longest %.3f ms\n", opts.ops, opts.ops ? sum / opts.ops * 1e3 : 0,
	       longest * 1e3);
}

int main(int argc, char **argv)
{
	struct hello ours = {0};
	int link;

	parse_options(argc, argv, what, table);
	check_range("qps", opts.qps, 1, 10000);
	device_open(&dev);
	link = link_open();
	ours.qps = opts.qps;
	if (common.peer) {
		link_send(link, &ours, sizeof(ours));
	} else {
		if (!link_recv(link, &peer, sizeof(peer)))
			die("the client went away");
		ours.qps = opts.qps = peer.qps;
	}
	waiter.channel = ibv_create_comp_channel(dev.context);
	if (!waiter.channel)
		die_errno("ibv_create_comp_channel");
	waiter.cq = cq_create(&dev, opts.qps * 4, waiter.channel);
	region_create(&region, opts.qps * sizeof(struct place), false);
	places = (struct place *)region.area;
	mr = mr_create(&dev, region.area, region.length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	qps = calloc(opts.qps, sizeof(struct ibv_qp *));
	if (!qps)
		die("no memory");
	for (long i = 0; i < opts.qps; i++) {
		qps[i] = qp_create(&dev, waiter.cq, 2, 2);
		post_receive(i);
	}
	ours.address = (uintptr_t)region.area;
	ours.rkey = mr->rkey;
	link_send(link, &ours, sizeof(ours));
	if (!link_recv(link, &peer, sizeof(peer)))
		die("the peer went away");
	qps_connect(&dev, link, qps, opts.qps, NULL);
	if (common.peer)
		drive(link);
	else
		serve(link);
	region_check(&region, "the region");
	return OK;
}
