// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * vr-private-data: the private data of rdma_connect, rdma_accept and rdma_reject, of all lengths.
 *
 * RoCE has 56, 196 and 148 bytes for it (rdma_connect(3), rdma_accept(3), rdma_reject(3)).
 * Shorter data arrives padded with zeroes, longer data is EINVAL. With iWARP the data arrives in
 * its own length (RFC 5044 7.1), up to the 255 bytes that a program can request.
 *
 * Server and client go through the same list, with one connection for each entry. If a RoCE
 * message has less room than an entry, the entry's length is refused first. Then as many bytes
 * are sent as fit. A refused accept rejects the connection, so that case comes last.
 *
 * All connections may have a traffic class (RDMA_OPTION_ID_TOS of rdma_set_option(3)).
 */
#include "common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int LENGTHS[] = { 255, 0, 1, 55, 56, 57, 147, 148, 149, 195, 196, 197, 255, 0 };
enum { COUNT = sizeof(LENGTHS) / sizeof(*LENGTHS) };

enum { CONNECT = 56, ACCEPT = 196, REJECT = 148 };

static struct rdma_event_channel *channel;
static bool iwarp;
/* The traffic class as in the IP header; negative if none is requested. */
static int tos = -1;

/* Waits for the next event and checks its kind. */
static struct rdma_cm_event *expect(enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event;

	if (rdma_get_cm_event(channel, &event))
		die_errno("rdma_get_cm_event");
	if (event->event != wanted)
		die("%s with status %d, not %s", rdma_event_str(event->event), event->status,
		    rdma_event_str(wanted));
	return event;
}

static void ack(struct rdma_cm_event *event)
{
	if (rdma_ack_cm_event(event))
		die_errno("rdma_ack_cm_event");
}

static void fill(uint8_t *data, int length, int seed)
{
	for (int i = 0; i < length; i++)
		data[i] = (uint8_t)(seed + i) | 1;
}

/* Checks that the data arrived as sent, padded with zeroes if a RoCE message has more room. */
static void check(const struct rdma_cm_event *event, int length, int room, int seed)
{
	const struct rdma_conn_param *conn = &event->param.conn;
	const uint8_t *data = conn->private_data;
	uint8_t wanted[255] = {};
	int whole = iwarp ? length : room;

	if (conn->private_data_len != whole)
		die("%s: %u bytes of private data, not %d", rdma_event_str(event->event),
		    conn->private_data_len, whole);
	fill(wanted, length, seed);
	for (int i = 0; i < whole; i++)
		if (data[i] != wanted[i])
			die("%s, %d bytes: byte %d is %#x, not %#x", rdma_event_str(event->event), length, i,
			    data[i], wanted[i]);
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	if (rdma_create_qp(id, NULL, &attr))
		die_errno("rdma_create_qp");
}

static void destroy(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	if (rdma_destroy_id(id))
		die_errno("rdma_destroy_id");
}

/* Returns the answer's length, which differs from the request's. */
static int answer_of(int number)
{
	return LENGTHS[COUNT - 1 - number];
}

/* Returns how many of `length` bytes are sent in a message that has room for `room` bytes. */
static int sent(int length, int room)
{
	return iwarp || length <= room ? length : room;
}

/* Checks that private data that does not fit was refused. */
static void expect_refusal(int result, int length, const char *what)
{
	if (result != -1 || errno != EINVAL)
		die("%s with %d bytes of private data: %s, not EINVAL", what, length, result ? strerror(errno) : "done");
}

/* Waits for the next request, which has to have `length` bytes. */
static struct rdma_cm_id *requested(int length)
{
	struct rdma_cm_event *event = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;

	check(event, sent(length, CONNECT), CONNECT, length);
	ack(event);
	return id;
}

static void serve_one(int number, bool accept)
{
	struct rdma_cm_id *id = requested(LENGTHS[number]);
	int length = answer_of(number), room = accept ? ACCEPT : REJECT, replied = sent(length, room);
	struct rdma_conn_param param = {};
	uint8_t data[255];

	fill(data, sizeof(data), length + 7);
	if (!accept) {
		if (replied < length)
			expect_refusal(rdma_reject(id, data, length), length, "rdma_reject");
		if (rdma_reject(id, data, replied))
			die_errno("rdma_reject with %d bytes of private data", replied);
		destroy(id);
		return;
	}
	make_qp(id);
	param.private_data = data;
	param.private_data_len = replied;
	if (rdma_accept(id, &param))
		die_errno("rdma_accept with %d bytes of private data", replied);
	ack(expect(RDMA_CM_EVENT_ESTABLISHED));
	ack(expect(RDMA_CM_EVENT_DISCONNECTED));
	destroy(id);
}

