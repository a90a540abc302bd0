/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * vr-random's calls for queue pairs and requests.
 */
#include "calls.h"

/* ---- queue pairs ---- */

bool create_qp(struct world *w)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD,
						 IBV_QPT_UD, IBV_QPT_RAW_PACKET};
	struct ibv_qp_init_attr attr = {.send_cq = any_object(w, CQ),
					.recv_cq = any_object(w, CQ),
					.srq = one_in(w, 3) ? any_object(w, SRQ) : NULL,
					.cap = {.max_send_wr = one_in(w, 10) ? odd_number(&w->rng) : below(w, 64),
						.max_recv_wr = one_in(w, 10) ? odd_number(&w->rng) : below(w, 64),
						.max_send_sge = below(w, 6),
						.max_recv_sge = below(w, 6),
						.max_inline_data = one_in(w, 4) ? odd_number(&w->rng) : below(w, 100)},
					.qp_type = types[below(w, sizeof(types) / sizeof(*types))],
					.sq_sig_all = below(w, 2)};
	struct ibv_pd *pd = any_object(w, PD);

	return pd && attr.send_cq && !full(w, QP) && keep(w, QP, ibv_create_qp(pd, &attr));
}

bool create_xrc_qp(struct world *w)
{
	const bool target = one_in(w, 2);
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = target ? IBV_QPT_XRC_RECV : IBV_QPT_XRC_SEND,
		.comp_mask = target ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD,
		.pd = any_object(w, PD),
		.xrcd = any_object(w, XRCD),
		.send_cq = target ? NULL : any_object(w, CQ),
		.cap = {.max_send_wr = target ? 0 : 1 + below(w, 30), .max_send_sge = target ? 0 : 1}};

	if (!(target ? (void *)attr.xrcd : (void *)attr.pd) || (!target && !attr.send_cq) || full(w, QP))
		return false;
	return keep(w, QP, ibv_create_qp_ex(w->context, &attr));
}

/* Modifies any attributes, mostly those that the state requires. */
bool modify_qp(struct world *w)
{
	static const int masks[] = {
		IBV_QP_STATE,
		IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC,
		IBV_QP_STATE | IBV_QP_SQ_PSN,
	};
	struct ibv_qp *qp = any_object(w, QP);
	struct ibv_qp_attr attr = {.qp_state = below(w, IBV_QPS_UNKNOWN + 1),
				   .port_num = one_in(w, 8) ? odd_number(&w->rng) : 1,
				   .pkey_index = one_in(w, 8) ? odd_number(&w->rng) : 0,
				   .qp_access_flags = any_access(w),
				   .qkey = odd_number(&w->rng),
				   .path_mtu = 1 + below(w, 6),
				   .dest_qp_num = odd_number(&w->rng),
				   .max_dest_rd_atomic = below(w, 20),
				   .max_rd_atomic = below(w, 20),
				   .min_rnr_timer = below(w, 33),
				   .timeout = below(w, 33),
				   .retry_cnt = below(w, 9),
				   .rnr_retry = below(w, 9),
				   .ah_attr = {.is_global = !one_in(w, 8),
					       .port_num = 1,
					       .grh = {.dgid = w->gid,
						       .sgid_index = one_in(w, 8) ? (int)odd_number(&w->rng)
										  : w->gid_index,
						       .hop_limit = 64}}};
	const int mask = one_in(w, 8) ? (int)odd_number(&w->rng) : masks[below(w, sizeof(masks) / sizeof(*masks))];

	return qp && !ibv_modify_qp(qp, &attr, mask);
}

static bool to_rts(struct world *w, struct ibv_qp *qp, uint32_t peer)
{
	const bool rc = qp->qp_type == IBV_QPT_RC;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};

	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE))
		return false;
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = 15};
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		return false;
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
				    .path_mtu = IBV_MTU_1024,
				    .dest_qp_num = peer,
				    .max_dest_rd_atomic = 1,
				    .min_rnr_timer = 1,
				    .ah_attr = {.is_global = 1,
						.port_num = 1,
						.grh = {.dgid = w->gid, .sgid_index = w->gid_index, .hop_limit = 64}}};
	if (ibv_modify_qp(qp, &attr,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				  (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)))
		return false;
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 10, .retry_cnt = 1, .rnr_retry = 1, .max_rd_atomic = 1};
	return !ibv_modify_qp(qp, &attr,
			      IBV_QP_STATE | IBV_QP_SQ_PSN |
				      (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						      IBV_QP_MAX_QP_RD_ATOMIC
					  : 0));
}

