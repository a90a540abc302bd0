/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A process that breaks every rule it can. It writes garbage into its rings, slots, CQs and
 * doorbell, names other processes' QPs and memory, and destroys objects in use. It works in
 * short-lived children, half of which are killed. Their parent checks that forbidden memory was
 * not touched.
 */
#include "channel.h"

#include <errno.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const char what[] =
	"Usage: vr-hostile [OPTIONS]\n\n"
	"Abuses the device in every way that a process can, and fails if it reads or changes what it must not, or maps what\n"
	"it must not. Works with vrdma devices only.";

static struct {
	long seconds, seed;
	const char *victims;
	bool verbose;
} opts = {.seconds = 30};

static const struct option_spec table[] = {
	{"seconds", 's', NUMBER, &opts.seconds, "how long"},
	{"seed", 0, NUMBER, &opts.seed, "of the random choices; 0: another one each time"},
	{"victims", 0, TEXT, &opts.victims, "files of vr-pingpong --announce, with commas between: QPs and memory to go for"},
	{"verbose", 'v', FLAG, &opts.verbose, "say what each child does, and keep what libraries say"},
	{NULL, 0, FLAG, NULL, NULL},
};

/* Regions. Requests may overwrite only the first; the names say why not the others. */
enum { OPEN, READ_ONLY, OTHER_PD, DEREGISTERED, UNREGISTERED, REGIONS };
static const char *const region_names[REGIONS] = {"open region", "read-only region", "region of another PD",
						  "deregistered region", "unregistered region"};
#define REGION_SIZE 70000
#define CQ_ENTRIES 256
#define QPS 8 /* 0-1, 2-3 connected; 4 in INIT; 5 towards a victim; 6 and 7 in ERR */

/* Written by children. */
static struct shared {
	uint64_t requests, by_kernel, refused, garbage, mappings, deaths, contexts, completions;
	uint32_t violations;
	bool abusing; /* the current child has begun to write garbage */
} *shared;

static struct region regions[REGIONS];
static struct rng rng;
static struct forge forge;
static struct device dev;
static struct channel channel;
static struct ibv_pd *other_pd;
static struct ibv_cq *cq;
static struct ibv_qp *qps[QPS];
static struct ibv_mr *mrs[REGIONS];
static uint8_t *cq_memory;
static size_t cq_length;

/* ---- objects ---- */

static void connect_pair(int first)
{
	struct address one = qp_address(&dev, qps[first]), two = qp_address(&dev, qps[first + 1]);

	qp_connect(&dev, qps[first], one.psn, &two);
	qp_connect(&dev, qps[first + 1], two.psn, &one);
}

/* Makes a pair usable again. The library may fail, because its CQ may hold garbage. */
static void revive_pair(int first)
{
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT,
				   .port_num = 1,
				   .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
						      IBV_ACCESS_REMOTE_ATOMIC};

	for (int i = first; i < first + 2; i++)
		if (ibv_modify_qp(qps[i], &reset, IBV_QP_STATE) ||
		    ibv_modify_qp(qps[i], &init,
				  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
			die("QP to RESET and INIT");
	connect_pair(first);
}

static void write_by_library(int qp)
{
	struct ibv_sge sge = {.addr = (uintptr_t)regions[OPEN].area, .length = 64, .lkey = mrs[OPEN]->lkey};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge,
				       .num_sge = 1,
				       .opcode = IBV_WR_RDMA_WRITE,
				       .send_flags = IBV_SEND_SIGNALED,
				       .wr.rdma = {.remote_addr = (uintptr_t)regions[OPEN].area + 1000,
						   .rkey = mrs[OPEN]->rkey}};
	int error = ibv_post_send(qps[qp], &wr, &bad);

	if (error)
		die("ibv_post_send: %s", strerror(error));
}

