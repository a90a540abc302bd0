/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A ping-pong that checks everything: each received byte, each byte beside it, the order of
 * completions, and canaries around all memory. On each QP the two sides take turns. A turn is one
 * of five exchanges, each of which ends with a completion at the receiver.
 */
#include "common.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char what[] =
	"Usage: vr-pingpong [OPTIONS] [HOST]\n\n"
	"Exchanges messages with a second vr-pingpong and checks every byte of them. Without HOST it is the server; the\n"
	"client says what is exchanged and for how long; HOST - has it speak over standard input and output. SIGTERM at the client ends both well. Prints `running` when every\n"
	"QP has made a turn, and a line with counts at the end.";

static struct {
	long seconds, size, qps, stall;
	bool events, expect_error;
	const char *announce;
} opts = {.seconds = 3, .size = 4096, .qps = 1, .stall = 60};

static const struct option_spec table[] = {
	{"seconds", 's', NUMBER, &opts.seconds, "how long; 0: until SIGTERM (client)"},
	{"size", 'n', NUMBER, &opts.size, "largest message in bytes (client)"},
	{"qps", 'q', NUMBER, &opts.qps, "queue pairs (client)"},
	{"events", 'e', FLAG, &opts.events, "wait by completion events instead of polling"},
	{"expect-error", 0, FLAG, &opts.expect_error,
	 "the peer will be killed: succeed if a completion says so and all that is outstanding is flushed in order"},
	{"stall", 0, NUMBER, &opts.stall, "seconds without progress that are a failure"},
	{"announce", 0, TEXT, &opts.announce, "file to write our GID, keys, addresses and QPNs to, for vr-hostile"},
	{NULL, 0, FLAG, NULL, NULL},
};

/* The exchange of a turn. Its last message consumes a receive of the peer, and carries the
 * turn's number as immediate data. */
enum exchange { SEND, WRITE_SEND, WRITE_IMM, READ_SEND, ADD_SEND, EXCHANGES };

/* Bytes between two slots. Nothing may change them. */
#define GAP 64
#define SLOTS 2	 /* for each QP: slots of receives, and slots of messages being sent */
#define SENDS 4	 /* outstanding requests in each QP's send queue */
#define PROBE 255 /* in wr_id, instead of an exchange */

/* Each region has one or two slots for each QP. */
enum area { RECEIVE, TARGET, LANDING, SOURCE, OUTGOING, COUNTERS, AREAS };
static const char *const area_names[AREAS] = {"receive area", "write target", "read landing",
					      "read source",  "outgoing",     "counters"};

struct conn {
	struct ibv_qp *qp;
	uint32_t round;			 /* the next turn, of either side */
	bool ours;			 /* whether the next turn is this side's */
	uint64_t sent, sends_done;	 /* requests: posted, completed */
	uint64_t received, receives_done;
	uint64_t added;			 /* to the peer's counter so far */
	uint8_t kinds[SENDS];		 /* exchange of each outstanding request */
	bool reads[SENDS];		 /* whether it is the READ or atomic of the exchange */
	bool broken;
};

struct hello {
	uint32_t magic, qps, size;
	uint32_t rkeys[AREAS];
	uint64_t areas[AREAS];
};

static struct device dev;
static struct waiter waiter;
static struct region areas[AREAS];
static struct ibv_mr *mrs[AREAS];
static struct conn *conns;
static struct address *addresses; /* of the peer's QPs */
static struct hello peer;
static int server_link;
static bool client;
static size_t slot_size; /* without GAP */
static uint64_t rounds, bytes, flushed;
static bool failed_as_expected;
static enum ibv_wc_status first_error;
static volatile sig_atomic_t stop;

static void on_signal(int signal)
{
	(void)signal;
	stop = 1;
}

/* ---- the slots and their contents ---- */

static size_t slot_offset(enum area area, size_t qp, uint64_t slot)
{
	switch (area) {
	case RECEIVE:
	case OUTGOING:
		return (qp * SLOTS + slot % SLOTS) * (slot_size + GAP);
	case COUNTERS:
		/* The peer's counter, then the slot for the old value of the own counter. */
		return (qp * 2 + slot) * 8;
	default:
		return qp * (slot_size + GAP);
	}
}

static uint8_t *slot(enum area area, size_t qp, uint64_t slot)
{
	return areas[area].area + slot_offset(area, qp, slot);
}

static uint64_t seed(bool from_client, size_t qp, uint32_t round)
{
	return mix((uint64_t)qp << 33 | (uint64_t)from_client << 32 | round);
}

