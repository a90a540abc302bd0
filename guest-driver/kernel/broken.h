/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_BROKEN_H
#define VRDMA_BROKEN_H

#include "vrdma.h"

/* How often recover_work checks a stalled device, in jiffies. */
#define VRDMA_RECOVER_INTERVAL (HZ / 10)

/* Whether the device failed for good. No command is sent to it any more. */
static inline bool vrdma_broken(const struct vrdma_dev *dev)
{
	return READ_ONCE(dev->broken);
}

/* Whether the device does not answer at present. It may recover: its host may just be busy. */
static inline bool vrdma_stalled(const struct vrdma_dev *dev)
{
	return READ_ONCE(dev->stalled);
}

/* Whether the device is stalled (broken or not), so that it may use its memory again later. */
static inline bool vrdma_may_resume(const struct vrdma_dev *dev)
{
	return vrdma_stalled(dev) && !READ_ONCE(dev->is_reset);
}

void vrdma_set_broken(struct vrdma_dev *dev, const char *why);
void vrdma_set_stalled(struct vrdma_dev *dev, const char *why);
void vrdma_clear_stalled(struct vrdma_dev *dev);
void vrdma_reset(struct vrdma_dev *dev);
void vrdma_find_reset(struct vrdma_dev *dev);

#endif /* VRDMA_BROKEN_H */