static void create_objects(void)
{
	const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_mr *gone;

	other_pd = ibv_alloc_pd(dev.context);
	if (!other_pd)
		die_errno("ibv_alloc_pd");
	mrs[OPEN] = mr_create(&dev, regions[OPEN].area, REGION_SIZE, all);
	mrs[READ_ONLY] = mr_create(&dev, regions[READ_ONLY].area, REGION_SIZE, IBV_ACCESS_REMOTE_READ);
	mrs[OTHER_PD] = ibv_reg_mr(other_pd, regions[OTHER_PD].area, REGION_SIZE, all);
	gone = mr_create(&dev, regions[DEREGISTERED].area, REGION_SIZE, all);
	if (!mrs[OTHER_PD])
		die_errno("ibv_reg_mr");

	forge.rng = &rng;
	forge.owns = 0;
	for (int i = 0; i < DEREGISTERED; i++) {
		const uint64_t address = (uintptr_t)regions[i].area;

		forge.own[forge.owns++] = (struct target){address, REGION_SIZE, mrs[i]->lkey};
		forge.own[forge.owns++] = (struct target){address, REGION_SIZE, mrs[i]->rkey};
	}
	forge.own[forge.owns++] = (struct target){(uintptr_t)regions[DEREGISTERED].area, REGION_SIZE, gone->rkey};
	forge.own[forge.owns++] = (struct target){(uintptr_t)regions[UNREGISTERED].area, REGION_SIZE, mrs[OPEN]->rkey};
	if (ibv_dereg_mr(gone))
		die("ibv_dereg_mr");

	cq = cq_create(&dev, CQ_ENTRIES, NULL);
	cq_length = CQ_ENTRIES * sizeof(struct vrdma_cqe) + sizeof(struct vrdma_cq_record);
	for (int i = 0; i < QPS; i++)
		qps[i] = qp_create(&dev, cq, 64, 64);
	connect_pair(0);
	connect_pair(2);
	if (forge.foreign_qp_count) {
		struct address victim = {.qpn = forge.foreign_qps[0], .mtu = IBV_MTU_1024, .gid = forge.foreign_gid};

		qp_connect(&dev, qps[5], 0, &victim);
	}
	qp_to_error(qps[6]);
	qp_to_error(qps[7]);
	forge.own_qp_count = QPS;
	for (int i = 0; i < QPS; i++)
		forge.own_qps[i] = qps[i]->qp_num;

	/* The library's first own request shows where its CQ is. */
	write_by_library(0);
	for (double deadline = seconds() + 60; !cq_memory; cq_memory = cq_find(qps[0]->qp_num))
		if (seconds() > deadline)
			die("no completion of the first WRITE can be found");
}

/* ---- attacks ---- */