bool connect_qps(struct world *w)
{
	struct ibv_qp *one = any_object(w, QP), *two = any_object(w, QP);

	if (!one || one->qp_type != two->qp_type || (one->qp_type != IBV_QPT_RC && one->qp_type != IBV_QPT_UC))
		return false;
	return to_rts(w, one, two->qp_num) && (one == two || to_rts(w, two, one->qp_num));
}

bool query_qp(struct world *w)
{
	struct ibv_qp *qp = any_object(w, QP);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	return qp && !ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CAP | odd_number(&w->rng), &init);
}

static int free_qp(void *qp)
{
	return ibv_destroy_qp(qp);
}

bool destroy_qp(struct world *w)
{
	return destroy_any(w, QP, free_qp);
}

static struct ibv_sge any_sge(struct world *w)
{
	struct ibv_mr *mr = any_object(w, MR);
	struct ibv_sge sge = {.addr = (uintptr_t)w->memory, .length = below(w, 9000), .lkey = odd_number(&w->rng)};

	if (mr) {
		sge.addr = (uintptr_t)mr->addr + (one_in(w, 8) ? odd_number(&w->rng) : 0);
		sge.length = one_in(w, 8) ? odd_number(&w->rng) : below(w, mr->length % 9000 + 1);
		sge.lkey = mr->lkey ^ one_in(w, 8);
	}
	return sge;
}

bool post_send(struct world *w)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND,      IBV_WR_SEND_WITH_IMM,
						     IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
						     IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
						     IBV_WR_SEND_WITH_INV, IBV_WR_LOCAL_INV};
	struct ibv_sge sge[2] = {any_sge(w), any_sge(w)};
	struct ibv_qp *qp = any_object(w, QP);
	struct ibv_mr *mr = any_object(w, MR);
	struct ibv_send_wr *bad, wr = {.sg_list = sge,
				       .num_sge = below(w, 3),
				       .opcode = opcodes[below(w, sizeof(opcodes) / sizeof(*opcodes))],
				       .send_flags = one_in(w, 2) ? IBV_SEND_SIGNALED : below(w, 16)};

	if (!qp)
		return false;
	/* The library reads inline data, so it has to be in valid memory. */
	if (wr.send_flags & IBV_SEND_INLINE)
		for (int i = 0; i < 2; i++)
			sge[i] = (struct ibv_sge){.addr = (uintptr_t)w->memory, .length = below(w, 40)};
	if (qp->qp_type == IBV_QPT_UD) {
		wr.wr.ud.ah = any_object(w, AH);
		wr.wr.ud.remote_qpn = odd_number(&w->rng);
		if (!wr.wr.ud.ah)
			return false;
	} else if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = mr ? (uintptr_t)mr->addr : 0;
		wr.wr.atomic.rkey = mr ? mr->rkey : 0;
	} else {
		wr.wr.rdma.remote_addr = mr ? (uintptr_t)mr->addr : 0;
		wr.wr.rdma.rkey = mr ? mr->rkey : odd_number(&w->rng);
	}
	return !ibv_post_send(qp, &wr, &bad);
}

bool post_recv(struct world *w)
{
	struct ibv_sge sge = any_sge(w);
	struct ibv_recv_wr *bad, wr = {.sg_list = &sge, .num_sge = below(w, 2)};
	struct ibv_srq *srq = any_object(w, SRQ);
	struct ibv_qp *qp = any_object(w, QP);

	if (srq && one_in(w, 2))
		return !ibv_post_srq_recv(srq, &wr, &bad);
	return qp && !qp->srq && qp->qp_type != IBV_QPT_XRC_RECV && qp->qp_type != IBV_QPT_XRC_SEND &&
	       !ibv_post_recv(qp, &wr, &bad);
}

bool attach_mcast(struct world *w)
{
	const union ibv_gid group = {.raw = {0xff, 0x0e, [15] = 1 + below(w, 3)}};
	struct ibv_qp *qp = any_object(w, QP);

	return qp && !ibv_attach_mcast(qp, &group, 0);
}

bool detach_mcast(struct world *w)
{
	const union ibv_gid group = {.raw = {0xff, 0x0e, [15] = 1 + below(w, 3)}};
	struct ibv_qp *qp = any_object(w, QP);

	return qp && !ibv_detach_mcast(qp, &group, 0);
}