/* READs find the same data at all times. */
static uint64_t source_seed(bool from_client, size_t qp)
{
	return mix(~((uint64_t)qp << 1 | from_client));
}

static enum exchange kind_of(size_t qp, uint32_t round)
{
	enum exchange kind = (qp + round) % EXCHANGES;

	return kind == ADD_SEND && dev.attr.atomic_cap == IBV_ATOMIC_NONE ? SEND : kind;
}

static size_t length_of(size_t qp, uint32_t round)
{
	uint64_t random = mix(qp * 1000003 + round);

	return random % 4 ? 1 + (random >> 8) % slot_size : slot_size;
}

static void check_slot(enum area area, size_t qp, uint64_t index, size_t length, uint64_t pattern, uint32_t round)
{
	uint8_t *start = slot(area, qp, index);
	long wrong = pattern_check(start, length, pattern);

	if (wrong >= 0)
		die("QP %zu, turn %u: byte %ld of %zu in the %s is wrong", qp, round, wrong, length, area_names[area]);
	wrong = poison_check(start + length, slot_size + GAP - length);
	if (wrong >= 0)
		die("QP %zu, turn %u: byte %ld beyond the %zu in the %s was written", qp, round, wrong, length,
		    area_names[area]);
	memset(start, POISON, length);
}

/* ---- posting ---- */

static uint64_t wr_id(size_t qp, bool receive, uint64_t index)
{
	return (uint64_t)qp << 32 | (uint64_t)receive << 31 | (index & 0x7fffffff);
}

static void post_receive(size_t qp)
{
	struct conn *conn = &conns[qp];
	struct ibv_sge sge = {.addr = (uintptr_t)slot(RECEIVE, qp, conn->received),
			      .length = slot_size,
			      .lkey = mrs[RECEIVE]->lkey};
	struct ibv_recv_wr wr = {.wr_id = wr_id(qp, true, conn->received), .sg_list = &sge, .num_sge = 1}, *bad;
	int error = ibv_post_recv(conn->qp, &wr, &bad);

	if (error)
		die("QP %zu: ibv_post_recv: %s", qp, strerror(error));
	conn->received++;
}

static void post(size_t qp, struct ibv_send_wr *wr, uint8_t kind, bool read)
{
	struct conn *conn = &conns[qp];
	struct ibv_send_wr *bad;
	int error;

	wr->wr_id = wr_id(qp, false, conn->sent);
	wr->send_flags = IBV_SEND_SIGNALED;
	error = ibv_post_send(conn->qp, wr, &bad);
	if (error)
		die("QP %zu: ibv_post_send: %s", qp, strerror(error));
	conn->kinds[conn->sent % SENDS] = kind;
	conn->reads[conn->sent % SENDS] = read;
	conn->sent++;
}

static void take_turn(size_t qp)
{
	struct conn *conn = &conns[qp];
	const enum exchange kind = kind_of(qp, conn->round);
	const size_t length = length_of(qp, conn->round);
	uint8_t *message = slot(OUTGOING, qp, conn->round / 2);
	struct ibv_sge data = {.addr = (uintptr_t)message, .length = length, .lkey = mrs[OUTGOING]->lkey};
	struct ibv_sge landing = {
		.addr = (uintptr_t)slot(LANDING, qp, 0), .length = length, .lkey = mrs[LANDING]->lkey};
	struct ibv_sge old = {.addr = (uintptr_t)slot(COUNTERS, qp, 1), .length = 8, .lkey = mrs[COUNTERS]->lkey};
	struct ibv_send_wr wr = {.sg_list = &data, .num_sge = 1};
	struct ibv_send_wr last = {.opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htonl(conn->round)};

	pattern_fill(message, length, seed(client, qp, conn->round));
	wr.imm_data = last.imm_data;
	wr.wr.rdma.remote_addr = peer.areas[TARGET] + slot_offset(TARGET, qp, 0);
	wr.wr.rdma.rkey = peer.rkeys[TARGET];
	switch (kind) {
	case SEND:
		last.sg_list = &data;
		last.num_sge = 1;
		break;
	case WRITE_SEND:
		wr.opcode = IBV_WR_RDMA_WRITE;
		post(qp, &wr, kind, false);
		break;
	case WRITE_IMM:
		wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		last = wr;
		break;
	case READ_SEND:
		wr.opcode = IBV_WR_RDMA_READ;
		wr.sg_list = &landing;
		wr.wr.rdma.remote_addr = peer.areas[SOURCE] + slot_offset(SOURCE, qp, 0);
		wr.wr.rdma.rkey = peer.rkeys[SOURCE];
		post(qp, &wr, kind, true);
		break;
	default:
		wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr.sg_list = &old;
		wr.wr.atomic.remote_addr = peer.areas[COUNTERS] + slot_offset(COUNTERS, qp, 0);
		wr.wr.atomic.rkey = peer.rkeys[COUNTERS];
		wr.wr.atomic.compare_add = length;
		post(qp, &wr, kind, true);
		break;
	}
	post(qp, &last, kind, false);
	conn->ours = false;
	conn->round++;
	bytes += length;
}

