/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_MR_H
#define VRDMA_MR_H

#include "vrdma.h"

struct ib_mr *vrdma_get_dma_mr(struct ib_pd *ibpd, int access);
struct ib_mr *vrdma_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length, u64 virt_addr,
				int access, VRDMA_DMAH_PARAM struct ib_udata *udata);
struct ib_mr *vrdma_reg_dm_mr(struct ib_pd *ibpd, struct ib_dm *ibdm, struct ib_dm_mr_attr *attr,
			      struct uverbs_attr_bundle *attrs);
struct ib_mr *vrdma_rereg_user_mr(struct ib_mr *ibmr, int flags, u64 start, u64 length,
				  u64 virt_addr, int access, struct ib_pd *ibpd,
				  struct ib_udata *udata);
int vrdma_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata);

#endif /* VRDMA_MR_H */
