/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Posts WRITEs one at a time, with nothing else in between, to count system calls
 * (`strace -f -c vr-ops -n 1000`). The difference between two values of -n is caused by posting
 * and polling.
 */
#include "common.h"

#include <stdio.h>
#include <string.h>

static const char what[] =
	"Usage: vr-ops [OPTIONS] [HOST]\n\n"
	"Posts WRITEs of 8 bytes and polls, one at a time, to a second vr-ops (the server, which is the one without HOST) or\n"
	"with --local to itself. Each value is checked where it arrives, at the end by the server.";

static struct {
	long count;
	bool local;
} opts = {.count = 1000};

static const struct option_spec table[] = {
	{"count", 'n', NUMBER, &opts.count, "WRITEs (client)"},
	{"local", 'l', FLAG, &opts.local, "to a QP of our own; no server"},
	{NULL, 0, FLAG, NULL, NULL},
};

struct target {
	uint64_t address;
	uint32_t rkey;
};

static struct device dev;
static struct region region;
static struct ibv_cq *cq;
static struct ibv_qp *qp, *other;
static struct ibv_mr *mr;

static volatile uint64_t *arrived(void)
{
	return (volatile uint64_t *)region.area;
}

static void write_one(uint64_t value, const struct target *target)
{
	uint64_t *source = (uint64_t *)region.area + 1;
	struct ibv_sge sge = {.addr = (uintptr_t)source, .length = 8, .lkey = mr->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = value,
				       .sg_list = &sge,
				       .num_sge = 1,
				       .opcode = IBV_WR_RDMA_WRITE,
				       .send_flags = IBV_SEND_SIGNALED,
				       .wr.rdma = {.remote_addr = target->address, .rkey = target->rkey}};
	struct ibv_wc wc;
	int error, count;

	*source = value;
	error = ibv_post_send(qp, &wr, &bad);
	if (error)
		die("ibv_post_send: %s", strerror(error));
	for (unsigned long polls = 0; !(count = ibv_poll_cq(cq, 1, &wc)); polls++) {
		static double deadline;

		/* The time is read rarely, as that may be a system call. */
		if (polls % 10000000 == 9999999) {
			if (deadline && seconds() > deadline)
				die("WRITE %lu did not complete", value);
			if (!deadline)
				deadline = seconds() + 20;
		}
	}
	if (count < 0 || wc.status != IBV_WC_SUCCESS || wc.wr_id != value)
		die("WRITE %lu ended with: %s", value, count < 0 ? "poll error" : ibv_wc_status_str(wc.status));
	if (opts.local && *arrived() != value)
		die("WRITE %lu completed, but %lu is there", value, *arrived());
}

int main(int argc, char **argv)
{
	struct target target;
	uint64_t sum;
	int link = -1;

	parse_options(argc, argv, what, table);
	check_range("count", opts.count, 1, 1000000000);
	device_open(&dev);
	region_create(&region, 16, false);
	memset(region.area, 0, 16);
	mr = mr_create(&dev, region.area, 16, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	cq = cq_create(&dev, 16, NULL);
	qp = qp_create(&dev, cq, 4, 4);
	target = (struct target){(uintptr_t)region.area, mr->rkey};
	if (opts.local) {
		struct address ours = qp_address(&dev, qp), others;

		other = qp_create(&dev, cq, 4, 4);
		others = qp_address(&dev, other);
		qp_connect(&dev, qp, ours.psn, &others);
		qp_connect(&dev, other, others.psn, &ours);
	} else {
		link = link_open();
		link_send(link, &target, sizeof(target));
		if (!link_recv(link, &target, sizeof(target)))
			die("the peer went away");
		qps_connect(&dev, link, &qp, 1, NULL);
	}
	if (opts.local || common.peer)
		for (long i = 1; i <= opts.count; i++)
			write_one(i, &target);
	if (!opts.local && common.peer) {
		sum = opts.count;
		link_send(link, &sum, sizeof(sum));
		link_barrier(link);
	} else if (!opts.local) {
		if (!link_recv(link, &sum, sizeof(sum)))
			die("the client went away");
		if (sum != *arrived())
			die("the last WRITE was %lu, but %lu is there", sum, *arrived());
		link_barrier(link);
	}
	region_check(&region, "the region");
	if (ibv_destroy_qp(qp) || (other && ibv_destroy_qp(other)) || ibv_dereg_mr(mr) || ibv_destroy_cq(cq))
		die("something cannot be destroyed");
	device_close(&dev);
	printf("done\n");
	return OK;
}
