/*
 * Connects to a server of rdma_cm, posts one operation that the server's device may not support,
 * and waits until the connection ends. The peer's device has to end the connection, and must not
 * let it hang.
 *
 *   vr-cm-op ADDRESS PORT OPERATION     fetch-add, compare-swap or write-imm
 */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static enum ibv_wr_opcode opcode_of(const char *name)
{
	if (!strcmp(name, "fetch-add"))
		return IBV_WR_ATOMIC_FETCH_AND_ADD;
	if (!strcmp(name, "compare-swap"))
		return IBV_WR_ATOMIC_CMP_AND_SWP;
	if (!strcmp(name, "write-imm"))
		return IBV_WR_RDMA_WRITE_WITH_IMM;
	fprintf(stderr, "no operation %s\n", name);
	exit(2);
}

static struct rdma_cm_id *connected(char *address, char *port)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *found;
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1,
	};
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
	struct rdma_cm_id *id;

	if (rdma_getaddrinfo(address, port, &hints, &found))
		die("rdma_getaddrinfo");
	if (rdma_create_ep(&id, found, NULL, &init))
		die("rdma_create_ep");
	if (rdma_connect(id, &param))
		die("rdma_connect");
	return id;
}

static void post(struct rdma_cm_id *id, enum ibv_wr_opcode opcode)
{
	static uint64_t data;
	struct ibv_mr *mr = rdma_reg_msgs(id, &data, sizeof(data));
	/* A WRITE of no bytes names no memory. An atomic does, but its opcode is checked
	 * first. */
	int is_write = opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	struct ibv_sge sge = { .addr = (uintptr_t)&data, .length = sizeof(data), .lkey = mr ? mr->lkey : 0 };
	struct ibv_send_wr wr = { .wr_id = 1, .opcode = opcode, .num_sge = is_write ? 0 : 1, .sg_list = &sge }, *bad;

	if (!mr)
		die("rdma_reg_msgs");
	if (!is_write)
		wr.wr.atomic.compare_add = 1;
	if (ibv_post_send(id->qp, &wr, &bad))
		die("ibv_post_send");
}

/* Returns the next event of the connection, if one comes within a minute. */
static enum rdma_cm_event_type next_event(struct rdma_cm_id *id)
{
	struct pollfd channel = { .fd = id->channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;
	enum rdma_cm_event_type type;

	if (poll(&channel, 1, 60000) != 1) {
		fprintf(stderr, "the connection hangs\n");
		exit(1);
	}
	if (rdma_get_cm_event(id->channel, &event))
		die("rdma_get_cm_event");
	type = event->event;
	rdma_ack_cm_event(event);
	return type;
}

int main(int argc, char **argv)
{
	struct rdma_cm_id *id;
	struct ibv_wc wc;
	int count = 0;

	if (argc != 4) {
		fprintf(stderr, "usage: vr-cm-op ADDRESS PORT OPERATION\n");
		return 2;
	}
	enum ibv_wr_opcode opcode = opcode_of(argv[3]);
	id = connected(argv[1], argv[2]);
	/* On an event channel of its own, the identifier's calls do not wait for events. */
	if (rdma_migrate_id(id, rdma_create_event_channel()))
		die("rdma_migrate_id");
	post(id, opcode);
	while (next_event(id) != RDMA_CM_EVENT_DISCONNECTED)
		;
	while (ibv_poll_cq(id->send_cq, 1, &wc) == 1) {
		printf("%s: %s\n", argv[3], ibv_wc_status_str(wc.status));
		count += 1;
	}
	if (count != 1) {
		fprintf(stderr, "%d completions of one operation\n", count);
		return 1;
	}
	printf("the peer ended the connection\n");
	return 0;
}
