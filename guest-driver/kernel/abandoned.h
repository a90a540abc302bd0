/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_ABANDONED_H
#define VRDMA_ABANDONED_H

#include "vrdma.h"

void vrdma_abandoned_init(struct vrdma_dev *dev);

#endif /* VRDMA_ABANDONED_H */
