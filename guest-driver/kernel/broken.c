// SPDX-License-Identifier: GPL-2.0
/*
 * Whether the device is stalled or broken.
 *
 * Any file may report it here. The files that act on it have a work item, or wait on
 * &vrdma_dev.wait. So nothing here calls another file.
 */
#include <linux/virtio_config.h>

#include "broken.h"

/**
 * vrdma_set_broken() - give the device up for good
 * @dev: the device
 * @why: what the device did, for the log
 *
 * No command is sent any more until the driver is removed. Can be called from any context.
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
 * Afterwards the device uses no memory any more. Sleeps until the device answers, even if it is
 * stalled.
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
 * No virtio driver is told of a reset of the PCI function (by `reset` in sysfs, or by a VMM). After
 * such a reset the device has no queues, answers nothing and uses no memory. The driver finds out
 * from the device status (virtio 1.2, 2.1). May sleep.
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
 * vrdma_set_stalled() - note that the device does not answer at present
 * @dev: the device
 * @why: what the device does not do, for the log
 *
 * The device gets no new commands until it answers again. Until then nobody waits for it, and no
 * memory is pinned for it. May sleep.
 */
void vrdma_set_stalled(struct vrdma_dev *dev, const char *why)
{
	if (vrdma_broken(dev))
		return;
	if (READ_ONCE(dev->removing)) {
		/* Nobody is left who could wait until the device resumes. See vrdma_remove(). */
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
	/* The port of a stalled device is down. */
	queue_work(dev->wq, &dev->config_work);
	queue_delayed_work(dev->wq, &dev->recover_work, VRDMA_RECOVER_INTERVAL);
}

/**
 * vrdma_clear_stalled() - note that the device answers again
 * @dev: the device
 */
void vrdma_clear_stalled(struct vrdma_dev *dev)
{
	WRITE_ONCE(dev->stalled, false);
	dev_info(&dev->vdev->dev, "the device goes on\n");
	/* The port has the state that the device reports again. */
	queue_work(dev->wq, &dev->config_work);
}
