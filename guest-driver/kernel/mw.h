/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_MW_H
#define VRDMA_MW_H

#include "vrdma.h"

int vrdma_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata);
int vrdma_dealloc_mw(struct ib_mw *ibmw);

#endif /* VRDMA_MW_H */
