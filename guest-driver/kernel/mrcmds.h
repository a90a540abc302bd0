/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_MRCMDS_H
#define VRDMA_MRCMDS_H

#include "vrdma.h"

struct vrdma_runs;

int vrdma_cmd_reg_mr(struct vrdma_dev *dev, struct vrdma_reg_mr_req *req,
		     struct vrdma_runs *runs, struct ib_mr *ibmr, struct vrdma_mem **mem);
int vrdma_cmd_dereg_mr(struct vrdma_dev *dev, u32 lkey, struct vrdma_mem **mem);
int vrdma_cmd_get_dma_mr(struct vrdma_dev *dev, u32 pdn, u32 access, struct ib_mr *ibmr);
int vrdma_cmd_rereg_mr(struct vrdma_dev *dev, const struct vrdma_rereg_mr_req *req,
		       struct vrdma_runs *runs, struct ib_mr *ibmr, struct vrdma_mem **mem,
		       bool *pending, bool *submitted);
int vrdma_cmd_alloc_fast_mr(struct vrdma_dev *dev, u32 pdn, u32 max_pages, struct ib_mr *ibmr,
			    struct vrdma_mem **mem);
int vrdma_cmd_alloc_mw(struct vrdma_dev *dev, u32 pdn, u32 mw_type, u32 *rkey);
int vrdma_cmd_dealloc_mw(struct vrdma_dev *dev, u32 rkey);

#endif /* VRDMA_MRCMDS_H */
