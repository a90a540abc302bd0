/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * XRC among the processes of a machine. One process creates a target, another opens it and posts
 * the receives, and a third sends. The target outlives its creator, and is destroyed with the
 * last process that has it open.
 */
#include "common.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const char what[] =
	"Usage: vr-xrc [OPTIONS]\n\n"
	"Starts two other processes: one makes an XRC target and ends, one has opened the target and receives what is sent to its\n"
	"shared receive queue. Both share the XRC domain by a file.";

static const struct option_spec table[] = {
	{NULL, 0, FLAG, NULL, NULL},
};

/* Bytes of a message. */
#define LENGTH 10000
/* Longest wait for a completion. */
#define PATIENCE_MS 20000

static char file[] = "/tmp/vr-xrc-XXXXXX";
static struct device dev;

static struct ibv_xrcd *domain_open(void)
{
	int fd = open(file, O_RDONLY);
	struct ibv_xrcd_init_attr init = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = fd,
		.oflags = O_CREAT,
	};
	struct ibv_xrcd *xrcd;

	if (fd < 0)
		die_errno("%s", file);
	xrcd = ibv_open_xrcd(dev.context, &init);
	if (!xrcd)
		die_errno("ibv_open_xrcd");
	close(fd);
	return xrcd;
}

static void modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int error = ibv_modify_qp(qp, attr, mask);

	if (error)
		die("QP to state %d: %s", attr->qp_state, strerror(error));
}

static void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

	modify(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

/* Connects a target (to RTR) or an initiator (to RTS), with the attributes of its kind. */
static void connect_xrc(struct ibv_qp *qp, uint32_t psn, const struct address *to)
{
	const bool target = qp->qp_type == IBV_QPT_XRC_RECV;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = to->mtu,
		.dest_qp_num = to->qpn,
		.rq_psn = to->psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.dgid = to->gid, .sgid_index = dev.gid_index, .hop_limit = 64}},
	};

	modify(qp, &attr,
	       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		       (target ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
	if (target)
		return;
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = psn;
	attr.timeout = common.timeout;
	attr.retry_cnt = common.retries;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 1;
	modify(qp, &attr,
	       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		       IBV_QP_MAX_QP_RD_ATOMIC);
}

/* Lets a QP whose requests have all succeeded give up after half a second: 4.096 us * 2^14,
 * eight times. */
static void gives_up_soon(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .timeout = 14};

	modify(qp, &attr, IBV_QP_STATE);
	/* The kernel reports when the send queue is drained. It is empty here. */
	modify(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT);
	attr.qp_state = IBV_QPS_RTS;
	modify(qp, &attr, IBV_QP_STATE);
}

/* Receives data from another process, which must be there. */
static void expect(int link, void *data, size_t length)
{
	if (!link_recv(link, data, length))
		die("another process is gone");
}

static void step(int link)
{
	link_send(link, "", 1);
}

static void expect_step(int link)
{
	char byte;

	expect(link, &byte, 1);
}

static struct ibv_wc completion(struct ibv_cq *cq, const char *of)
{
	struct waiter waiter = {.cq = cq};
	struct ibv_wc wc;

	if (wait_completions(&waiter, &wc, 1, PATIENCE_MS) != 1)
		die("%s does not complete", of);
	return wc;
}

/* Creates a target, and ends without destroying it. */
static void maker(int link)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
	};
	struct address own, peer;
	struct ibv_qp *qp;

	device_open(&dev);
	init.xrcd = domain_open();
	qp = ibv_create_qp_ex(dev.context, &init);
	if (!qp)
		die_errno("ibv_create_qp_ex");
	to_init(qp);
	own = qp_address(&dev, qp);
	link_send(link, &own, sizeof(own));
	expect(link, &peer, sizeof(peer));
	connect_xrc(qp, own.psn, &peer);
	step(link);
	expect_step(link);
}

