// SPDX-License-Identifier: GPL-2.0
/* Starting and stopping a device: its queues, its limits, and what the driver keeps for it. */
#include <linux/log2.h>
#include <linux/slab.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>

#include "abandoned.h"
#include "ah.h"
#include "broken.h"
#include "channel.h"
#include "cm.h"
#include "cmdq.h"
#include "cmds.h"
#include "dev.h"
#include "dm.h"
#include "doorbell.h"
#include "event.h"
#include "gsi.h"
#include "kchannel.h"
#include "mem.h"
#include "port.h"
#include "recover.h"

/* More than any VMM has. */
#define MAX_QUEUES 1024
#define QUEUE_NAME_LEN 16

/* Finds the queues, in the order of the ABI. */
static int find_queues(struct vrdma_dev *dev, unsigned int num_vectors, unsigned int num_channels)
{
	unsigned int first_channel = VRDMA_QUEUE_FIRST_COMP_EVENTS + num_vectors;
	unsigned int num = first_channel + num_channels;
	struct virtqueue_info *info;
	struct virtqueue **vqs;
	unsigned int i;
	char *names;
	int err;

	vqs = kcalloc(num, sizeof(*vqs), GFP_KERNEL);
	info = kcalloc(num, sizeof(*info), GFP_KERNEL);
	/* virtio_ring keeps pointers to the names. */
	names = devm_kcalloc(&dev->vdev->dev, num, QUEUE_NAME_LEN, GFP_KERNEL);
	if (!vqs || !info || !names) {
		err = -ENOMEM;
		goto out;
	}
	for (i = 0; i < num; i++) {
		char *name = names + i * QUEUE_NAME_LEN;

		info[i].name = name;
		if (i == VRDMA_QUEUE_CONTROL) {
			snprintf(name, QUEUE_NAME_LEN, "control");
			info[i].callback = vrdma_cmdq_interrupt;
		} else if (i == VRDMA_QUEUE_ASYNC_EVENTS) {
			snprintf(name, QUEUE_NAME_LEN, "async");
			info[i].callback = vrdma_async_interrupt;
		} else if (i < first_channel) {
			snprintf(name, QUEUE_NAME_LEN, "comp.%u",
				 i - VRDMA_QUEUE_FIRST_COMP_EVENTS);
			info[i].callback = vrdma_comp_interrupt;
		} else {
			/* Channels have no interrupts, so no callback. */
			snprintf(name, QUEUE_NAME_LEN, "channel.%u", i - first_channel);
		}
	}
	err = vrdma_find_vqs(dev->vdev, num, vqs, info);
	if (err)
		goto out;
	dev->cmdq.vq = vqs[VRDMA_QUEUE_CONTROL];
	err = vrdma_eqs_init(dev, vqs + VRDMA_QUEUE_ASYNC_EVENTS, 1 + num_vectors);
	if (!err)
		err = vrdma_channels_init(dev, vqs + first_channel, num_channels);
out:
	kfree(info);
	kfree(vqs);
	return err;
}

static int read_config(struct vrdma_dev *dev, unsigned int *num_vectors,
		       unsigned int *num_channels)
{
	struct virtio_device *vdev = dev->vdev;
	u16 vectors, channels;
	u32 magic;
	u8 units;

	/* main.c has checked the magic. */
	virtio_cread_le(vdev, struct vrdma_config, magic, &magic);
	dev->iwarp = magic == VRDMA_MAGIC_TRANSPORT;
	virtio_cread_bytes(vdev, offsetof(struct vrdma_config, mac), dev->mac, sizeof(dev->mac));
	virtio_cread_le(vdev, struct vrdma_config, num_comp_vectors, &vectors);
	virtio_cread_le(vdev, struct vrdma_config, num_channels, &channels);
	virtio_cread_le(vdev, struct vrdma_config, max_wqe_units, &units);
	virtio_cread_le(vdev, struct vrdma_config, max_mtu, &dev->caps.max_mtu);
	if (!vectors || !channels || vectors + channels > MAX_QUEUES || !units) {
		dev_err(&vdev->dev, "its configuration makes no sense\n");
		return -EINVAL;
	}
	*num_vectors = vectors;
	*num_channels = channels;
	dev->caps.max_wqe_units = min_t(u32, units, VRDMA_WQE_MAX_UNITS_V1_1);
	return 0;
}

