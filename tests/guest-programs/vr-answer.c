// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * vr-answer: a server of datagrams that knows its clients by ibv_create_ah_from_wc(3) alone.
 *
 * The first 40 bytes of a receive are the IPv6 header of the datagram, or 20 unused bytes and its
 * IPv4 header (IBTA A17.4.5.1). Both ends compare this header with the known addresses, and the
 * checksum of an IPv4 header with its bytes.
 */
#include "common.h"

#include <arpa/inet.h>
#include <string.h>

enum { GRH = 40, LENGTH = 1000, ROUNDS = 50, QKEY = 0x11111111, MS = 60000 };

static const char what[] = "Answers datagrams by what their completions and headers say of the sender.";
static const struct option_spec table[] = {{.name = NULL}};

static struct device dev;
static struct region region;
static struct ibv_mr *mr;
static struct ibv_qp *qp;

static void to_rts(void)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};

	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY))
		die_errno("QP to INIT");
	attr.qp_state = IBV_QPS_RTR;
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE))
		die_errno("QP to RTR");
	attr.qp_state = IBV_QPS_RTS;
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN))
		die_errno("QP to RTS");
}

static void post_receive(void)
{
	struct ibv_sge sge = {(uintptr_t)region.area, GRH + LENGTH, mr->lkey};
	struct ibv_recv_wr *bad, wr = {.sg_list = &sge, .num_sge = 1};

	memset(region.area, POISON, GRH + LENGTH);
	if (ibv_post_recv(qp, &wr, &bad))
		die("ibv_post_recv");
}

/* Returns the next completion, which has to be a success. */
static struct ibv_wc completion(const char *of)
{
	struct waiter waiter = {.cq = qp->send_cq};
	struct ibv_wc wc;

	if (wait_completions(&waiter, &wc, 1, MS) != 1)
		die("no completion of %s within a minute", of);
	if (wc.status != IBV_WC_SUCCESS)
		die("%s: %s", of, ibv_wc_status_str(wc.status));
	return wc;
}

static void send_to(struct ibv_ah *ah, uint32_t qpn, uint64_t seed)
{
	uint8_t *data = region.area + GRH + LENGTH;
	struct ibv_sge sge = {(uintptr_t)data, LENGTH, mr->lkey};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge,
				       .num_sge = 1,
				       .opcode = IBV_WR_SEND,
				       .send_flags = IBV_SEND_SIGNALED,
				       .wr.ud = {.ah = ah, .remote_qpn = qpn, .remote_qkey = QKEY}};

	pattern_fill(data, LENGTH, seed);
	if (ibv_post_send(qp, &wr, &bad))
		die("ibv_post_send");
}

static uint16_t sum_of(const uint8_t *header)
{
	uint32_t sum = 0;

	for (int i = 0; i < 20; i += 2)
		sum += header[i] << 8 | header[i + 1];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* Checks a datagram of LENGTH bytes with this pattern, and its header from `from` to the own
 * GID. */
static void check(const struct ibv_wc *wc, const union ibv_gid *from, uint64_t seed)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	const uint8_t *header = region.area, *v4 = header + 20;
	long wrong = pattern_check(header + GRH, LENGTH, seed);

	if (wc->opcode != IBV_WC_RECV || wc->byte_len != GRH + LENGTH || wc->wc_flags != IBV_WC_GRH)
		die("a receive with opcode %d, %u bytes and flags %#x", wc->opcode, wc->byte_len, wc->wc_flags);
	if (wrong >= 0)
		die("byte %ld is not what was sent", wrong);
	if (memcmp(from->raw, mapped, sizeof(mapped)) == 0) {
		if (v4[0] != 0x45 || sum_of(v4) != 0xffff)
			die("an IPv4 header that begins with %#x, with sum %#x", v4[0], sum_of(v4));
		if (memcmp(v4 + 12, from->raw + 12, 4) || memcmp(v4 + 16, dev.gid.raw + 12, 4))
			die("other addresses in the IPv4 header");
	} else if (header[0] >> 4 != 6 || memcmp(header + 8, from->raw, 16) || memcmp(header + 24, dev.gid.raw, 16)) {
		die("other addresses in the IPv6 header, which begins with %#x", header[0]);
	}
}

static void serve(const struct address *client)
{
	for (uint64_t round = 0; round < ROUNDS; round++) {
		struct ibv_wc wc = completion("a request");
		struct ibv_ah *ah;

		check(&wc, &client->gid, round);
		ah = ibv_create_ah_from_wc(dev.pd, &wc, (struct ibv_grh *)region.area, 1);
		if (!ah)
			die_errno("ibv_create_ah_from_wc");
		/* The receive is posted before the answer. Otherwise the next request finds no
		 * receive. */
		post_receive();
		send_to(ah, wc.src_qp, ~round);
		completion("an answer");
		if (ibv_destroy_ah(ah))
			die("ibv_destroy_ah");
	}
}

static void ask(const struct address *server)
{
	struct ibv_ah_attr attr = {.is_global = 1,
				   .port_num = 1,
				   .grh = {.dgid = server->gid, .sgid_index = dev.gid_index, .hop_limit = 64}};
	struct ibv_ah *ah = ibv_create_ah(dev.pd, &attr);

	if (!ah)
		die_errno("ibv_create_ah");
	for (uint64_t round = 0; round < ROUNDS; round++) {
		struct ibv_wc wc;

		post_receive();
		send_to(ah, server->qpn, round);
		do
			wc = completion("a request or its answer");
		while (wc.opcode == IBV_WC_SEND);
		if (wc.src_qp != server->qpn)
			die("an answer of QP %#x, not %#x", wc.src_qp, server->qpn);
		check(&wc, &server->gid, ~round);
	}
	say("%d answers", ROUNDS);
}

int main(int argc, char **argv)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_UD,
					.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	struct address own, peer;
	int link;

	parse_options(argc, argv, what, table);
	device_open(&dev);
	region_create(&region, GRH + 2 * LENGTH, false);
	mr = mr_create(&dev, region.area, region.length, IBV_ACCESS_LOCAL_WRITE);
	init.send_cq = init.recv_cq = cq_create(&dev, 16, NULL);
	qp = ibv_create_qp(dev.pd, &init);
	if (!qp)
		die_errno("ibv_create_qp");
	to_rts();
	own = qp_address(&dev, qp);
	link = link_open();
	link_send(link, &own, sizeof(own));
	if (!link_recv(link, &peer, sizeof(peer)))
		die("the peer is gone");
	if (!common.peer)
		post_receive();
	link_barrier(link);
	if (common.peer)
		ask(&peer);
	else
		serve(&peer);
	region_check(&region, "the datagrams");
	link_barrier(link);
	return OK;
}