/* Tries a RoCE accept with one byte too many. */
static void serve_too_much(void)
{
	struct rdma_cm_id *id = requested(0);
	uint8_t data[ACCEPT + 1] = {};
	struct rdma_conn_param param = { .private_data = data, .private_data_len = sizeof(data) };

	make_qp(id);
	expect_refusal(rdma_accept(id, &param), sizeof(data), "rdma_accept");
	destroy(id);
}

static struct rdma_cm_id *make_id(void)
{
	struct rdma_cm_id *id;
	uint8_t class = tos;

	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP))
		die_errno("rdma_create_id");
	if (tos >= 0 && rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &class, sizeof(class)))
		die_errno("rdma_set_option");
	return id;
}

/* Returns an identifier with a route to the server, and a QP. */
static struct rdma_cm_id *routed(struct sockaddr_in *to)
{
	struct rdma_cm_id *id = make_id();

	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)to, 5000))
		die_errno("rdma_resolve_addr");
	ack(expect(RDMA_CM_EVENT_ADDR_RESOLVED));
	if (rdma_resolve_route(id, 5000))
		die_errno("rdma_resolve_route");
	ack(expect(RDMA_CM_EVENT_ROUTE_RESOLVED));
	make_qp(id);
	return id;
}

static int connect_with(struct rdma_cm_id *id, int length, int seed)
{
	uint8_t data[255];
	struct rdma_conn_param param = { .private_data = data, .private_data_len = length };

	fill(data, sizeof(data), seed);
	return rdma_connect(id, &param);
}

static void expect_rejection(struct rdma_cm_event *event)
{
	if (event->status != (iwarp ? -ECONNREFUSED : 28))
		die("rejected with status %d", event->status);
}

static void connect_one(struct sockaddr_in *to, int number, bool accepted)
{
	int length = LENGTHS[number], answer = answer_of(number), room = accepted ? ACCEPT : REJECT;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	if (sent(length, CONNECT) < length) {
		id = routed(to);
		expect_refusal(connect_with(id, length, length), length, "rdma_connect");
		destroy(id);
	}
	id = routed(to);
	if (connect_with(id, sent(length, CONNECT), length))
		die_errno("rdma_connect with %d bytes of private data", sent(length, CONNECT));
	event = expect(accepted ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_REJECTED);
	if (!accepted)
		expect_rejection(event);
	check(event, sent(answer, room), room, answer + 7);
	ack(event);
	if (accepted) {
		if (rdma_disconnect(id))
			die_errno("rdma_disconnect");
		ack(expect(RDMA_CM_EVENT_DISCONNECTED));
	}
	destroy(id);
}

/* The client's side of serve_too_much(). */
static void connect_too_much(struct sockaddr_in *to)
{
	struct rdma_cm_id *id = routed(to);
	struct rdma_cm_event *event;

	if (connect_with(id, 0, 0))
		die_errno("rdma_connect");
	event = expect(RDMA_CM_EVENT_REJECTED);
	expect_rejection(event);
	ack(event);
	destroy(id);
}

static void serve(struct sockaddr_in *at)
{
	struct rdma_cm_id *listener = make_id();

	if (rdma_bind_addr(listener, (struct sockaddr *)at) || rdma_listen(listener, 8))
		die_errno("rdma_listen");
	iwarp = listener->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
	for (int number = 0; number < COUNT; number++)
		for (int accept = 0; accept < 2; accept++)
			serve_one(number, accept);
	if (!iwarp)
		serve_too_much();
	destroy(listener);
}

static void connect_all(struct sockaddr_in *to)
{
	struct rdma_cm_id *id = make_id();

	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)to, 5000))
		die_errno("rdma_resolve_addr");
	ack(expect(RDMA_CM_EVENT_ADDR_RESOLVED));
	iwarp = id->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
	destroy(id);
	for (int number = 0; number < COUNT; number++)
		for (int accept = 0; accept < 2; accept++)
			connect_one(to, number, accept);
	if (!iwarp)
		connect_too_much(to);
	printf("%d connections with private data of %s\n", 2 * COUNT, iwarp ? "iWARP" : "RoCE");
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(7190) };
	bool server = argc > 1 && strcmp(argv[1], "server") == 0;

	if (argc < 3 || argc > 4 || (!server && strcmp(argv[1], "client") != 0) ||
	    inet_pton(AF_INET, argv[2], &address.sin_addr) != 1) {
		fprintf(stderr, "usage: vr-private-data server|client ADDRESS [TOS]\n");
		return USAGE;
	}
	if (argc == 4)
		tos = atoi(argv[3]) & 0xff;
	channel = rdma_create_event_channel();
	if (!channel)
		die_errno("rdma_create_event_channel");
	if (server)
		serve(&address);
	else
		connect_all(&address);
	return OK;
}
