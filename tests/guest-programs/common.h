/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the guest programs share: options, errors, a TCP link to the peer, device and QPs, memory
 * with canaries, and fill patterns.
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
	FAILED = 1,	 /* a check failed, or something needed did not work */
	USAGE = 2,	 /* mistyped options */
	NOT_EXPECTED = 3 /* an expected error did not come */
};

/* ---- errors and time ---- */

/* Prints the program's name and a message, and ends with status FAILED. */
_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints the program's name, a message and the text of errno, and ends with status FAILED. */
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

/* Options of all programs. */
struct common_options {
	const char *device; /* -d */
	long gid_index;	    /* -g; -1 is the first RoCE v2 GID of an IPv4 address */
	long port;	    /* -p: TCP port of the link */
	long timeout;	    /* --timeout: ACK timeout code of QPs */
	long retries;	    /* --retries */
	const char *peer;   /* host name: client; -: link over standard input and output; NULL: server */
};
extern struct common_options common;

/* Parses the common options and those of `table`. --help prints `what` and the table. */
void parse_options(int argc, char **argv, const char *what, const struct option_spec *table);
/* Ends with status USAGE if a value is not from `low` to `high`. */
void check_range(const char *name, long value, long low, long high);

/* ---- the link to the peer: TCP, or standard input and output ---- */

/* Listens or connects, as common.peer says. A client tries for a while. */
int link_open(void);
/* Prints a line for people: on standard error if the link uses standard output. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void link_send(int link, const void *data, size_t length);
/* Returns false if the peer is gone. */
bool link_recv(int link, void *data, size_t length);
/* Returns whether there is something to receive, or the peer is gone. */
bool link_ready(int link);
/* Waits until both sides have called this. */
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

/* What a QP's peer needs to know. */
struct address {
	uint32_t qpn;
	uint32_t psn;
	uint32_t mtu; /* enum ibv_mtu; the lesser of both sides' values is used */
	uint32_t reserved;
	union ibv_gid gid;
};

void device_open(struct device *device);
void device_close(struct device *device);
struct ibv_cq *cq_create(const struct device *device, unsigned entries, struct ibv_comp_channel *channel);
/* Creates an RC QP in state INIT. Each request chooses whether it is signaled. */
struct ibv_qp *qp_create(const struct device *device, struct ibv_cq *cq, unsigned sends, unsigned receives);
struct address qp_address(const struct device *device, const struct ibv_qp *qp);
/* Changes the state from INIT to RTR and RTS. */
void qp_connect(const struct device *device, struct ibv_qp *qp, uint32_t psn, const struct address *to);
/* Connects each QP with the peer's QP of the same index. `peers` may be NULL. */
void qps_connect(const struct device *device, int link, struct ibv_qp *const *qps, size_t count, struct address *peers);
void qp_to_error(struct ibv_qp *qp);
struct ibv_mr *mr_create(const struct device *device, void *area, size_t length, int access);

/* ---- waiting for completions ---- */

struct waiter {
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel; /* NULL: poll */
	unsigned idle;			  /* consecutive polls that found nothing */
};

/*
 * Returns up to `max` completions. Waits at most `ms` for the first one: by events if there is a
 * channel, otherwise by polling with increasing pauses. Returns 0 if there was none, or a signal
 * came.
 */
int wait_completions(struct waiter *waiter, struct ibv_wc *wc, int max, double ms);

/* ---- memory with canaries ---- */

/* `length` usable bytes that neither begin nor end at a page boundary. Canaries surround them,
 * at least a page on each side. */
struct region {
	uint8_t *map;
	size_t map_length;
	uint8_t *area;
	size_t length;
};

/* With `shared`, children of fork() use the same memory. */
void region_create(struct region *region, size_t length, bool shared);
/* Dies if a byte outside of the area has changed. */
void region_check(const struct region *region, const char *name);

/* ---- patterns ---- */

uint64_t mix(uint64_t value);
void pattern_fill(uint8_t *to, size_t length, uint64_t seed);
/* Returns the index of the first wrong byte, or -1. */
long pattern_check(const uint8_t *bytes, size_t length, uint64_t seed);
/* The value of unused bytes. */
#define POISON 0xc5
/* Returns the index of the first byte that is not POISON, or -1. */
long poison_check(const uint8_t *bytes, size_t length);

/* A random number generator whose seed can be repeated. */
struct rng {
	uint64_t state;
};
/* Creates a generator with this seed, or with another one each time if it is 0. Prints the
 * seed. */
struct rng rng_create(long seed);
uint64_t rng_next(struct rng *rng);
/* Returns a number from 0 to limit-1. */
uint64_t rng_below(struct rng *rng, uint64_t limit);

#endif
