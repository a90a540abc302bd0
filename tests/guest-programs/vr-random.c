/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Random calls of the kernel's verbs, for a kernel that detects faults. Children make verbs calls
 * through the library, some of which are changed on their way into the kernel. A second thread of
 * each child calls the kernel directly, with random objects, methods and attributes. Their parent
 * kills them at random moments. The answers do not matter; the kernel has to survive.
 */
#include "calls.h"
#include "methods.h"
#include "vrdma_abi.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char what[] =
	"Usage: vr-random [OPTIONS]\n\n"
	"Makes random calls of the kernel's verbs, in processes that are killed at random moments. The device may come and go.\n"
	"Prints how many calls of each kind succeeded and were refused.";

static struct {
	long seconds, seed, workers;
} opts = {.seconds = 10, .workers = 3};

static const struct option_spec table[] = {
	{"seconds", 's', NUMBER, &opts.seconds, "how long"},
	{"seed", 0, NUMBER, &opts.seed, "of the random choices; 0: another one each time"},
	{"workers", 'w', NUMBER, &opts.workers, "processes at a time"},
	{NULL, 0, FLAG, NULL, NULL},
};

#define MOST_WORKERS 16

/* Written by children. */
static struct shared {
	uint64_t done[MOST_CALLS], refused[MOST_CALLS];
	uint64_t opened, changed, raw_done, raw_refused, mapped;
	struct method_counts methods;
} *shared;

