/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_IW_H
#define VRDMA_IW_H

#include "vrdma.h"

void vrdma_iw_init(struct ib_device *ibdev);

#endif /* VRDMA_IW_H */