/* ---- completions ---- */

static void check_receive(size_t qp, const struct ibv_wc *wc)
{
	struct conn *conn = &conns[qp];
	const enum exchange kind = kind_of(qp, conn->round);
	const size_t length = length_of(qp, conn->round);
	const bool whole = kind == SEND || kind == WRITE_IMM;

	if (conn->ours)
		die("QP %zu, turn %u: a message out of turn", qp, conn->round);
	if (!(wc->wc_flags & IBV_WC_WITH_IMM) || ntohl(wc->imm_data) != conn->round)
		die("QP %zu, turn %u: a message with immediate %u", qp, conn->round, ntohl(wc->imm_data));
	if (wc->byte_len != (whole ? length : 0) || wc->qp_num != conn->qp->qp_num)
		die("QP %zu, turn %u: length %u of %zu, QPN %#x of %#x", qp, conn->round, wc->byte_len, length,
		    wc->qp_num, conn->qp->qp_num);
	/* The receive's own slot holds the message, or is untouched. */
	check_slot(RECEIVE, qp, conn->receives_done - 1, kind == SEND ? length : 0, seed(!client, qp, conn->round),
		   conn->round);
	if (kind == WRITE_SEND || kind == WRITE_IMM)
		check_slot(TARGET, qp, 0, length, seed(!client, qp, conn->round), conn->round);
	post_receive(qp);
	conn->ours = true;
	conn->round++;
	rounds++;
}

static void check_send(size_t qp, uint64_t index)
{
	struct conn *conn = &conns[qp];
	/* The peer's answer can arrive before the local completion. */
	const uint32_t turn = conn->round - (conn->ours ? 2 : 1);
	const size_t length = length_of(qp, turn);
	uint64_t old;

	if (!conn->reads[index % SENDS])
		return;
	if (conn->kinds[index % SENDS] == READ_SEND) {
		check_slot(LANDING, qp, 0, length, source_seed(!client, qp), turn);
		return;
	}
	memcpy(&old, slot(COUNTERS, qp, 1), 8);
	if (old != conn->added)
		die("QP %zu, turn %u: FETCH_ADD found %lu instead of %lu", qp, turn, old, conn->added);
	conn->added += length;
}

/* Accounts for one completion. The order of failed ones is checked, too. */
static void complete(const struct ibv_wc *wc)
{
	const size_t qp = wc->wr_id >> 32;
	const bool receive = wc->wr_id >> 31 & 1;
	struct conn *conn;
	uint64_t *done;
	uint64_t posted;

	if (qp >= (size_t)opts.qps)
		die("a completion of QP %zu, which is none", qp);
	conn = &conns[qp];
	done = receive ? &conn->receives_done : &conn->sends_done;
	posted = receive ? conn->received : conn->sent;
	if (*done == posted || (*done & 0x7fffffff) != (wc->wr_id & 0x7fffffff))
		die("QP %zu: completion of %s %lu, but %lu of %lu is next", qp, receive ? "receive" : "send",
		    (unsigned long)(wc->wr_id & 0x7fffffff), *done, posted);
	++*done;
	if (wc->status == IBV_WC_SUCCESS) {
		if (conn->broken)
			die("QP %zu: success after an error", qp);
		if (receive)
			check_receive(qp, wc);
		else if (conn->kinds[(*done - 1) % SENDS] != PROBE)
			check_send(qp, *done - 1);
		return;
	}
	if (!opts.expect_error)
		die("QP %zu, turn %u: a %s ended with: %s", qp, conn->round, receive ? "receive" : "send",
		    ibv_wc_status_str(wc->status));
	if (conn->broken ? wc->status != IBV_WC_WR_FLUSH_ERR : wc->status == IBV_WC_WR_FLUSH_ERR && !failed_as_expected)
		die("QP %zu: a %s ended with: %s", qp, receive ? "receive" : "send", ibv_wc_status_str(wc->status));
	if (!failed_as_expected) {
		failed_as_expected = true;
		first_error = wc->status;
	}
	conn->broken = true;
	flushed += wc->status == IBV_WC_WR_FLUSH_ERR;
}

