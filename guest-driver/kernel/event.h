/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_EVENT_H
#define VRDMA_EVENT_H

#include "vrdma.h"

/**
 * struct vrdma_eq - an event queue
 * @dev: the device
 * @vq: the virtqueue
 * @lock: protects @vq
 * @bufs: the buffers; the device has all of them between interrupts
 * @num: number of buffers
 * @work: handles events that must not run in interrupt context, or are too many for it
 */
struct vrdma_eq {
	struct vrdma_dev *dev;
	struct virtqueue *vq;
	spinlock_t lock;
	struct vrdma_event *bufs;
	unsigned int num;
	struct work_struct work;
};

int vrdma_eqs_init(struct vrdma_dev *dev, struct virtqueue *vqs[], unsigned int num);
int vrdma_eqs_fill(struct vrdma_dev *dev);
void vrdma_eqs_cancel(struct vrdma_dev *dev);
void vrdma_eqs_cleanup(struct vrdma_dev *dev);
void vrdma_async_interrupt(struct virtqueue *vq);
void vrdma_comp_interrupt(struct virtqueue *vq);

#endif /* VRDMA_EVENT_H */
