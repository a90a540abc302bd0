/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_VERBS_H
#define VRDMA_VERBS_H

#include "vrdma.h"

void vrdma_verbs_init(struct vrdma_dev *dev);

#endif /* VRDMA_VERBS_H */
