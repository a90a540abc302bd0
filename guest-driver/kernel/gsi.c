// SPDX-License-Identifier: GPL-2.0
/* Whether the device has QP1, which connection management needs. */
#include "broken.h"
#include "cmds.h"
#include "gsi.h"
#include "mem.h"
#include "runs.h"

/**
 * vrdma_probe_gsi() - whether the device has QP1
 * @dev: the device, not registered yet
 *
 * The core creates QP1 for each port that claims to have it, and logs an error if it cannot.
 */
bool vrdma_probe_gsi(struct vrdma_dev *dev)
{
	struct vrdma_create_qp_req req = {
		.context = cpu_to_le32(VRDMA_KERNEL_CONTEXT),
		.qp_type = cpu_to_le32(VRDMA_QPT_GSI),
		.srqn = cpu_to_le32(VRDMA_NONE),
		.max_send_wr = cpu_to_le32(1),
		.max_recv_wr = cpu_to_le32(1),
		.max_send_sge = cpu_to_le32(1),
		.max_recv_sge = cpu_to_le32(1),
	};
	struct vrdma_create_cq_req cq_req = {
		.context = cpu_to_le32(VRDMA_KERNEL_CONTEXT), .entries = cpu_to_le32(2),
	};
	size_t size = sizeof(struct vrdma_cqe) * 2 + sizeof(struct vrdma_cq_record);
	struct vrdma_mem *mem = vrdma_mem_alloc(dev, size, GFP_KERNEL);
	struct vrdma_runs *runs;
	u32 pdn, cqn, qpn;
	int err, ret;

	if (!mem)
		return false;
	runs = vrdma_mem_runs(dev, mem);
	if (IS_ERR(runs)) {
		vrdma_mem_free(dev, mem);
		return false;
	}
	err = vrdma_cmd_create_cq(dev, &cq_req, runs, &cqn, &mem);
	if (err) {
		vrdma_mem_release(dev, mem, vrdma_broken(dev) ? err : 0);
		return false;
	}
	err = vrdma_cmd_alloc_pd(dev, VRDMA_KERNEL_CONTEXT, &pdn);
	if (!err) {
		req.pdn = cpu_to_le32(pdn);
		req.send_cqn = cpu_to_le32(cqn);
		req.recv_cqn = cpu_to_le32(cqn);
		err = vrdma_cmd_create_qp(dev, &req, &qpn);
		if (!err) {
			vrdma_cmd_destroy_qp(dev, qpn);
			/* The core expects this number. */
			err = qpn == VRDMA_GSI_QPN ? 0 : -EPROTO;
		}
		vrdma_cmd_dealloc_pd(dev, pdn);
	}
	ret = vrdma_cmd_destroy_cq(dev, cqn, &mem);
	vrdma_mem_release(dev, mem, ret);
	return !err;
}
