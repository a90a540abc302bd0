/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_RECOVER_H
#define VRDMA_RECOVER_H

#include "vrdma.h"

void vrdma_recover_init(struct vrdma_dev *dev);
void vrdma_recover_watch(struct vrdma_dev *dev);
void vrdma_recover_cancel(struct vrdma_dev *dev);

#endif /* VRDMA_RECOVER_H */