static void count(uint64_t *counter)
{
	__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* ---- calls that are changed on their way into the kernel ---- */

/* One in this many calls is changed; 0: none. Each thread has its own value and random number
 * generator. */
static __thread unsigned change_one_in;
static __thread struct rng change_rng;

/* Memory for bad pointers: a page that exists, followed by one that does not. */
static uint8_t *edge;

static uint64_t odd_pointer(struct rng *rng)
{
	switch (rng_below(rng, 4)) {
	case 0:
		return (uintptr_t)edge + 4096 - rng_below(rng, 64);
	case 1:
		return 0xffff888000000000 + rng_below(rng, 1 << 24);
	case 2:
		return odd_number(rng);
	default:
		return (uintptr_t)edge + rng_below(rng, 2048);
	}
}

static void change_attr(struct ib_uverbs_attr *attr, struct rng *rng)
{
	switch (rng_below(rng, 8)) {
	case 0:
		attr->attr_id = rng_below(rng, 2) ? rng_below(rng, 40) : odd_number(rng);
		break;
	case 1:
		attr->len = odd_number(rng);
		break;
	case 2:
		attr->flags ^= 1 << rng_below(rng, 16);
		break;
	case 3:
		attr->attr_data.reserved = odd_number(rng);
		break;
	case 4:
		attr->data = odd_pointer(rng);
		break;
	default:
		/* Changes a word of the attribute's data, or the data itself if it is no
		 * pointer. */
		if (attr->len > 8 && attr->len <= 4096) {
			const size_t at = rng_below(rng, attr->len / 4) * 4;
			uint8_t *word = (uint8_t *)(uintptr_t)attr->data + at;
			const uint32_t value = odd_number(rng);

			memcpy(word, &value, 4);
		} else {
			attr->data = odd_number(rng);
		}
	}
}

static void change(struct ib_uverbs_ioctl_hdr *header, struct rng *rng)
{
	count(&shared->changed);
	for (unsigned changes = 1 + rng_below(rng, 2); changes; changes--) {
		const unsigned attrs = (header->length - sizeof(*header)) / sizeof(struct ib_uverbs_attr);

		switch (rng_below(rng, 12)) {
		case 0:
			header->object_id = rng_below(rng, 24);
			break;
		case 1:
			header->method_id = rng_below(rng, 12);
			break;
		case 2:
			header->num_attrs = odd_number(rng);
			break;
		case 3: /* fewer attributes than there are */
			if (attrs > 1) {
				header->num_attrs = attrs - 1;
				header->length -= sizeof(struct ib_uverbs_attr);
			}
			break;
		case 4: /* one of them twice */
			if (attrs > 1)
				((struct ib_uverbs_attr *)(header + 1))[rng_below(rng, attrs)] =
					((struct ib_uverbs_attr *)(header + 1))[rng_below(rng, attrs)];
			break;
		default:
			if (attrs)
				change_attr((struct ib_uverbs_attr *)(header + 1) + rng_below(rng, attrs), rng);
		}
	}
}

/* Replaces libc's ioctl, for the library too. */
int ioctl(int fd, unsigned long request, ...)
{
	bool is_changed = false;
	va_list arguments;
	void *argument;
	int result;

	va_start(arguments, request);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	if (request != RDMA_VERBS_IOCTL)
		return syscall(SYS_ioctl, fd, request, argument);
	if (change_one_in && !rng_below(&change_rng, change_one_in)) {
		change(argument, &change_rng);
		is_changed = true;
	}
	result = syscall(SYS_ioctl, fd, request, argument);
	/* A changed call is not counted: its number of attributes may be wrong. */
	if (shared && !is_changed) {
		const int error = errno;

		count_method(&shared->methods, argument, !result);
		errno = error;
	}
	return result;
}

/* ---- calls without the library ---- */

#define MOST_ATTRS 12

struct raw {
	struct ib_uverbs_ioctl_hdr header;
	struct ib_uverbs_attr attrs[MOST_ATTRS];
};

static bool raw_ioctl(int fd, struct raw *raw, unsigned attrs)
{
	raw->header.num_attrs = attrs;
	raw->header.length = sizeof(raw->header) + attrs * sizeof(raw->attrs[0]);
	const bool done = !syscall(SYS_ioctl, fd, RDMA_VERBS_IOCTL, raw);

	count_method(&shared->methods, &raw->header, done);
	return done;
}

/* Destroys any object with a random handle, without the library's knowledge. */
static bool destroy_raw(int fd, struct rng *rng)
{
	/* Object, method, attribute. The handle is each method's first attribute. */
	static const uint16_t methods[][3] = {
		{UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, UVERBS_ATTR_DESTROY_PD_HANDLE},
		{UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, UVERBS_ATTR_DESTROY_MR_HANDLE},
		{UVERBS_OBJECT_MW, UVERBS_METHOD_MW_DESTROY, UVERBS_ATTR_DESTROY_MW_HANDLE},
		{UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, UVERBS_ATTR_DESTROY_CQ_HANDLE},
		{UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, UVERBS_ATTR_DESTROY_QP_HANDLE},
		{UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY, UVERBS_ATTR_DESTROY_SRQ_HANDLE},
		{UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY, UVERBS_ATTR_DESTROY_AH_HANDLE},
		{UVERBS_OBJECT_XRCD, UVERBS_METHOD_XRCD_DESTROY, UVERBS_ATTR_DESTROY_XRCD_HANDLE},
		{UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE, UVERBS_ATTR_FREE_DM_HANDLE},
	};
	const uint16_t *method = methods[rng_below(rng, sizeof(methods) / sizeof(*methods))];
	uint8_t response[16] = {0};
	struct raw raw = {.header = {.object_id = method[0], .method_id = method[1]}};

	raw.attrs[0] = (struct ib_uverbs_attr){
		.attr_id = method[2], .flags = UVERBS_ATTR_F_MANDATORY, .data = rng_below(rng, 40)};
	raw.attrs[1] = (struct ib_uverbs_attr){.attr_id = method[2] + 1,
					       .flags = UVERBS_ATTR_F_MANDATORY,
					       .len = rng_below(rng, 2) ? 4 : 8,
					       .data = (uintptr_t)response};
	/* Some methods have a response. */
	return raw_ioctl(fd, &raw, rng_below(rng, 2) + 1);
}

/* Calls one of the driver's own methods. */
static bool own_method(int fd, struct rng *rng)
{
	uint8_t data[VRDMA_UVERBS_POST_MAX_UNITS * VRDMA_WQE_UNIT_SIZE];
	struct raw raw = {.header = {.object_id = VRDMA_UVERBS_OBJECT_CHANNEL,
				     .method_id = VRDMA_UVERBS_METHOD_POST + rng_below(rng, 7)}};
	const size_t length = rng_below(rng, 4) ? rng_below(rng, 8) * VRDMA_WQE_UNIT_SIZE : odd_number(rng);
	const bool ask = raw.header.method_id >= VRDMA_UVERBS_METHOD_QUERY_PD && rng_below(rng, 2);

	for (size_t i = 0; i < sizeof(data); i += 8)
		data[i] = odd_number(rng);
	raw.attrs[0] = (struct ib_uverbs_attr){.attr_id = VRDMA_UVERBS_ATTR_POST_UNITS,
					       .flags = UVERBS_ATTR_F_MANDATORY,
					       .len = length,
					       .data = length > sizeof(data) ? odd_pointer(rng) : (uintptr_t)data};
	raw.attrs[1] = (struct ib_uverbs_attr){.attr_id = VRDMA_UVERBS_ATTR_QUERY_HANDLE,
					       .flags = UVERBS_ATTR_F_MANDATORY,
					       .data = rng_below(rng, 40)};
	return raw_ioctl(fd, &raw, raw.header.method_id == VRDMA_UVERBS_METHOD_KICK ? 0 : 1 + ask);
}

/* Calls any method of any object, with any attributes. */
static bool any_method(int fd, struct rng *rng)
{
	const unsigned attrs = rng_below(rng, MOST_ATTRS + 1);
	struct raw raw = {.header = {.object_id = rng_below(rng, 20), .method_id = rng_below(rng, 10)}};

	for (unsigned i = 0; i < attrs; i++) {
		raw.attrs[i] = (struct ib_uverbs_attr){.attr_id = rng_below(rng, 16),
						       .flags = rng_below(rng, 2),
						       .len = rng_below(rng, 3) * 4,
						       .data = rng_below(rng, 20)};
		if (!rng_below(rng, 4))
			change_attr(&raw.attrs[i], rng);
	}
	return raw_ioctl(fd, &raw, attrs);
}

/* Calls the older interface: a command and its words, by write(). */
static bool write_command(int fd, struct rng *rng)
{
	struct {
		struct ib_uverbs_cmd_hdr header;
		uint64_t response;
		uint32_t words[60];
	} __attribute__((packed)) command;
	uint8_t response[512];
	const unsigned words = 2 + rng_below(rng, 30);

	command.header.command = rng_below(rng, IB_USER_VERBS_CMD_OPEN_QP + 1);
	command.header.in_words = (sizeof(command.header) + 4 * words) / 4;
	command.header.out_words = rng_below(rng, 8) ? 1 + rng_below(rng, sizeof(response) / 4) : odd_number(rng);
	command.response = rng_below(rng, 8) ? (uintptr_t)response : odd_pointer(rng);
	for (size_t i = 0; i < sizeof(command.words) / 4; i++)
		command.words[i] = odd_number(rng);
	const bool done = write(fd, &command, 4 * command.header.in_words) > 0;

	count_command(&shared->methods, command.header.command, done);
	return done;
}

/* Sends commands by write() as an old library makes them, for objects with random handles. */
static bool sound_command(int fd, struct rng *rng)
{
	/* Position of the handle and number of words, both in 4-byte words after the header.
	 * The response's address comes first, if there is one. */
	static const struct {
		uint8_t command, handle, words, response;
	} kinds[] = {
		{IB_USER_VERBS_CMD_QUERY_DEVICE, 0, 2, sizeof(struct ib_uverbs_query_device_resp) / 4},
		{IB_USER_VERBS_CMD_QUERY_PORT, 2, 4, sizeof(struct ib_uverbs_query_port_resp) / 4},
		{IB_USER_VERBS_CMD_DEALLOC_PD, 0, 1, 0},
		{IB_USER_VERBS_CMD_DESTROY_AH, 0, 1, 0},
		{IB_USER_VERBS_CMD_DEREG_MR, 0, 1, 0},
		{IB_USER_VERBS_CMD_DEALLOC_MW, 0, 1, 0},
		{IB_USER_VERBS_CMD_CLOSE_XRCD, 0, 1, 0},
		{IB_USER_VERBS_CMD_DESTROY_CQ, 2, 4, sizeof(struct ib_uverbs_destroy_cq_resp) / 4},
		{IB_USER_VERBS_CMD_DESTROY_QP, 2, 4, sizeof(struct ib_uverbs_destroy_qp_resp) / 4},
		{IB_USER_VERBS_CMD_DESTROY_SRQ, 2, 4, sizeof(struct ib_uverbs_destroy_srq_resp) / 4},
		{IB_USER_VERBS_CMD_QUERY_SRQ, 2, 4, sizeof(struct ib_uverbs_query_srq_resp) / 4},
	};
	const unsigned at = rng_below(rng, sizeof(kinds) / sizeof(*kinds));
	uint8_t response[512];
	struct {
		struct ib_uverbs_cmd_hdr header;
		union {
			uint64_t response;
			uint32_t words[4];
		};
	} command = {.header = {kinds[at].command, 2 + kinds[at].words, kinds[at].response}};

	if (kinds[at].response)
		command.response = (uintptr_t)response;
	if (kinds[at].command == IB_USER_VERBS_CMD_QUERY_PORT)
		command.words[2] = 1;
	else if (kinds[at].handle || !kinds[at].response)
		command.words[kinds[at].handle] = rng_below(rng, 40);
	const bool done = write(fd, &command, 4 * command.header.in_words) > 0;

	count_command(&shared->methods, command.header.command, done);
	return done;
}

/* Queries the handles of all objects of a kind. */
static bool info_handles(int fd, struct rng *rng)
{
	static const uint16_t kinds[] = {UVERBS_OBJECT_PD, UVERBS_OBJECT_CQ, UVERBS_OBJECT_QP, UVERBS_OBJECT_SRQ,
					 UVERBS_OBJECT_MR, UVERBS_OBJECT_MW, UVERBS_OBJECT_AH};
	struct raw raw = {.header = {.object_id = UVERBS_OBJECT_DEVICE, .method_id = UVERBS_METHOD_INFO_HANDLES}};
	uint32_t handles[16], total;

	raw.attrs[0] = (struct ib_uverbs_attr){.attr_id = UVERBS_ATTR_INFO_OBJECT_ID,
					       .flags = UVERBS_ATTR_F_MANDATORY,
					       .len = 8,
					       .data = kinds[rng_below(rng, sizeof(kinds) / sizeof(*kinds))]};
	raw.attrs[1] = (struct ib_uverbs_attr){.attr_id = UVERBS_ATTR_INFO_TOTAL_HANDLES,
					       .flags = UVERBS_ATTR_F_MANDATORY,
					       .len = sizeof(total),
					       .data = (uintptr_t)&total};
	raw.attrs[2] = (struct ib_uverbs_attr){.attr_id = UVERBS_ATTR_INFO_HANDLES_LIST,
					       .flags = UVERBS_ATTR_F_MANDATORY,
					       .len = sizeof(handles),
					       .data = (uintptr_t)handles};
	return raw_ioctl(fd, &raw, 3);
}

/* Maps other offsets of the device's file, with other rights. */
static bool map_any(int fd, struct rng *rng)
{
	const size_t length = 4096 * (1 + rng_below(rng, 20));
	const off_t offset = 4096 * (rng_below(rng, 4) ? rng_below(rng, 200) : odd_number(rng) >> 16);
	const int rights = rng_below(rng, 8);
	void *map = mmap(NULL, length, rights, rng_below(rng, 8) ? MAP_SHARED : MAP_PRIVATE, fd, offset);

	if (map == MAP_FAILED)
		return false;
	count(&shared->mapped);
	if (rng_below(rng, 2) && rights & PROT_WRITE)
		*(volatile uint16_t *)map = rng_next(rng);
	/* Remaining mappings end with the process. */
	if (rng_below(rng, 2))
		munmap(map, length);
	return true;
}

/* The second thread of a child. */
struct racer {
	int fd;
	struct rng rng;
};

static void *race(void *argument)
{
	static bool (*const kinds[])(int fd, struct rng *rng) = {
		destroy_raw, destroy_raw, own_method, any_method, write_command, sound_command, info_handles, map_any};
	struct racer *racer = argument;
	struct rng *rng = &racer->rng;

	for (;;) {
		const bool done = kinds[rng_below(rng, sizeof(kinds) / sizeof(*kinds))](racer->fd, rng);

		count(done ? &shared->raw_done : &shared->raw_refused);
		/* Not too often, so that some objects live long enough to be used. */
		sleep_ms(rng_below(rng, 8));
	}
	return NULL;
}

/* ---- a child ---- */

static struct ibv_context *open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	for (int i = 0; list && list[i] && !context; i++)
		if (!common.device || !strcmp(ibv_get_device_name(list[i]), common.device))
			context = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	return context;
}