static bool poll_some(double ms)
{
	struct ibv_wc wc[32];
	int count = wait_completions(&waiter, wc, 32, ms);

	for (int i = 0; i < count; i++)
		complete(&wc[i]);
	return count > 0;
}

/* ---- the course of the game ---- */

/* Posts a request on each idle QP, so that a dead peer is noticed, as a program's keep-alives
 * do. */
static void probe(void)
{
	for (size_t qp = 0; qp < (size_t)opts.qps; qp++) {
		struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};

		if (conns[qp].sent == conns[qp].sends_done && !conns[qp].broken)
			post(qp, &wr, PROBE, false);
	}
}

static void flush_all(void)
{
	const double deadline = seconds() + opts.stall;
	bool all = false;

	/* Post one more request each: requests posted to a QP in ERR are flushed as well. */
	for (size_t qp = 0; qp < (size_t)opts.qps; qp++) {
		struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};

		if (!conns[qp].broken)
			qp_to_error(conns[qp].qp);
		/* From here on there are only flushes; the first may be of earlier requests. */
		if (conns[qp].sent - conns[qp].sends_done < SENDS)
			post(qp, &wr, PROBE, false);
	}
	while (!all) {
		if (seconds() > deadline)
			die("after the error, not all requests were flushed");
		poll_some(100);
		all = true;
		for (size_t qp = 0; qp < (size_t)opts.qps; qp++)
			all &= conns[qp].sent == conns[qp].sends_done &&
			       conns[qp].received == conns[qp].receives_done;
	}
	say("ended with an error as expected: %s; turns %lu, flushed %lu", ibv_wc_status_str(first_error), rounds,
	    flushed);
}

/* Returns whether the peer reports that it is done. */
static bool peer_done(void)
{
	char byte;

	if (!link_ready(server_link))
		return false;
	if (!link_recv(server_link, &byte, 1) || byte != 'D') {
		if (!opts.expect_error)
			die("the peer went away in turn %u", conns[0].round);
		return false;
	}
	return true;
}

static void check_regions(void)
{
	for (int area = 0; area < AREAS; area++)
		region_check(&areas[area], area_names[area]);
}

/* Ends the program, and prints the state of each QP. */
static _Noreturn void stalled(void)
{
	for (size_t qp = 0; qp < (size_t)opts.qps; qp++) {
		const struct conn *conn = &conns[qp];

		fprintf(stderr, "QP %zu (%#x): turn %u is %s; sends %lu of %lu done, receives %lu of %lu\n", qp,
			conn->qp->qp_num, conn->round, conn->ours ? "ours" : "the peer's", conn->sends_done, conn->sent,
			conn->receives_done, conn->received);
	}
	die("no progress for %ld s", opts.stall);
}

/* Returns when all turns are done, or when an expected error came. */
static void run(void)
{
	const double start = seconds(), end = opts.seconds ? start + opts.seconds : 1e18;
	double progress = start, checked = start;
	bool told = false;

	for (;;) {
		const bool ending = client && (stop || seconds() > end);
		bool quiet = true, all = true;

		for (size_t qp = 0; qp < (size_t)opts.qps; qp++) {
			struct conn *conn = &conns[qp];
			const bool idle = conn->sent == conn->sends_done;

			if (conn->ours && idle && !ending && !conn->broken)
				take_turn(qp);
			quiet &= conn->ours && idle;
			all &= conn->round > 1;
		}
		if (all && !told) {
			told = true;
			say("running");
		}
		if (ending && quiet)
			return;
		if (poll_some(client ? 50 : 20))
			progress = seconds();
		else if (!client && peer_done())
			return;
		if (failed_as_expected)
			return;
		if (opts.expect_error && seconds() > progress + 0.2)
			probe();
		if (seconds() > progress + opts.stall)
			stalled();
		if (seconds() > checked + 1) {
			check_regions();
			checked = seconds();
		}
	}
}

/* ---- set-up ---- */

static void announce(void)
{
	/* The file gets its final name when it is complete, so nobody reads half of it. */
	char name[4096];
	uint64_t gid[2];
	FILE *file;

	snprintf(name, sizeof(name), "%s.new", opts.announce);
	file = fopen(name, "w");
	if (!file)
		die_errno("%s", name);
	memcpy(gid, dev.gid.raw, sizeof(gid));
	fprintf(file, "gid %lu %lu 0\n", gid[0], gid[1]);
	for (int area = 0; area < AREAS; area++) {
		fprintf(file, "mr %u %lu %zu\n", mrs[area]->rkey, (unsigned long)areas[area].area, areas[area].length);
		fprintf(file, "mr %u %lu %zu\n", mrs[area]->lkey, (unsigned long)areas[area].area, areas[area].length);
	}
	for (size_t qp = 0; qp < (size_t)opts.qps; qp++)
		fprintf(file, "qp %u %u 0\n", conns[qp].qp->qp_num, addresses[qp].qpn);
	if (fclose(file) || rename(name, opts.announce))
		die_errno("%s", opts.announce);
}

