/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_DOORBELL_H
#define VRDMA_DOORBELL_H

#include "vrdma.h"

void vrdma_doorbells_find(struct vrdma_dev *dev);

#endif /* VRDMA_DOORBELL_H */