static const struct call *choose(struct rng *rng)
{
	unsigned all = 0, at;

	for (const struct call *call = calls; call->name; call++)
		all += call->weight;
	at = rng_below(rng, all);
	for (const struct call *call = calls;; call++) {
		if (at < call->weight)
			return call;
		at -= call->weight;
	}
}

/* Uses a context for `length` calls. */
static bool live(struct rng seeds, unsigned length)
{
	struct world *world = calloc(1, sizeof(*world));
	struct racer *racer = calloc(1, sizeof(*racer));
	struct ibv_gid_entry gids[16];
	pthread_t thread;
	ssize_t found;

	world->rng.state = rng_next(&seeds);
	world->context = open_device();
	if (!world->context)
		return false;
	count(&shared->opened);
	fcntl(world->context->async_fd, F_SETFL, O_NONBLOCK);
	world->memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	found = ibv_query_gid_table(world->context, gids, 16, 0);
	if (found > 0) {
		const struct ibv_gid_entry *gid = &gids[rng_below(&seeds, found)];

		world->gid = gid->gid;
		world->gid_index = gid->gid_index;
	}
	change_rng.state = rng_next(&seeds);
	change_one_in = rng_below(&seeds, 3) ? 4 + rng_below(&seeds, 40) : 0;
	if (rng_below(&seeds, 2)) {
		racer->fd = world->context->cmd_fd;
		racer->rng.state = rng_next(&seeds);
		if (pthread_create(&thread, NULL, race, racer))
			return false;
	}
	for (unsigned i = 0; i < length; i++) {
		const struct call *call = choose(&world->rng);
		struct ibv_async_event event;

		count(call->make(world) ? &shared->done[call - calls] : &shared->refused[call - calls]);
		if (!ibv_get_async_event(world->context, &event))
			ibv_ack_async_event(&event);
	}
	/* This closes all its objects, too. A racer continues with another file, or none. */
	ibv_close_device(world->context);
	return true;
}

