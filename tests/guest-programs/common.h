/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the guest programs share: options, errors, a TCP link to the peer, device and QPs, memory
 * with canaries, and patterns to fill it with.
 */
#ifndef COMMON_H
#define COMMON_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit statuses. */
enum {
	OK = 0,
	FAILED = 1,	 /* a check failed, or something that is needed did not work */
	USAGE = 2,	 /* mistyped options */
	NOT_EXPECTED = 3 /* an expected error did not come */
};

/* ---- errors and time ---- */

/* Prints the program's name and a message, and ends with status FAILED. */
_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same with the text of errno. */
_Noreturn void die_errno(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Seconds of the monotonic clock. */
double seconds(void);
void sleep_ms(double ms);

/* ---- options ---- */

enum option_kind { FLAG, NUMBER, TEXT };

struct option_spec {
	const char *name; /* without the dashes; NULL ends the table */
	char letter;	  /* or 0 */
	enum option_kind kind;
	void *value; /* bool, long or const char * */
	const char *help;
};

/* What all programs are told. */
struct common_options {
	const char *device; /* -d */
	long gid_index;	    /* -g; -1 is the first RoCE v2 GID of an IPv4 address */
	long port;	    /* -p: TCP port of the link */
	long timeout;	    /* --timeout: ACK timeout code of QPs */
	long retries;	    /* --retries */
	const char *peer;   /* host name: we are the client; -: over standard input and output; NULL: the server */
};
extern struct common_options common;

/* Parses the common options and these; --help prints `what` and the table. */
void parse_options(int argc, char **argv, const char *what, const struct option_spec *table);
/* Refuses a value that is not from `low` to `high`. */
void check_range(const char *name, long value, long low, long high);

/* ---- the link to the peer: TCP, or standard input and output ---- */

/* Listens or connects, as common.peer says. A client tries for a while. */
int link_open(void);
/* Prints a line for people: on standard error if the link has standard output. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void link_send(int link, const void *data, size_t length);
/* False when the peer is gone. */
bool link_recv(int link, void *data, size_t length);
/* Whether there is something to receive, or the peer is gone. */
bool link_ready(int link);
/* Both sides get here before either goes on. */
void link_barrier(int link);

/* ---- device and QPs ---- */

struct device {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	union ibv_gid gid;
	int gid_index;
};

/* What a QP's peer has to know. */
struct address {
	uint32_t qpn;
	uint32_t psn;
	uint32_t mtu; /* enum ibv_mtu; the lesser of both sides' is used */
	uint32_t reserved;
	union ibv_gid gid;
};

void device_open(struct device *device);
void device_close(struct device *device);
struct ibv_cq *cq_create(const struct device *device, unsigned entries, struct ibv_comp_channel *channel);
/* An RC QP in state INIT, of which all signalling is per request. */
struct ibv_qp *qp_create(const struct device *device, struct ibv_cq *cq, unsigned sends, unsigned receives);
struct address qp_address(const struct device *device, const struct ibv_qp *qp);
/* To RTR and RTS. */
void qp_connect(const struct device *device, struct ibv_qp *qp, uint32_t psn, const struct address *to);
/* Connects each with the peer's of the same index. `peers` may be NULL. */
void qps_connect(const struct device *device, int link, struct ibv_qp *const *qps, size_t count, struct address *peers);
void qp_to_error(struct ibv_qp *qp);
struct ibv_mr *mr_create(const struct device *device, void *area, size_t length, int access);

/* ---- waiting for completions ---- */

struct waiter {
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel; /* NULL: poll */
	unsigned idle;			  /* polls that found nothing, in a row */
};

/*
 * Up to `max` completions. Waits at most `ms` for the first: by events if there is a channel, or
 * else polling with ever longer pauses. 0 if there was none, or a signal came.
 */
int wait_completions(struct waiter *waiter, struct ibv_wc *wc, int max, double ms);

/* ---- memory with canaries ---- */

/* `length` usable bytes that neither begin nor end at a page's border, with canaries around, at
 * least a page each way. */
struct region {
	uint8_t *map;
	size_t map_length;
	uint8_t *area;
	size_t length;
};

/* `shared`: children of fork() use the same memory. */
void region_create(struct region *region, size_t length, bool shared);
/* Dies if a byte outside of the area was changed. */
void region_check(const struct region *region, const char *name);

/* ---- patterns ---- */

uint64_t mix(uint64_t value);
void pattern_fill(uint8_t *to, size_t length, uint64_t seed);
/* Index of the first byte that is wrong, or -1. */
long pattern_check(const uint8_t *bytes, size_t length, uint64_t seed);
/* What unused bytes hold. */
#define POISON 0xc5
/* Index of the first byte that is not POISON, or -1. */
long poison_check(const uint8_t *bytes, size_t length);

/* A random number generator with a seed that can be repeated. */
struct rng {
	uint64_t state;
};
/* With this seed, or if it is 0 with another one each time. Prints it. */
struct rng rng_create(long seed);
uint64_t rng_next(struct rng *rng);
/* 0..limit-1 */
uint64_t rng_below(struct rng *rng, uint64_t limit);

#endif
