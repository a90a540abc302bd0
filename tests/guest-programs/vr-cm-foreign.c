/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Names the QP of another process when it connects and when it accepts: both have to be refused.
 * Afterwards the QP's own process connects it, which shows that nobody else did.
 *
 *   vr-cm-foreign SERVER PORT OWN-ADDRESS [QPN]
 *
 * A server of rping, which stays, listens at SERVER. A client has to connect to OWN-ADDRESS with
 * the same port, and is rejected. With QPN, the named QP is that of a user in the kernel, and
 * there is no other process.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static struct rdma_cm_event *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	if (rdma_get_cm_event(channel, &event))
		die("rdma_get_cm_event");
	if (event->event != type) {
		fprintf(stderr, "%s (%d), not %s\n", rdma_event_str(event->event), event->status,
			rdma_event_str(type));
		exit(1);
	}
	return event;
}

/* Returns an identifier with a resolved address and route. */
static struct rdma_cm_id *resolved(struct rdma_event_channel *channel, const char *address, const char *port)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *found;
	struct rdma_cm_id *id;

	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP))
		die("rdma_create_id");
	if (rdma_getaddrinfo(address, port, &hints, &found))
		die("rdma_getaddrinfo");
	if (rdma_resolve_addr(id, NULL, found->ai_dst_addr, 30000))
		die("rdma_resolve_addr");
	rdma_ack_cm_event(expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED));
	if (rdma_resolve_route(id, 30000))
		die("rdma_resolve_route");
	rdma_ack_cm_event(expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED));
	return id;
}

static struct rdma_event_channel *new_channel(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();

	if (!channel)
		die("rdma_create_event_channel");
	return channel;
}

static void create_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	if (rdma_create_qp(id, NULL, &init))
		die("rdma_create_qp");
}

/* Reports the number of its QP, waits until the other processes have tried, and connects it. */
static void own(int tell, int wait, const char *address, const char *port)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
	struct rdma_event_channel *channel = new_channel();
	struct rdma_cm_id *id = resolved(channel, address, port);
	char byte;

	create_qp(id);
	if (write(tell, &id->qp->qp_num, sizeof(uint32_t)) != sizeof(uint32_t) || read(wait, &byte, 1) != 1)
		die("the pipe");
	if (rdma_connect(id, &param))
		die("the owner's rdma_connect");
	rdma_ack_cm_event(expect(channel, RDMA_CM_EVENT_ESTABLISHED));
	if (rdma_disconnect(id))
		die("rdma_disconnect");
	exit(0);
}

static void expect_refused(int result, const char *what)
{
	if (result == 0 || errno != EPERM) {
		fprintf(stderr, "%s: %s\n", what, result ? strerror(errno) : "another's QP was taken");
		exit(1);
	}
}

static void try_connect(uint32_t qpn, const char *address, const char *port)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .qp_num = qpn };
	struct rdma_cm_id *id = resolved(new_channel(), address, port);

	expect_refused(rdma_connect(id, &param), "rdma_connect");
	rdma_destroy_id(id);
}

static void expect_end(pid_t child, const char *what)
{
	int status;

	if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status)) {
		fprintf(stderr, "%s failed\n", what);
		exit(1);
	}
}

static pid_t start(void)
{
	pid_t child = fork();

	if (child < 0)
		die("fork");
	return child;
}

/* Listens, waits for a request, and tries to accept it with a foreign QP. */
static void try_accept(uint32_t qpn, const char *address, const char *port)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_PASSIVE }, *found;
	struct rdma_event_channel *channel = new_channel();
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP))
		die("rdma_create_id");
	if (rdma_getaddrinfo(address, port, &hints, &found))
		die("rdma_getaddrinfo");
	if (rdma_bind_addr(id, found->ai_src_addr))
		die("rdma_bind_addr");
	if (rdma_listen(id, 1))
		die("rdma_listen");
	event = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	/* The library accepts only with a QP of the identifier, whose number it reads here. */
	create_qp(event->id);
	event->id->qp->qp_num = qpn;
	expect_refused(rdma_accept(event->id, &param), "rdma_accept");
	rdma_ack_cm_event(event);
}

int main(int argc, char **argv)
{
	int tell[2], wait[2];
	uint32_t qpn;
	pid_t owner;

	if (argc != 4 && argc != 5) {
		fprintf(stderr, "usage: vr-cm-foreign SERVER PORT OWN-ADDRESS [QPN]\n");
		return 2;
	}
	if (argc == 5) {
		qpn = strtoul(argv[4], NULL, 0);
		try_accept(qpn, argv[3], argv[2]);
		try_connect(qpn, argv[1], argv[2]);
		printf("a QP of the kernel is none of a process\n");
		return 0;
	}
	if (pipe(tell) || pipe(wait))
		die("pipe");
	/* The child starts before this process opens a device, because they must not share
	 * one. */
	owner = start();
	if (!owner)
		own(tell[1], wait[0], argv[1], argv[2]);
	close(tell[1]);
	if (read(tell[0], &qpn, sizeof(qpn)) != sizeof(qpn))
		die("the owner");
	pid_t other = start();
	if (!other) {
		try_accept(qpn, argv[3], argv[2]);
		try_connect(qpn, argv[1], argv[2]);
		exit(0);
	}
	expect_end(other, "the other process");
	if (write(wait[1], "", 1) != 1)
		die("the pipe");
	expect_end(owner, "the owner");
	printf("a QP is its process's alone\n");
	return 0;
}
