// SPDX-License-Identifier: GPL-2.0
/*
 * Whether the device is stalled or broken. Any file may report it here. The files that act on it
 * have a work, or waiters on &vrdma_dev.wait, so nothing here calls another file.
 */
#include <linux/virtio_config.h>

#include "broken.h"

/**
 * vrdma_set_broken() - give the device up
 * @dev: the device
 * @why: what it did, for the log
 *
 * From any context, and for good: until the driver is removed no command is given any more.
 */
void vrdma_set_broken(struct vrdma_dev *dev, const char *why)
{
	if (xchg(&dev->broken, true))
		return;
	dev_err(&dev->vdev->dev, "the device failed: %s\n", why);
	wake_up_all(&dev->wait);
	queue_work(dev->wq, &dev->fatal_work);
}

/**
 * vrdma_reset() - reset the device
 * @dev: the device
 *
 * It uses no memory any more. Sleeps until the device answers, even one that is stalled.
 */
void vrdma_reset(struct vrdma_dev *dev)
{
	virtio_reset_device(dev->vdev);
	WRITE_ONCE(dev->is_reset, true);
	wake_up_all(&dev->wait);
	/* Requests that had to wait for the reset can be flushed now. */
	if (vrdma_broken(dev))
		queue_work(dev->wq, &dev->fatal_work);
}

/**
 * vrdma_find_reset() - give the device up if somebody else has reset it
 * @dev: the device, which the driver has started
 *
 * A reset of the PCI function (`reset` in sysfs, or a VMM) is told to no virtio driver. The
 * device forgets its queues then and answers nothing any more; its status says so
 * (virtio 1.2, 2.1). It uses no memory any more. May sleep.
 */
void vrdma_find_reset(struct vrdma_dev *dev)
{
	if (READ_ONCE(dev->is_reset) ||
	    (dev->vdev->config->get_status(dev->vdev) & VIRTIO_CONFIG_S_DRIVER_OK))
		return;
	WRITE_ONCE(dev->is_reset, true);
	vrdma_set_broken(dev, "it was reset by somebody else: bind the driver anew");
}

/**
 * vrdma_set_stalled() - the device answers nothing for now
 * @dev: the device
 * @why: what it does not do, for the log
 *
 * Until it answers again it is asked for nothing new: nobody waits for it, and nothing is pinned
 * for it. May sleep.
 */
void vrdma_set_stalled(struct vrdma_dev *dev, const char *why)
{
	if (vrdma_broken(dev))
		return;
	if (READ_ONCE(dev->removing)) {
		/* Nobody is left to wait until it resumes. See vrdma_remove(). */
		vrdma_reset(dev);
		vrdma_set_broken(dev, why);
		return;
	}
	if (vrdma_stalled(dev))
		return;
	WRITE_ONCE(dev->answered_at_stall, READ_ONCE(dev->answered));
	if (xchg(&dev->stalled, true))
		return;
	dev_warn(&dev->vdev->dev, "the device stands still: %s\n", why);
	WRITE_ONCE(dev->stalled_since, jiffies);
	/* Its port is down. */
	queue_work(dev->wq, &dev->config_work);
	queue_delayed_work(dev->wq, &dev->recover_work, VRDMA_RECOVER_INTERVAL);
}

/**
 * vrdma_clear_stalled() - the device answers again
 * @dev: the device
 */
void vrdma_clear_stalled(struct vrdma_dev *dev)
{
	WRITE_ONCE(dev->stalled, false);
	dev_info(&dev->vdev->dev, "the device goes on\n");
	/* The state of its port is what the device says again. */
	queue_work(dev->wq, &dev->config_work);
}
