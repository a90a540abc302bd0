// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * vr-destroyed: a client destroys everything that a request used, as soon as its completion is
 * there. It destroys the QP, the region and the address handle, and overwrites the memory. The
 * last request of each batch ends its process instead. The requests still have to take effect:
 * the server counts datagrams and checks what was written.
 *
 * A completion says that the memory may be reused (IBTA 10.8.5.1). For a datagram or an
 * unreliable WRITE it says that the message was sent. A message in flight no longer belongs to
 * the QP.
 */
#include "common.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GRH = 40, DATAGRAM = 1000, WRITTEN = 100000, QKEY = 0x11111111, MS = 60000, RIGHTS = IBV_ACCESS_REMOTE_WRITE };

static const char what[] = "Destroys QPs, regions and address handles right after completions; a server misses nothing.";
static const char *service = "ud";
static long rounds = 1000, batch = 100;
static const struct option_spec table[] = {
	{.name = "service", .kind = TEXT, .value = &service, .help = "ud, uc or rc [ud]"},
	{.name = "rounds", .letter = 'n', .kind = NUMBER, .value = &rounds, .help = "requests, each of a QP of its own [1000]"},
	{.name = "batch", .kind = NUMBER, .value = &batch, .help = "requests of a process, the last of which it ends with [100]"},
	{.name = NULL}};

/* What the client of a WRITE needs to know. */
struct target {
	struct address address;
	uint64_t to;
	uint32_t key;
	uint32_t reserved;
};

static enum ibv_qp_type type;
static struct device dev;
static struct ibv_cq *cq;

static void modify(struct ibv_qp *qp, struct ibv_qp_attr attr, int mask)
{
	if (ibv_modify_qp(qp, &attr, mask))
		die_errno("QP to state %d", attr.qp_state);
}

static struct ibv_qp *create(unsigned receives)
{
	struct ibv_qp_init_attr init = {
		.qp_type = type,
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = receives, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY, .qp_access_flags = RIGHTS};
	struct ibv_qp *qp = ibv_create_qp(dev.pd, &init);

	if (!qp)
		die_errno("ibv_create_qp");
	modify(qp, attr,
	       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		       (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
	return qp;
}

/* Changes the state to RTS; a datagram QP gets no peer. */
static void connect_to(struct ibv_qp *qp, const struct address *peer)
{
	struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR}, rts = {.qp_state = IBV_QPS_RTS};
	struct ibv_ah_attr way = {.is_global = 1, .port_num = 1};

	if (type == IBV_QPT_RC) {
		qp_connect(&dev, qp, qp_address(&dev, qp).psn, peer);
		return;
	}
	if (type == IBV_QPT_UD) {
		modify(qp, rtr, IBV_QP_STATE);
		modify(qp, rts, IBV_QP_STATE | IBV_QP_SQ_PSN);
		return;
	}
	way.grh.dgid = peer->gid;
	way.grh.sgid_index = dev.gid_index;
	way.grh.hop_limit = 64;
	rtr.ah_attr = way;
	rtr.path_mtu = dev.port.active_mtu < peer->mtu ? dev.port.active_mtu : peer->mtu;
	rtr.dest_qp_num = peer->qpn;
	rtr.rq_psn = peer->psn;
	modify(qp, rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN);
	rts.sq_psn = qp_address(&dev, qp).psn;
	modify(qp, rts, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

static bool polled(struct ibv_wc *wc, const char *of)
{
	struct waiter waiter = {.cq = cq};

	if (wait_completions(&waiter, wc, 1, MS) != 1)
		return false;
	if (wc->status != IBV_WC_SUCCESS)
		die("%s: %s", of, ibv_wc_status_str(wc->status));
	return true;
}

/* ---- the server ---- */

static void serve_datagrams(int link)
{
	const size_t slot = GRH + DATAGRAM;
	bool *seen = calloc(rounds, sizeof(*seen));
	struct region region;
	struct ibv_mr *mr;
	struct ibv_qp *qp = create(rounds);
	struct address own = qp_address(&dev, qp);
	char gone;

	region_create(&region, slot * rounds, false);
	mr = mr_create(&dev, region.area, region.length, IBV_ACCESS_LOCAL_WRITE);
	connect_to(qp, NULL);
	for (long i = 0; i < rounds; i++) {
		struct ibv_sge sge = {(uintptr_t)region.area + slot * i, slot, mr->lkey};
		struct ibv_recv_wr *bad, wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1};

		if (ibv_post_recv(qp, &wr, &bad))
			die("ibv_post_recv");
	}
	link_send(link, &own, sizeof(own));
	if (!link_recv(link, &gone, 1))
		die("the client ended early");
	for (long count = 0; count < rounds; count++) {
		struct ibv_wc wc;
		uint32_t round;

		if (!polled(&wc, "a receive"))
			die("%ld of %ld datagrams came", count, rounds);
		round = ntohl(wc.imm_data);
		if (round >= rounds || seen[round])
			die("datagram %u again, or none that was sent", round);
		seen[round] = true;
		if (wc.byte_len != slot || pattern_check(region.area + slot * wc.wr_id + GRH, DATAGRAM, round) >= 0)
			die("datagram %u is not what was sent", round);
	}
	region_check(&region, "the datagrams");
}

static void serve_writes(int link)
{
	struct region region;
	struct ibv_mr *mr;

	region_create(&region, WRITTEN, false);
	mr = mr_create(&dev, region.area, region.length, IBV_ACCESS_LOCAL_WRITE | RIGHTS);
	for (long round = 0; round < rounds; round++) {
		const double deadline = seconds() + MS / 1e3;
		struct ibv_qp *qp = create(1);
		struct target own = {qp_address(&dev, qp), (uintptr_t)region.area, mr->rkey, 0};
		struct address peer;
		char gone;

		memset(region.area, POISON, WRITTEN);
		link_send(link, &own, sizeof(own));
		if (!link_recv(link, &peer, sizeof(peer)))
			die("the client ended before round %ld", round);
		connect_to(qp, &peer);
		link_barrier(link);
		if (!link_recv(link, &gone, 1))
			die("the client ended in round %ld", round);
		/* The ACK of a reliable WRITE comes after its bytes. */
		while (pattern_check(region.area, WRITTEN, round) >= 0) {
			if (type == IBV_QPT_RC || seconds() > deadline)
				die("round %ld: byte %ld was not written", round, pattern_check(region.area, WRITTEN, round));
			sleep_ms(1);
		}
		if (ibv_destroy_qp(qp))
			die_errno("ibv_destroy_qp");
	}
	region_check(&region, "what was written");
}

/* ---- the client ---- */

/* Sends one request. The last request of a process ends it. */
static void ask(int link, const struct address *server, long round, bool last)
{
	const size_t length = type == IBV_QPT_UD ? DATAGRAM : WRITTEN;
	struct ibv_send_wr *bad, wr = {.num_sge = 1, .send_flags = IBV_SEND_SIGNALED, .imm_data = htonl(round)};
	struct ibv_ah_attr way = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = dev.gid_index, .hop_limit = 64}};
	struct ibv_qp *qp = create(1);
	struct ibv_ah *ah = NULL;
	struct region region;
	struct ibv_mr *mr;
	struct ibv_sge sge;
	struct ibv_wc wc;

