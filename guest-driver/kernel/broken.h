/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_BROKEN_H
#define VRDMA_BROKEN_H

#include "vrdma.h"

/* How often recover_work looks at a stalled device, in jiffies. */
#define VRDMA_RECOVER_INTERVAL (HZ / 10)

/* The device failed for good: no command is given any more. */
static inline bool vrdma_broken(const struct vrdma_dev *dev)
{
	return READ_ONCE(dev->broken);
}

/* The device answers nothing for now. It is not given up at once: its host may be busy. */
static inline bool vrdma_stalled(const struct vrdma_dev *dev)
{
	return READ_ONCE(dev->stalled);
}

/* The device is stalled, broken or not, and uses the memory it was given if it resumes. */
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
