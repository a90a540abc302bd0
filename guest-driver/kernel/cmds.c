// SPDX-License-Identifier: GPL-2.0
/*
 * The device's commands, one function each, except those about memory regions and connections.
 *
 * Arguments have the byte order of the CPU. Structures of the ABI are little-endian.
 */
#include "cmdexec.h"
#include "cmds.h"

int vrdma_cmd_query_device(struct vrdma_dev *dev, struct vrdma_caps *caps)
{
	struct vrdma_cmd cmd = { .opcode = VRDMA_CMD_QUERY_DEVICE };
	struct vrdma_query_device_ex_resp resp;
	struct vrdma_cmd_result result = VRDMA_REPLY(&resp);
	int err;

	result.added = sizeof(resp) - sizeof(resp.base);
	err = vrdma_cmd_exec(dev, &cmd, &result);
	if (!err)
		vrdma_caps_read(caps, &resp);
	return err;
}

int vrdma_cmd_query_port(struct vrdma_dev *dev, struct vrdma_query_port_resp *resp)
{
	struct vrdma_cmd cmd = { .opcode = VRDMA_CMD_QUERY_PORT };
	struct vrdma_cmd_result result = VRDMA_REPLY(resp);

	return vrdma_cmd_exec(dev, &cmd, &result);
}

int vrdma_cmd_query_counters(struct vrdma_dev *dev, struct vrdma_counters_resp *resp)
{
	struct vrdma_cmd cmd = { .opcode = VRDMA_CMD_QUERY_COUNTERS };
	struct vrdma_cmd_result result = VRDMA_REPLY(resp);

	return vrdma_cmd_exec(dev, &cmd, &result);
}

int vrdma_cmd_query_clock(struct vrdma_dev *dev, u64 *clock)
{
	struct vrdma_cmd cmd = { .opcode = VRDMA_CMD_QUERY_CLOCK };
	struct vrdma_clock_resp resp;
	struct vrdma_cmd_result result = VRDMA_REPLY(&resp);
	int err;

	err = vrdma_cmd_exec(dev, &cmd, &result);
	if (!err)
		*clock = le64_to_cpu(resp.clock);
	return err;
}

int vrdma_cmd_set_port_mtu(struct vrdma_dev *dev, u32 mtu)
{
	struct vrdma_set_port_mtu_req req = { .mtu = cpu_to_le32(mtu) };
	struct vrdma_cmd cmd = VRDMA_COMMAND(VRDMA_CMD_SET_PORT_MTU, &req);

	return vrdma_cmd_exec(dev, &cmd, NULL);
}

int vrdma_cmd_add_gid(struct vrdma_dev *dev, u32 index, const union ib_gid *gid, u16 vlan)
{
	struct vrdma_add_gid_req req = {
		.index = cpu_to_le32(index),
		.gid_type = VRDMA_GID_ROCE_V2,
		.vlan = cpu_to_le16(vlan),
	};
	struct vrdma_cmd cmd = VRDMA_COMMAND(VRDMA_CMD_ADD_GID, &req);

	memcpy(req.gid, gid, sizeof(req.gid));
	return vrdma_cmd_exec(dev, &cmd, NULL);
}

int vrdma_cmd_del_gid(struct vrdma_dev *dev, u32 index)
{
	return vrdma_cmd_on(dev, VRDMA_CMD_DEL_GID, index, NULL);
}

int vrdma_cmd_alloc_context(struct vrdma_dev *dev, u32 *context)
{
	struct vrdma_cmd cmd = { .opcode = VRDMA_CMD_ALLOC_CONTEXT };

	return vrdma_cmd_create(dev, &cmd, context);
}

int vrdma_cmd_dealloc_context(struct vrdma_dev *dev, u32 context)
{
	return vrdma_cmd_on(dev, VRDMA_CMD_DEALLOC_CONTEXT, context, NULL);
}

/*
 * @pending (unless NULL) tells whether the device did not answer, and may still execute the
 * command.
 */
int vrdma_cmd_bind_channel(struct vrdma_dev *dev, u32 context, u16 queue, struct vrdma_runs *runs,
			   bool *pending)
{
	struct vrdma_bind_channel_req req = {
		.context = cpu_to_le32(context),
		.queue = cpu_to_le16(queue),
	};
	struct vrdma_cmd cmd = VRDMA_COMMAND(VRDMA_CMD_BIND_CHANNEL, &req);
	struct vrdma_cmd_result result = {};
	int err;

	cmd.runs = runs;
	err = vrdma_cmd_exec(dev, &cmd, &result);
	if (pending)
		*pending = result.pending;
	return err;
}