static void create(void)
{
	static const int access[AREAS] = {
		[RECEIVE] = IBV_ACCESS_LOCAL_WRITE,
		[TARGET] = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
		[LANDING] = IBV_ACCESS_LOCAL_WRITE,
		[SOURCE] = IBV_ACCESS_REMOTE_READ,
		[COUNTERS] = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
	};
	struct ibv_comp_channel *channel = NULL;

	slot_size = opts.size;
	if (opts.events) {
		channel = ibv_create_comp_channel(dev.context);
		if (!channel)
			die_errno("ibv_create_comp_channel");
	}
	waiter.channel = channel;
	waiter.cq = cq_create(&dev, opts.qps * (SENDS + SLOTS), channel);
	for (int area = 0; area < AREAS; area++) {
		region_create(&areas[area], slot_offset(area, opts.qps, 0), false);
		mrs[area] = mr_create(&dev, areas[area].area, areas[area].length, access[area]);
	}
	memset(areas[COUNTERS].area, 0, areas[COUNTERS].length);
	conns = calloc(opts.qps, sizeof(*conns));
	if (!conns)
		die("no memory");
	for (size_t qp = 0; qp < (size_t)opts.qps; qp++) {
		conns[qp].qp = qp_create(&dev, waiter.cq, SENDS, SLOTS);
		conns[qp].ours = client;
		pattern_fill(slot(SOURCE, qp, 0), slot_size, source_seed(client, qp));
		for (int i = 0; i < SLOTS; i++)
			post_receive(qp);
	}
}

static void meet(void)
{
	struct hello ours = {.magic = 0x7672706f, .qps = opts.qps, .size = opts.size};
	struct ibv_qp **qps;

	/* Both sides use the client's numbers. */
	if (client) {
		link_send(server_link, &ours, sizeof(ours));
	} else {
		if (!link_recv(server_link, &peer, sizeof(peer)) || peer.magic != ours.magic)
			die("the client on the link speaks otherwise");
		opts.qps = peer.qps;
		opts.size = peer.size;
	}
	create();
	ours.qps = opts.qps;
	for (int area = 0; area < AREAS; area++) {
		ours.rkeys[area] = mrs[area]->rkey;
		ours.areas[area] = (uintptr_t)areas[area].area;
	}
	link_send(server_link, &ours, sizeof(ours));
	if (!link_recv(server_link, &peer, sizeof(peer)) || peer.magic != ours.magic)
		die("the peer went away");
	qps = calloc(opts.qps, sizeof(*qps));
	addresses = calloc(opts.qps, sizeof(*addresses));
	if (!qps || !addresses)
		die("no memory");
	for (size_t qp = 0; qp < (size_t)opts.qps; qp++)
		qps[qp] = conns[qp].qp;
	qps_connect(&dev, server_link, qps, opts.qps, addresses);
	free(qps);
	if (opts.announce)
		announce();
}

static void destroy(void)
{
	for (size_t qp = 0; qp < (size_t)opts.qps; qp++)
		if (ibv_destroy_qp(conns[qp].qp))
			die("ibv_destroy_qp failed");
	for (int area = 0; area < AREAS; area++)
		if (ibv_dereg_mr(mrs[area]))
			die("ibv_dereg_mr failed");
	if (ibv_destroy_cq(waiter.cq))
		die("ibv_destroy_cq failed");
	if (waiter.channel && ibv_destroy_comp_channel(waiter.channel))
		die("ibv_destroy_comp_channel failed");
	device_close(&dev);
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = on_signal};
	char done = 'D';

	parse_options(argc, argv, what, table);
	check_range("size", opts.size, 8, 64 << 20);
	check_range("qps", opts.qps, 1, 10000);
	client = common.peer != NULL;
	device_open(&dev);
	server_link = link_open();
	meet();
	if (client) {
		sigaction(SIGTERM, &action, NULL);
		sigaction(SIGINT, &action, NULL);
	}
	run();
	if (failed_as_expected) {
		flush_all();
	} else {
		link_send(server_link, &done, 1);
		if (client && (!link_recv(server_link, &done, 1) || done != 'D'))
			die("the peer went away at the end");
		say("turns %lu bytes %lu", rounds, bytes);
	}
	check_regions();
	destroy();
	return opts.expect_error && !failed_as_expected ? NOT_EXPECTED : OK;
}
