/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_FAST_H
#define VRDMA_FAST_H

#include "vrdma.h"

struct ib_mr *vrdma_alloc_mr(struct ib_pd *ibpd, enum ib_mr_type type, u32 max_num_sg);
int vrdma_map_mr_sg(struct ib_mr *ibmr, struct scatterlist *sg, int sg_nents,
		    unsigned int *sg_offset);
int vrdma_fill_reg(u8 *wqe, const struct ib_send_wr *wr);

#endif /* VRDMA_FAST_H */
