/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_DEV_H
#define VRDMA_DEV_H

#include "vrdma.h"

struct vrdma_dev *vrdma_dev_alloc(struct virtio_device *vdev);
void vrdma_dev_free(struct vrdma_dev *dev);
int vrdma_dev_start(struct vrdma_dev *dev);
void vrdma_dev_stop(struct vrdma_dev *dev);

#endif /* VRDMA_DEV_H */
