// SPDX-License-Identifier: GPL-2.0
/* Recovery of a stalled device, and the end of a broken one. See broken.c. */
#include <linux/module.h>
#include <linux/moduleparam.h>

#include "broken.h"
#include "cm.h"
#include "cmdexec.h"
#include "cq.h"
#include "port.h"
#include "recover.h"

static unsigned int fatal_timeout_s = 120;
module_param(fatal_timeout_s, uint, 0644);
MODULE_PARM_DESC(fatal_timeout_s,
		 "Time for which a device may stand still before it is given up for good (default 120 s; 0: never given up)");

/* How often the device is checked for a reset by somebody else, in jiffies. */
#define WATCH_INTERVAL (2 * HZ)

/* Polls a stalled device until it answers, or until it is given up and reset. */
static void recover_work(struct work_struct *work)
{
	struct vrdma_dev *dev = container_of(work, struct vrdma_dev, recover_work.work);
	u64 limit = (u64)READ_ONCE(fatal_timeout_s) * HZ;

	if (vrdma_broken(dev) && !vrdma_may_resume(dev))
		return;
	if (READ_ONCE(dev->removing)) {
		/* vrdma_remove() did not see that the device is stalled. */
		vrdma_reset(dev);
		vrdma_set_broken(dev, "it is removed while it stands still");
		return;
	}
	vrdma_cmd_probe(dev);
	if (READ_ONCE(dev->answered) == READ_ONCE(dev->answered_at_stall)) {
		if (limit && jiffies - READ_ONCE(dev->stalled_since) > limit)
			vrdma_set_broken(dev, "it stood still for too long");
		queue_delayed_work(dev->wq, &dev->recover_work, VRDMA_RECOVER_INTERVAL);
		return;
	}
	if (vrdma_broken(dev)) {
		/* Not earlier: a reset waits for the device, and stops the whole VM meanwhile. */
		vrdma_reset(dev);
		dev_info(&dev->vdev->dev, "the device that was given up is reset\n");
		return;
	}
	vrdma_clear_stalled(dev);
}

/*
 * Checks whether somebody else has reset the device.
 *
 * Otherwise programs that only wait for completions would never know. The work item is deferrable,
 * so that an idle processor is not woken for it.
 */
static void watch_work(struct work_struct *work)
{
	struct vrdma_dev *dev = container_of(work, struct vrdma_dev, watch_work.work);

	if (READ_ONCE(dev->removing))
		return;
	vrdma_find_reset(dev);
	if (!vrdma_broken(dev))
		queue_delayed_work(dev->wq, &dev->watch_work, WATCH_INTERVAL);
}

/* Reports a broken device to the verbs users, and has the kernel's requests flushed. */
static void fatal_work(struct work_struct *work)
{
	struct vrdma_dev *dev = container_of(work, struct vrdma_dev, fatal_work);
	struct ib_event event = {
		.device = &dev->ibdev,
		.element.port_num = VRDMA_PORT,
		.event = IB_EVENT_DEVICE_FATAL,
	};

	if (dev->registered && !dev->fatal_dispatched) {
		dev->fatal_dispatched = true;
		ib_dispatch_event(&event);
	}
	vrdma_cqs_flush(dev);
	vrdma_cm_fail(dev);
	vrdma_port_update(dev);
}

void vrdma_recover_init(struct vrdma_dev *dev)
{
	INIT_WORK(&dev->fatal_work, fatal_work);
	INIT_DELAYED_WORK(&dev->recover_work, recover_work);
	INIT_DEFERRABLE_WORK(&dev->watch_work, watch_work);
}

/* Starts watching for resets by somebody else, after the device has been started. */
void vrdma_recover_watch(struct vrdma_dev *dev)
{
	queue_delayed_work(dev->wq, &dev->watch_work, WATCH_INTERVAL);
}

/*
 * Cancels the work items. Called after the device has been reset.
 *
 * Each of them may queue those after it, and config_work may queue the first one. So this is called
 * again when no command is left.
 */
void vrdma_recover_cancel(struct vrdma_dev *dev)
{
	cancel_delayed_work_sync(&dev->recover_work);
	cancel_delayed_work_sync(&dev->watch_work);
	cancel_work_sync(&dev->config_work);
	cancel_work_sync(&dev->fatal_work);
}
