// SPDX-License-Identifier: GPL-2.0
/*
 * The commands about memory regions and windows, one function each.
 */
#include "cmdexec.h"
#include "mrcmds.h"

/* Executes a command whose answer is the keys of a region, and stores the keys in @ibmr. */
static int keys_cmd(struct vrdma_dev *dev, const struct vrdma_cmd *cmd, struct ib_mr *ibmr)
{
	struct vrdma_reg_mr_resp resp;
	struct vrdma_cmd_result result = VRDMA_REPLY(&resp);
	int err;

	err = vrdma_cmd_exec(dev, cmd, &result);
	if (!err) {
		ibmr->lkey = le32_to_cpu(resp.lkey);
		ibmr->rkey = le32_to_cpu(resp.rkey);
	}
	return err;
}

int vrdma_cmd_reg_mr(struct vrdma_dev *dev, struct vrdma_reg_mr_req *req,
		     struct vrdma_runs *runs, struct ib_mr *ibmr, struct vrdma_mem **mem)
{
	struct vrdma_cmd cmd = VRDMA_COMMAND(VRDMA_CMD_REG_MR, req);

	cmd.runs = runs;
	cmd.mem = mem;
	return keys_cmd(dev, &cmd, ibmr);
}

int vrdma_cmd_dereg_mr(struct vrdma_dev *dev, u32 lkey, struct vrdma_mem **mem)
{
	return vrdma_cmd_on(dev, VRDMA_CMD_DEREG_MR, lkey, mem);
}

int vrdma_cmd_get_dma_mr(struct vrdma_dev *dev, u32 pdn, u32 access, struct ib_mr *ibmr)
{
	struct vrdma_dma_mr_req req = {
		.pdn = cpu_to_le32(pdn),
		.access = cpu_to_le32(access),
	};
	struct vrdma_cmd cmd = VRDMA_COMMAND(VRDMA_CMD_GET_DMA_MR, &req);

	return keys_cmd(dev, &cmd, ibmr);
}

/*
 * Changes a region in the device.
 *
 * On success the region may have new keys. After an error it is unchanged, with two exceptions:
 *
 * - If @pending becomes true, the abandoned command has the region and all of @mem. The region is
 *   destroyed after the device has answered.
 * - After -EIO of a command that was @submitted, the state of the region is unknown.
 */
int vrdma_cmd_rereg_mr(struct vrdma_dev *dev, const struct vrdma_rereg_mr_req *req,
		       struct vrdma_runs *runs, struct ib_mr *ibmr, struct vrdma_mem **mem,
		       bool *pending, bool *submitted)
{
	struct vrdma_cmd cmd = VRDMA_COMMAND(VRDMA_CMD_REREG_MR, req);
	struct vrdma_reg_mr_resp resp;
	struct vrdma_cmd_result result = VRDMA_REPLY(&resp);
	int err;

	cmd.runs = runs;
	cmd.mem = mem;
	err = vrdma_cmd_exec(dev, &cmd, &result);
	*pending = result.pending;
	*submitted = result.submitted;
	if (!err) {
		ibmr->lkey = le32_to_cpu(resp.lkey);
		ibmr->rkey = le32_to_cpu(resp.rkey);
	}
	return err;
}

int vrdma_cmd_alloc_fast_mr(struct vrdma_dev *dev, u32 pdn, u32 max_pages, struct ib_mr *ibmr,
			    struct vrdma_mem **mem)
{
	struct vrdma_alloc_fast_mr_req req = {
		.pdn = cpu_to_le32(pdn),
		.max_pages = cpu_to_le32(max_pages),
	};
	struct vrdma_cmd cmd = VRDMA_COMMAND(VRDMA_CMD_ALLOC_FAST_MR, &req);

	cmd.mem = mem;
	return keys_cmd(dev, &cmd, ibmr);
}

int vrdma_cmd_alloc_mw(struct vrdma_dev *dev, u32 pdn, u32 mw_type, u32 *rkey)
{
	struct vrdma_alloc_mw_req req = {
		.pdn = cpu_to_le32(pdn),
		.mw_type = cpu_to_le32(mw_type),
	};
	struct vrdma_cmd cmd = VRDMA_COMMAND(VRDMA_CMD_ALLOC_MW, &req);

	return vrdma_cmd_create(dev, &cmd, rkey);
}

int vrdma_cmd_dealloc_mw(struct vrdma_dev *dev, u32 rkey)
{
	return vrdma_cmd_on(dev, VRDMA_CMD_DEALLOC_MW, rkey, NULL);
}