	region_create(&region, length, false);
	pattern_fill(region.area, length, round);
	mr = mr_create(&dev, region.area, length, 0);
	sge = (struct ibv_sge){(uintptr_t)region.area, length, mr->lkey};
	wr.sg_list = &sge;
	if (type == IBV_QPT_UD) {
		connect_to(qp, NULL);
		way.grh.dgid = server->gid;
		ah = ibv_create_ah(dev.pd, &way);
		if (!ah)
			die_errno("ibv_create_ah");
		wr.opcode = IBV_WR_SEND_WITH_IMM;
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = server->qpn;
		wr.wr.ud.remote_qkey = QKEY;
	} else {
		struct address own = qp_address(&dev, qp);
		struct target target;

		link_send(link, &own, sizeof(own));
		if (!link_recv(link, &target, sizeof(target)))
			die("the server ended before round %ld", round);
		connect_to(qp, &target.address);
		link_barrier(link);
		wr.opcode = IBV_WR_RDMA_WRITE;
		wr.wr.rdma.remote_addr = target.to;
		wr.wr.rdma.rkey = target.key;
	}
	if (ibv_post_send(qp, &wr, &bad))
		die("ibv_post_send");
	if (!polled(&wc, "a request"))
		die("no completion of request %ld", round);
	if (last)
		_exit(OK);
	if (ibv_destroy_qp(qp) || ibv_dereg_mr(mr) || (ah && ibv_destroy_ah(ah)))
		die_errno("destroying what request %ld was made of", round);
	memset(region.area, POISON, length);
	munmap(region.map, region.map_length);
}

/* Runs processes that end one after the other. */
static void ask_all(int link)
{
	struct address server = {0};
	char gone = 'G';

	if (type == IBV_QPT_UD && !link_recv(link, &server, sizeof(server)))
		die("the server is gone");
	for (long first = 0; first < rounds; first += batch) {
		const long end = first + batch < rounds ? first + batch : rounds;
		pid_t child = fork();
		int status;

		if (child < 0)
			die_errno("fork");
		if (!child) {
			device_open(&dev);
			cq = cq_create(&dev, 16, NULL);
			for (long round = first; round < end; round++) {
				ask(link, &server, round, round + 1 == end);
				if (type != IBV_QPT_UD)
					link_send(link, &gone, 1);
			}
		}
		if (waitpid(child, &status, 0) != child || status)
			die("a process ended with %#x", status);
		if (type != IBV_QPT_UD)
			link_send(link, &gone, 1);
	}
	if (type == IBV_QPT_UD)
		link_send(link, &gone, 1);
}

int main(int argc, char **argv)
{
	int link;

	parse_options(argc, argv, what, table);
	check_range("rounds", rounds, 1, 4000);
	check_range("batch", batch, 1, 4000);
	if (!strcmp(service, "ud"))
		type = IBV_QPT_UD;
	else if (!strcmp(service, "uc"))
		type = IBV_QPT_UC;
	else if (!strcmp(service, "rc"))
		type = IBV_QPT_RC;
	else
		die("--service must be ud, uc or rc");
	link = link_open();
	if (common.peer) {
		ask_all(link);
	} else {
		device_open(&dev);
		cq = cq_create(&dev, rounds, NULL);
		if (type == IBV_QPT_UD)
			serve_datagrams(link);
		else
			serve_writes(link);
	}
	/* The server has seen all requests, or it is gone. */
	link_barrier(link);
	say("%ld requests of %s", rounds, service);
	return OK;
}