int vrdma_cmd_unbind_channel(struct vrdma_dev *dev, u16 queue)
{
	return vrdma_cmd_on(dev, VRDMA_CMD_UNBIND_CHANNEL, queue, NULL);
}

int vrdma_cmd_alloc_pd(struct vrdma_dev *dev, u32 context, u32 *pdn)
{
	struct vrdma_object_req req = { .object = cpu_to_le32(context) };
	struct vrdma_cmd cmd = VRDMA_COMMAND(VRDMA_CMD_ALLOC_PD, &req);

	return vrdma_cmd_create(dev, &cmd, pdn);
}

int vrdma_cmd_dealloc_pd(struct vrdma_dev *dev, u32 pdn)
{
	return vrdma_cmd_on(dev, VRDMA_CMD_DEALLOC_PD, pdn, NULL);
}

int vrdma_cmd_alloc_xrcd(struct vrdma_dev *dev, u32 *xrcdn)
{
	struct vrdma_cmd cmd = { .opcode = VRDMA_CMD_ALLOC_XRCD };

	return vrdma_cmd_create(dev, &cmd, xrcdn);
}

int vrdma_cmd_dealloc_xrcd(struct vrdma_dev *dev, u32 xrcdn)
{
	return vrdma_cmd_on(dev, VRDMA_CMD_DEALLOC_XRCD, xrcdn, NULL);
}

int vrdma_cmd_create_cq(struct vrdma_dev *dev, const struct vrdma_create_cq_req *req,
			struct vrdma_runs *runs, u32 *cqn, struct vrdma_mem **mem)
{
	struct vrdma_cmd cmd = VRDMA_COMMAND(VRDMA_CMD_CREATE_CQ, req);
	struct vrdma_create_cq_resp resp;
	struct vrdma_cmd_result result = VRDMA_REPLY(&resp);
	int err;

	cmd.runs = runs;
	cmd.mem = mem;
	err = vrdma_cmd_exec(dev, &cmd, &result);
	if (!err)
		*cqn = le32_to_cpu(resp.cqn);
	return err;
}

int vrdma_cmd_destroy_cq(struct vrdma_dev *dev, u32 cqn, struct vrdma_mem **mem)
{
	return vrdma_cmd_on(dev, VRDMA_CMD_DESTROY_CQ, cqn, mem);
}

/* The caller keeps the former and the new memory until it knows which one the device uses. */
int vrdma_cmd_resize_cq(struct vrdma_dev *dev, const struct vrdma_resize_cq_req *req,
			struct vrdma_runs *runs)
{
	struct vrdma_cmd cmd = VRDMA_COMMAND(VRDMA_CMD_RESIZE_CQ, req);

	cmd.runs = runs;
	return vrdma_cmd_exec(dev, &cmd, NULL);
}

int vrdma_cmd_modify_cq(struct vrdma_dev *dev, u32 cqn, u16 count, u16 period)
{
	struct vrdma_modify_cq_req req = {
		.cqn = cpu_to_le32(cqn),
		.count = cpu_to_le16(count),
		.period = cpu_to_le16(period),
	};
	struct vrdma_cmd cmd = VRDMA_COMMAND(VRDMA_CMD_MODIFY_CQ, &req);

	return vrdma_cmd_exec(dev, &cmd, NULL);
}

int vrdma_cmd_create_qp(struct vrdma_dev *dev, const struct vrdma_create_qp_req *req, u32 *qpn)
{
	struct vrdma_cmd cmd = VRDMA_COMMAND(VRDMA_CMD_CREATE_QP, req);
	struct vrdma_create_qp_resp resp;
	struct vrdma_cmd_result result = VRDMA_REPLY(&resp);
	int err;

	err = vrdma_cmd_exec(dev, &cmd, &result);
	if (!err)
		*qpn = le32_to_cpu(resp.qpn);
	return err;
}

int vrdma_cmd_modify_qp(struct vrdma_dev *dev, const struct vrdma_modify_qp_req *req)
{
	struct vrdma_cmd cmd = VRDMA_COMMAND(VRDMA_CMD_MODIFY_QP, req);

	return vrdma_cmd_exec(dev, &cmd, NULL);
}

/* Moves a QP to the error state, where its requests are flushed. Waits for a stalled device. */
int vrdma_cmd_modify_qp_no_timeout(struct vrdma_dev *dev, const struct vrdma_modify_qp_req *req)
{
	struct vrdma_cmd cmd = VRDMA_COMMAND(VRDMA_CMD_MODIFY_QP, req);

	cmd.no_timeout = true;
	return vrdma_cmd_exec(dev, &cmd, NULL);
}