static void count(uint64_t *counter, uint64_t n)
{
	__atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

static void scribble(uint8_t *start, size_t length, unsigned words)
{
	count(&shared->garbage, words);
	for (; words; words--) {
		const size_t at = rng_below(&rng, length / 8) * 8;

		*(volatile uint64_t *)(start + at) = rng_below(&rng, 4) ? rng_next(&rng) : 0;
	}
}

/* Posts forged requests that follow the rules of the ring. Returns false if the device ignores
 * this channel. */
static bool post_forged(void)
{
	uint8_t units[VRDMA_WQE_MAX_UNITS_V1_1 * VRDMA_WQE_UNIT_SIZE];

	for (unsigned i = 1 + rng_below(&rng, 12); i; i--) {
		const unsigned length = forge_request(&forge, units);

		if (!channel_post(&channel, units, length))
			return false;
		count(&shared->requests, 1);
	}
	channel_kick(&channel, rng_next(&rng));
	return true;
}

static void break_rings(void)
{
	volatile uint16_t *index = avail_idx(&channel);
	const unsigned entries = channel.entries;

	switch (rng_below(&rng, 8)) {
	case 0: /* far ahead */
		*index += entries + 1 + rng_below(&rng, 65535 - entries);
		break;
	case 1: /* back */
		*index -= 1 + rng_below(&rng, entries);
		break;
	case 2: /* numbers that no slot has */
		for (unsigned i = 0; i < 4; i++)
			avail_ring(&channel)[rng_below(&rng, entries)] = entries + rng_below(&rng, 65536 - entries);
		*index += 1 + rng_below(&rng, entries);
		break;
	case 3: /* the same slot again and again */
		for (unsigned i = 0; i < entries; i++)
			avail_ring(&channel)[i] = 7;
		*index += entries;
		break;
	case 4: /* flags and used_event */
		index[-1] = rng_next(&rng);
		avail_ring(&channel)[entries] = rng_next(&rng);
		break;
	case 5: /* the device's own ring */
		scribble(channel.rings.start + channel.used_offset, 8 * entries, 40);
		*used_idx(&channel) = rng_next(&rng);
		break;
	case 6: /* slots change while the device reads */
		*index += entries / 2;
		channel_kick(&channel, 0);
		scribble(channel.slots.start, channel.slots.length, 2000);
		break;
	default:
		scribble(channel.rings.start, channel.rings.length, 100);
		break;
	}
	channel_kick(&channel, rng_next(&rng));
}

static void break_cq(void)
{
	struct vrdma_cq_record *record = (struct vrdma_cq_record *)(cq_memory + CQ_ENTRIES * sizeof(struct vrdma_cqe));

	switch (rng_below(&rng, 4)) {
	case 0:
		scribble(cq_memory, cq_length, 200);
		break;
	case 1:
		record->consumer += rng_next(&rng) >> rng_below(&rng, 32);
		break;
	case 2:
		record->arm_next += 1 + rng_below(&rng, 5);
		record->arm_solicited = rng_next(&rng);
		break;
	default: /* as a program that polls; otherwise the CQ overruns soon */
		record->consumer += rng_below(&rng, 64);
		break;
	}
}

static void ring_doorbell(void)
{
	uint8_t *page = channel.doorbell.start;

	for (unsigned i = rng_below(&rng, 8); i; i--) {
		const size_t at = rng_below(&rng, channel.doorbell.length / 8) * 8;

		switch (rng_below(&rng, 4)) {
		case 0:
			*(volatile uint8_t *)(page + at + 3) = rng_next(&rng);
			break;
		case 1:
			*(volatile uint32_t *)(page + at) = rng_next(&rng);
			break;
		case 2:
			*(volatile uint64_t *)(page + at) = rng_next(&rng);
			break;
		default:
			channel_kick(&channel, rng_next(&rng));
			break;
		}
	}
}

static void pull_away(void)
{
	switch (rng_below(&rng, 4)) {
	case 0:
		madvise(cq_memory, 8192, MADV_DONTNEED);
		break;
	case 1: /* a region that requests use; it returns under another key */
		if (ibv_dereg_mr(mrs[OPEN]))
			die("ibv_dereg_mr");
		mrs[OPEN] = mr_create(&dev, regions[OPEN].area, REGION_SIZE, IBV_ACCESS_LOCAL_WRITE);
		forge.own[0].key = mrs[OPEN]->lkey;
		break;
	case 2:
		qp_to_error(qps[rng_below(&rng, QPS)]);
		break;
	default:
		revive_pair(rng_below(&rng, 2) * 2);
		break;
	}
}

/* Posts garbage and forged requests through the kernel. */
static void post_by_kernel(void)
{
	uint8_t units[(VRDMA_UVERBS_POST_MAX_UNITS + VRDMA_WQE_MAX_UNITS_V1_1) * VRDMA_WQE_UNIT_SIZE];
	struct {
		struct ib_uverbs_ioctl_hdr header;
		struct ib_uverbs_attr attr;
	} command = {
		.header = {.length = sizeof(command),
			   .object_id = VRDMA_UVERBS_OBJECT_CHANNEL,
			   .method_id = VRDMA_UVERBS_METHOD_POST,
			   .num_attrs = 1},
		.attr = {.attr_id = VRDMA_UVERBS_ATTR_POST_UNITS,
			 .flags = UVERBS_ATTR_F_MANDATORY,
			 .data = (uintptr_t)units},
	};
	size_t length = 0;

	do
		length += forge_request(&forge, units + length * VRDMA_WQE_UNIT_SIZE);
	while (length < VRDMA_UVERBS_POST_MAX_UNITS && rng_below(&rng, 4));
	command.attr.len = length * VRDMA_WQE_UNIT_SIZE + (rng_below(&rng, 20) ? 0 : rng_below(&rng, 64));
	if (!rng_below(&rng, 20))
		command.attr.len = rng_next(&rng);
	if (!rng_below(&rng, 50))
		command.header.method_id = VRDMA_UVERBS_METHOD_KICK;
	if (ioctl(dev.context->cmd_fd, RDMA_VERBS_IOCTL, &command))
		count(&shared->refused, 1);
	count(&shared->by_kernel, 1);
}

/* ---- a child ---- */

/* Keeps the mappings beyond the child's own life. */
static void linger(void)
{
	if (rng_below(&rng, 4) || fork())
		return;
	for (int i = 0; i < 20; i++) {
		scribble(channel.rings.start, channel.rings.length, 50);
		channel_kick(&channel, 0);
		sleep_ms(5);
	}
	_exit(0);
}

static void attack_by_channel(double end)
{
	/* Forged requests first: broken rings end the channel's life. */
	unsigned patience = 1 + rng_below(&rng, 300);

	while (seconds() < end) {
		switch (rng_below(&rng, patience ? 10 : 14)) {
		case 0:
			break_cq();
			break;
		case 1:
			ring_doorbell();
			break;
		case 2:
			pull_away();
			break;
		case 10: /* The library does not know these requests, so the index goes back. */
			write_by_library(0);
			break;
		case 11:
		case 12:
		case 13:
			break_rings();
			break;
		default:
			/* A QP in ERR only flushes requests, which tests little. */
			revive_pair(rng_below(&rng, 2) * 2);
			if (!post_forged()) {
				count(&shared->deaths, 1);
				return;
			}
			patience -= patience > 0;
			break;
		}
	}
}

static void attack(bool by_kernel, double duration)
{
	struct mapping own[MAX_MAPPINGS];
	size_t owns;

	if (by_kernel)
		setenv("VRDMA_NO_CHANNEL", "1", 1);
	device_open(&dev);
	count(&shared->contexts, 1);
	owns = mappings_find(own);
	if (by_kernel ? owns != 0 : !channel_find(&channel))
		die("the channel is mapped otherwise than expected: %zu mappings", owns);
	if (!by_kernel)
		channel_check_fresh(&channel);
	shared->violations += mappings_probe(dev.context->cmd_fd, own, owns, &rng, &shared->mappings);
	fflush(stdout);
	create_objects();
	shared->abusing = true;
	/* From here on, the library's messages about garbage in its own memory are noise. */
	if (!opts.verbose && !freopen("/dev/null", "w", stderr))
		die_errno("/dev/null");
	if (by_kernel) {
		for (double end = seconds() + duration; seconds() < end;) {
			for (int i = 0; i < 20; i++)
				post_by_kernel();
			if (rng_below(&rng, 4))
				revive_pair(rng_below(&rng, 2) * 2);
			else if (rng_below(&rng, 2))
				break_cq();
			else
				pull_away();
		}
		return;
	}
	attack_by_channel(seconds() + duration);
	linger();
	sleep_ms(rng_below(&rng, 20));
	/* The library may crash on garbage in its own memory, which is accepted. */
	if (rng_below(&rng, 2)) {
		struct ibv_wc wc[16];

		for (int i = 0; i < 20; i++)
			count(&shared->completions, ibv_poll_cq(cq, 16, wc) > 0);
		for (int i = 0; i < QPS; i++)
			ibv_destroy_qp(qps[i]);
		ibv_destroy_cq(cq);
		ibv_close_device(dev.context);
	}
}

/* ---- the parent ---- */

static void check_regions(void)
{
	for (int i = 0; i < REGIONS; i++) {
		long wrong;

		region_check(&regions[i], region_names[i]);
		wrong = i == OPEN ? -1 : pattern_check(regions[i].area, REGION_SIZE, i);
		if (wrong >= 0)
			die("byte %ld of the %s was changed", wrong, region_names[i]);
	}
	if (shared->violations)
		die("%u mappings that must not be", shared->violations);
}

/* Runs a child and ends it. Returns false if one of its checks failed. */
static bool run_child(uint64_t seed)
{
	const double duration = 0.1 + mix(seed) % 1000 / 500.0, start = seconds();
	const bool by_kernel = mix(seed + 1) % 4 == 0, murder = mix(seed + 2) % 2;
	pid_t child;
	int status;

	shared->abusing = false;
	fflush(stdout);
	child = fork();
	if (child < 0)
		die_errno("fork");
	if (!child) {
		rng.state = seed;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		attack(by_kernel, murder ? 1000 : duration);
		_exit(OK);
	}
	for (;;) {
		const double age = seconds() - start;

		if (waitpid(child, &status, WNOHANG) == child)
			break;
		if (murder ? age > duration + 0.3 : age > duration + 20) {
			kill(child, SIGKILL);
			if (!murder)
				printf("child of seed %lu: killed, as it did not end\n", seed);
			waitpid(child, &status, 0);
			break;
		}
		sleep_ms(10);
	}
	if (opts.verbose)
		printf("child of seed %lu: %s, %.1f s, status %#x\n", seed, by_kernel ? "by the kernel" : "by its channel",
		       duration, status);
	/* A child may crash once its library's memory is full of garbage. Failures before that
	 * count. */
	return shared->abusing || (murder && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

int main(int argc, char **argv)
{
	const struct rlimit none = {0, 0};
	unsigned children = 0;
	struct rng seeds;
	double end;

	parse_options(argc, argv, what, table);
	for (char *copy = strdup(opts.victims ? opts.victims : ""), *path = strtok(copy, ","); path;
	     path = strtok(NULL, ","))
		forge_read(&forge, path);
	setrlimit(RLIMIT_CORE, &none);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		die_errno("no memory");
	for (int i = 0; i < REGIONS; i++) {
		region_create(&regions[i], REGION_SIZE, true);
		pattern_fill(regions[i].area, REGION_SIZE, i);
	}
	seeds = rng_create(opts.seed);
	end = seconds() + opts.seconds;
	for (; seconds() < end; children++) {
		if (!run_child(rng_next(&seeds) >> 8))
			die("a child found a fault");
		check_regions();
	}
	printf("children %u contexts %lu requests %lu by-kernel %lu refused %lu garbage %lu dead-channels %lu mappings-tried %lu\n",
	       children, shared->contexts, shared->requests, shared->by_kernel, shared->refused, shared->garbage,
	       shared->deaths, shared->mappings);
	return OK;
}
