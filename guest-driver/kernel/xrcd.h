/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_XRCD_H
#define VRDMA_XRCD_H

#include "vrdma.h"

int vrdma_alloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata);
int vrdma_dealloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata);

#endif /* VRDMA_XRCD_H */