int vrdma_cmd_query_qp(struct vrdma_dev *dev, u32 qpn, struct vrdma_qp_attr *attr)
{
	struct vrdma_object_req req = { .object = cpu_to_le32(qpn) };
	struct vrdma_cmd cmd = VRDMA_COMMAND(VRDMA_CMD_QUERY_QP, &req);
	struct vrdma_cmd_result result = VRDMA_REPLY(attr);

	return vrdma_cmd_exec(dev, &cmd, &result);
}

int vrdma_cmd_destroy_qp(struct vrdma_dev *dev, u32 qpn)
{
	return vrdma_cmd_on(dev, VRDMA_CMD_DESTROY_QP, qpn, NULL);
}

/* After the return the device uses no buffer of the QP any more, unless it is broken. */
int vrdma_cmd_destroy_qp_no_timeout(struct vrdma_dev *dev, u32 qpn)
{
	struct vrdma_object_req req = { .object = cpu_to_le32(qpn) };
	struct vrdma_cmd cmd = VRDMA_COMMAND(VRDMA_CMD_DESTROY_QP, &req);

	cmd.no_timeout = true;
	return vrdma_cmd_exec(dev, &cmd, NULL);
}

int vrdma_cmd_create_srq(struct vrdma_dev *dev, const struct vrdma_create_srq_req *req, u32 *srqn)
{
	struct vrdma_cmd cmd = VRDMA_COMMAND(VRDMA_CMD_CREATE_SRQ, req);
	struct vrdma_create_srq_resp resp;
	struct vrdma_cmd_result result = VRDMA_REPLY(&resp);
	int err;

	err = vrdma_cmd_exec(dev, &cmd, &result);
	if (!err)
		*srqn = le32_to_cpu(resp.srqn);
	return err;
}

int vrdma_cmd_modify_srq(struct vrdma_dev *dev, const struct vrdma_modify_srq_req *req)
{
	struct vrdma_cmd cmd = VRDMA_COMMAND(VRDMA_CMD_MODIFY_SRQ, req);

	return vrdma_cmd_exec(dev, &cmd, NULL);
}

int vrdma_cmd_query_srq(struct vrdma_dev *dev, u32 srqn, struct vrdma_query_srq_resp *resp)
{
	struct vrdma_object_req req = { .object = cpu_to_le32(srqn) };
	struct vrdma_cmd cmd = VRDMA_COMMAND(VRDMA_CMD_QUERY_SRQ, &req);
	struct vrdma_cmd_result result = VRDMA_REPLY(resp);

	return vrdma_cmd_exec(dev, &cmd, &result);
}

int vrdma_cmd_destroy_srq(struct vrdma_dev *dev, u32 srqn)
{
	return vrdma_cmd_on(dev, VRDMA_CMD_DESTROY_SRQ, srqn, NULL);
}

/* After the return the device uses no buffer of the SRQ any more, unless it is broken. */
int vrdma_cmd_destroy_srq_no_timeout(struct vrdma_dev *dev, u32 srqn)
{
	struct vrdma_object_req req = { .object = cpu_to_le32(srqn) };
	struct vrdma_cmd cmd = VRDMA_COMMAND(VRDMA_CMD_DESTROY_SRQ, &req);

	cmd.no_timeout = true;
	return vrdma_cmd_exec(dev, &cmd, NULL);
}

static int mcast_cmd(struct vrdma_dev *dev, u16 opcode, u32 qpn, const union ib_gid *mgid)
{
	struct vrdma_mcast_req req = { .qpn = cpu_to_le32(qpn) };
	struct vrdma_cmd cmd = VRDMA_COMMAND(opcode, &req);

	memcpy(req.mgid, mgid, sizeof(req.mgid));
	return vrdma_cmd_exec(dev, &cmd, NULL);
}

int vrdma_cmd_attach_mcast(struct vrdma_dev *dev, u32 qpn, const union ib_gid *mgid)
{
	return mcast_cmd(dev, VRDMA_CMD_ATTACH_MCAST, qpn, mgid);
}

int vrdma_cmd_detach_mcast(struct vrdma_dev *dev, u32 qpn, const union ib_gid *mgid)
{
	return mcast_cmd(dev, VRDMA_CMD_DETACH_MCAST, qpn, mgid);
}

int vrdma_cmd_set_ah_table(struct vrdma_dev *dev, u32 entries, struct vrdma_runs *runs,
			   struct vrdma_mem **mem)
{
	struct vrdma_ah_table_req req = { .entries = cpu_to_le32(entries) };
	struct vrdma_cmd cmd = VRDMA_COMMAND(VRDMA_CMD_SET_AH_TABLE, &req);

	cmd.runs = runs;
	cmd.mem = mem;
	return vrdma_cmd_exec(dev, &cmd, NULL);
}