/* Opens the target, and receives into its own memory. */
static void receiver(int link)
{
	struct ibv_xrcd *xrcd;
	struct ibv_srq_init_attr_ex init = {
		.attr = {.max_wr = 4, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_XRC,
	};
	struct ibv_qp_open_attr open = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
		.qp_type = IBV_QPT_XRC_RECV,
	};
	struct region region;
	struct ibv_mr *mr;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	uint32_t srqn;

	device_open(&dev);
	init.xrcd = open.xrcd = xrcd = domain_open();
	init.pd = dev.pd;
	init.cq = cq_create(&dev, 16, NULL);
	region_create(&region, 2 * LENGTH, false);
	mr = mr_create(&dev, region.area, region.length, IBV_ACCESS_LOCAL_WRITE);
	srq = ibv_create_srq_ex(dev.context, &init);
	if (!srq || ibv_get_srq_num(srq, &srqn))
		die_errno("an XRC shared receive queue");
	for (uint64_t id = 0; id < 2; id++) {
		struct ibv_sge sge = {(uintptr_t)region.area + id * LENGTH, LENGTH, mr->lkey};
		struct ibv_recv_wr *bad, wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1};

		if (ibv_post_srq_recv(srq, &wr, &bad))
			die("ibv_post_srq_recv");
	}
	expect(link, &open.qp_num, sizeof(open.qp_num));
	qp = ibv_open_qp(dev.context, &open);
	if (!qp)
		die_errno("ibv_open_qp");
	link_send(link, &srqn, sizeof(srqn));
	for (uint64_t id = 0; id < 2; id++) {
		struct ibv_wc wc = completion(init.cq, "a receive");

		if (wc.status != IBV_WC_SUCCESS || wc.wr_id != id || wc.byte_len != LENGTH || wc.opcode != IBV_WC_RECV)
			die("receive %lu ended as %lu of %u bytes: %s", id, wc.wr_id, wc.byte_len,
			    ibv_wc_status_str(wc.status));
		if (pattern_check(region.area + id * LENGTH, LENGTH, id) >= 0)
			die("message %lu is not what was sent", id);
		step(link);
	}
	region_check(&region, "the receives");
	expect_step(link);
	if (ibv_destroy_qp(qp))
		die("ibv_destroy_qp");
	step(link);
	if (ibv_destroy_srq(srq) || ibv_close_xrcd(xrcd) || ibv_dereg_mr(mr) || ibv_destroy_cq(init.cq))
		die("the receiver's objects cannot be destroyed");
	device_close(&dev);
}

/* Starts a process. Returns its id, and the link to it. */
static pid_t start(void (*process)(int link), int *link)
{
	int ends[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		die_errno("socketpair");
	pid = fork();
	if (pid < 0)
		die_errno("fork");
	if (!pid) {
		close(ends[0]);
		process(ends[1]);
		/* The kernel destroys what is left. */
		_exit(OK);
	}
	close(ends[1]);
	*link = ends[0];
	return pid;
}

static void expect_end(pid_t pid, const char *who)
{
	int status;

	if (waitpid(pid, &status, 0) != pid || status)
		die("the %s ended with status %#x", who, status);
}

static enum ibv_wc_status send_one(struct ibv_qp *qp, uint32_t srqn, const struct region *region,
				   const struct ibv_mr *mr, uint64_t id)
{
	struct ibv_sge sge = {(uintptr_t)region->area, LENGTH, mr->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = id,
				       .sg_list = &sge,
				       .num_sge = 1,
				       .opcode = IBV_WR_SEND,
				       .send_flags = IBV_SEND_SIGNALED,
				       .qp_type.xrc.remote_srqn = srqn};
	int error;

	pattern_fill(region->area, LENGTH, id);
	error = ibv_post_send(qp, &wr, &bad);
	if (error)
		die("ibv_post_send: %s", strerror(error));
	return completion(qp->send_cq, "a SEND").status;
}

static struct ibv_qp *initiator_create(void)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq_create(&dev, 16, NULL),
		.cap = {.max_send_wr = 4, .max_send_sge = 1},
		.qp_type = IBV_QPT_XRC_SEND,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = dev.pd,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(dev.context, &init);

	if (!qp)
		die_errno("ibv_create_qp_ex");
	to_init(qp);
	return qp;
}

int main(int argc, char **argv)
{
	int maker_link, receiver_link, fd;
	pid_t maker_pid, receiver_pid;
	enum ibv_wc_status status;
	struct address own, peer;
	struct region region;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	uint32_t srqn;

	parse_options(argc, argv, what, table);
	signal(SIGPIPE, SIG_IGN);
	fd = mkstemp(file);
	if (fd < 0)
		die_errno("%s", file);
	maker_pid = start(maker, &maker_link);
	receiver_pid = start(receiver, &receiver_link);
	device_open(&dev);
	region_create(&region, LENGTH, false);
	mr = mr_create(&dev, region.area, LENGTH, IBV_ACCESS_LOCAL_WRITE);
	qp = initiator_create();
	own = qp_address(&dev, qp);
	expect(maker_link, &peer, sizeof(peer));
	link_send(maker_link, &own, sizeof(own));
	expect_step(maker_link);
	link_send(receiver_link, &peer.qpn, sizeof(peer.qpn));
	expect(receiver_link, &srqn, sizeof(srqn));
	connect_xrc(qp, own.psn, &peer);

	for (uint64_t id = 0; id < 2; id++) {
		status = send_one(qp, srqn, &region, mr, id);
		if (status != IBV_WC_SUCCESS)
			die("message %lu: %s", id, ibv_wc_status_str(status));
		expect_step(receiver_link);
		if (!id) {
			step(maker_link);
			expect_end(maker_pid, "maker of the target");
		}
	}
	/* The target is destroyed with the last process that has it open. */
	step(receiver_link);
	expect_step(receiver_link);
	expect_end(receiver_pid, "receiver");
	gives_up_soon(qp);
	status = send_one(qp, srqn, &region, mr, 2);
	if (status != IBV_WC_RETRY_EXC_ERR)
		die("a message to a target that is gone: %s", ibv_wc_status_str(status));
	unlink(file);
	close(fd);
	printf("the target outlived its maker\n");
	return OK;
}