_Noreturn static void work(struct rng rng)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* Messages of the libraries are noise here. */
	if (!freopen("/dev/null", "w", stderr))
		_exit(FAILED);
	if (rng_below(&rng, 4) == 0)
		setenv("VRDMA_NO_CHANNEL", "1", 1);
	for (unsigned lives = 1 + rng_below(&rng, 3); lives; lives--) {
		/* There may be no device for a while. */
		while (!live((struct rng){rng_next(&rng)}, 20 + rng_below(&rng, 600)))
			sleep_ms(50);
	}
	_exit(OK);
}

/* ---- the parent ---- */

struct worker {
	pid_t pid;
	double end;
};

int main(int argc, char **argv)
{
	const struct rlimit none = {0, 0};
	struct worker workers[MOST_WORKERS] = {{0}};
	unsigned started = 0, killed = 0, crashed = 0;
	struct rng rng;
	double end;

	parse_options(argc, argv, what, table);
	check_range("workers", opts.workers, 1, MOST_WORKERS);
	setrlimit(RLIMIT_CORE, &none);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	edge = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED || edge == MAP_FAILED || munmap(edge + 4096, 4096))
		die_errno("no memory");
	rng = rng_create(opts.seed);
	fflush(stdout);
	end = seconds() + opts.seconds;
	while (seconds() < end) {
		for (int i = 0; i < opts.workers; i++) {
			struct worker *worker = &workers[i];
			int status;

			if (worker->pid && waitpid(worker->pid, &status, WNOHANG) == worker->pid) {
				crashed += WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL;
				worker->pid = 0;
			}
			if (worker->pid && seconds() > worker->end) {
				kill(worker->pid, SIGKILL);
				waitpid(worker->pid, &status, 0);
				worker->pid = 0;
				killed++;
			}
			if (!worker->pid) {
				const struct rng own = {rng_next(&rng)};

				worker->end = seconds() + 0.05 + rng_below(&rng, 8000) / 1e3;
				worker->pid = fork();
				if (worker->pid < 0)
					die_errno("fork");
				if (!worker->pid)
					work(own);
				started++;
			}
		}
		sleep_ms(10);
	}
	/* A child that does not die hangs in the kernel. */
	for (int i = 0; i < opts.workers; i++)
		if (workers[i].pid) {
			kill(workers[i].pid, SIGKILL);
			waitpid(workers[i].pid, NULL, 0);
		}
	for (size_t i = 0; calls[i].name; i++)
		printf("call %s %lu %lu\n", calls[i].name, shared->done[i], shared->refused[i]);
	printf("call raw %lu %lu\n", shared->raw_done, shared->raw_refused);
	print_methods(&shared->methods);
	printf("processes %u killed %u crashed %u opened %lu changed %lu mapped %lu\n", started, killed, crashed,
	       shared->opened, shared->changed, shared->mapped);
	return OK;
}