/* Queries the limits of the device, and reduces them to what a request can hold. */
static int query_caps(struct vrdma_dev *dev)
{
	u32 room = dev->caps.max_wqe_units * VRDMA_WQE_UNIT_SIZE - VRDMA_WQE_DATA_OFFSET;
	u32 max_sge = room / sizeof(struct vrdma_sge);
	struct vrdma_caps *caps = &dev->caps;
	int err;

	err = vrdma_cmd_query_device(dev, caps);
	if (err)
		return err;
	if (!is_power_of_2(caps->max_qp) || !is_power_of_2(caps->max_cqe)) {
		dev_err(&dev->vdev->dev, "its limits make no sense\n");
		return -EINVAL;
	}
	caps->max_send_sge = min(caps->max_send_sge, max_sge);
	caps->max_recv_sge = min(caps->max_recv_sge, max_sge);
	caps->max_inline = min(caps->max_inline, room);
	return 0;
}

/* Starts the device, so that it can be registered. */
int vrdma_dev_start(struct vrdma_dev *dev)
{
	unsigned int num_vectors, num_channels;
	int err;

	err = read_config(dev, &num_vectors, &num_channels);
	if (err)
		return err;
	err = find_queues(dev, num_vectors, num_channels);
	if (err)
		return err;
	vrdma_doorbells_find(dev);
	virtio_device_ready(dev->vdev);

	err = vrdma_eqs_fill(dev);
	if (err)
		return err;
	err = query_caps(dev);
	if (err)
		return err;
	err = vrdma_link_query(dev);
	if (err)
		return err;
	err = vrdma_channel_bind(&dev->channels[0], VRDMA_KERNEL_CONTEXT, NULL);
	if (err)
		return err;
	err = vrdma_ah_init(dev);
	if (err)
		return err;
	/* UD needs address handles, and QP1 is a UD QP. */
	dev->gsi = dev->ah_mem && vrdma_probe_gsi(dev);
	/*
	 * A device that left one of these commands unanswered would lack its function for good. So
	 * starting fails.
	 */
	return vrdma_broken(dev) || vrdma_stalled(dev) ? -EIO : 0;
}

/* Resets the device, and frees all memory that it used. */
void vrdma_dev_stop(struct vrdma_dev *dev)
{
	WRITE_ONCE(dev->removing, true);
	vrdma_reset(dev);
	/* Work items that still run find no events, and a broken device. */
	WRITE_ONCE(dev->broken, true);
	vrdma_eqs_cancel(dev);
	vrdma_cm_cancel(dev);
	vrdma_recover_cancel(dev);
	vrdma_backlog_cleanup(dev);

	vrdma_cmdq_cleanup(dev);
	/* config_work, and commands of abandoned_work, may have queued these work items again. */
	vrdma_recover_cancel(dev);
	vrdma_eqs_cleanup(dev);
	vrdma_channels_cleanup(dev);
	dev->vdev->config->del_vqs(dev->vdev);
	vrdma_ah_cleanup(dev);
	vrdma_quarantine_cleanup(dev);
	vrdma_cm_cleanup(dev);
}

struct vrdma_dev *vrdma_dev_alloc(struct virtio_device *vdev)
{
	struct vrdma_dev *dev = ib_alloc_device(vrdma_dev, ibdev);

	if (!dev)
		return NULL;
	dev->wq = alloc_workqueue("vrdma", WQ_MEM_RECLAIM | WQ_PERCPU, 0);
	if (!dev->wq) {
		ib_dealloc_device(&dev->ibdev);
		return NULL;
	}
	dev->vdev = vdev;
	dev->dma_dev = vdev->dev.parent;
	init_waitqueue_head(&dev->wait);
	mutex_init(&dev->kqp_lock);
	vrdma_recover_init(dev);
	vrdma_port_init(dev);
	vrdma_cmdq_init(&dev->cmdq);
	vrdma_abandoned_init(dev);
	xa_init(&dev->told_macs);
	spin_lock_init(&dev->channel_lock);
	INIT_LIST_HEAD(&dev->free_channels);
	vrdma_backlog_init(dev);
	xa_init_flags(&dev->cqs, XA_FLAGS_LOCK_IRQ);
	xa_init_flags(&dev->qps, XA_FLAGS_LOCK_IRQ);
	xa_init_flags(&dev->srqs, XA_FLAGS_LOCK_IRQ);
	ida_init(&dev->ah_ida);
	vrdma_quarantine_init(dev);
	vrdma_dm_init(dev);
	vrdma_cm_init(dev);
	return dev;
}

void vrdma_dev_free(struct vrdma_dev *dev)
{
	destroy_workqueue(dev->wq);
	xa_destroy(&dev->cqs);
	xa_destroy(&dev->qps);
	xa_destroy(&dev->srqs);
	xa_destroy(&dev->told_macs);
	ib_dealloc_device(&dev->ibdev);
}
