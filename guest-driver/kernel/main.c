// SPDX-License-Identifier: GPL-2.0
/*
 * vrdma: driver of a paravirtual RDMA device (virtio).
 */
#include <linux/iommu.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/swiotlb.h>
#include <linux/virtio_config.h>

#include "vrdma.h"

/* More than any VMM has. */
#define MAX_QUEUES 1024
#define QUEUE_NAME_LEN 16

static unsigned int fatal_timeout_s = 120;
module_param(fatal_timeout_s, uint, 0644);
MODULE_PARM_DESC(fatal_timeout_s,
		 "Time for which a device may stand still before it is given up for good (default 120 s; 0: never given up)");

static bool config_is_vrdma(struct virtio_device *vdev)
{
	u32 magic;
	u16 major;

	virtio_cread_le(vdev, struct vrdma_config, magic, &magic);
	if (magic != VRDMA_MAGIC)
		return false;
	virtio_cread_le(vdev, struct vrdma_config, version_major, &major);
	if (major != VRDMA_VERSION_MAJOR) {
		dev_err(&vdev->dev, "version %u of the device is not known\n", major);
		return false;
	}
	return true;
}

/*
 * The addresses in commands are the device's own: either it uses the platform's way to memory,
 * or there must be nothing in between.
 */
static int check_dma(struct virtio_device *vdev)
{
	struct device *dma_dev = vdev->dev.parent;
	struct iommu_domain *domain;

	if (is_swiotlb_force_bounce(dma_dev)) {
		dev_err(&vdev->dev, "bounced DMA is not possible\n");
		return -EOPNOTSUPP;
	}
	if (virtio_has_feature(vdev, VIRTIO_F_ACCESS_PLATFORM))
		return 0;
	domain = iommu_get_domain_for_dev(dma_dev);
	if (domain && domain->type != IOMMU_DOMAIN_IDENTITY) {
		dev_err(&vdev->dev, "behind an IOMMU, but without ACCESS_PLATFORM\n");
		return -EOPNOTSUPP;
	}
	return 0;
}

static int vrdma_validate(struct virtio_device *vdev)
{
	if (!virtio_has_feature(vdev, VIRTIO_F_VERSION_1) || !config_is_vrdma(vdev))
		return -ENODEV;
	/* Processes write split rings, without other tables, and 16 bits to the doorbell. */
	__virtio_clear_bit(vdev, VIRTIO_F_RING_PACKED);
	__virtio_clear_bit(vdev, VIRTIO_RING_F_INDIRECT_DESC);
	__virtio_clear_bit(vdev, VIRTIO_F_NOTIFICATION_DATA);
	/* Nor do they have barriers for anything but memory. */
	__virtio_clear_bit(vdev, VIRTIO_F_ORDER_PLATFORM);
	return 0;
}

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
	wake_up_all(&dev->cmdq.wait);
	queue_work(dev->wq, &dev->fatal_work);
}

/* From here on the device uses no memory. */
static void device_reset(struct vrdma_dev *dev)
{
	virtio_reset_device(dev->vdev);
	WRITE_ONCE(dev->is_reset, true);
	wake_up_all(&dev->cmdq.wait);
	/* What could not be flushed before can be now. */
	if (vrdma_broken(dev))
		queue_work(dev->wq, &dev->fatal_work);
}

/**
 * vrdma_set_stalled() - the device answers nothing for now
 * @dev: the device
 * @why: what it does not do, for the log
 *
 * From where one may sleep. Until it answers again it is asked for nothing new, so that nobody
 * waits for it, and nothing is pinned for it.
 */
void vrdma_set_stalled(struct vrdma_dev *dev, const char *why)
{
	if (vrdma_broken(dev))
		return;
	if (READ_ONCE(dev->leaving)) {
		/* Nobody is there any more to wait until it goes on. See vrdma_remove(). */
		device_reset(dev);
		vrdma_set_broken(dev, why);
		return;
	}
	if (vrdma_stalled(dev))
		return;
	WRITE_ONCE(dev->answered_then, READ_ONCE(dev->cmdq.answered));
	if (xchg(&dev->stalled, true))
		return;
	dev_warn(&dev->vdev->dev, "the device stands still: %s\n", why);
	WRITE_ONCE(dev->stalled_since, jiffies);
	/* Its port is down. */
	queue_work(dev->wq, &dev->config_work);
	queue_delayed_work(dev->wq, &dev->recover_work, HZ / 10);
}

static void recover_work(struct work_struct *work)
{
	struct vrdma_dev *dev = container_of(work, struct vrdma_dev, recover_work.work);
	u64 limit = (u64)READ_ONCE(fatal_timeout_s) * HZ;

	if (vrdma_broken(dev) && !vrdma_may_go_on(dev))
		return;
	if (READ_ONCE(dev->leaving)) {
		/* vrdma_remove() did not see that it stands still. */
		device_reset(dev);
		vrdma_set_broken(dev, "it is removed while it stands still");
		return;
	}
	vrdma_cmdq_probe(dev);
	if (READ_ONCE(dev->cmdq.answered) == READ_ONCE(dev->answered_then)) {
		if (limit && jiffies - READ_ONCE(dev->stalled_since) > limit)
			vrdma_set_broken(dev, "it stood still for too long");
		queue_delayed_work(dev->wq, &dev->recover_work, HZ / 10);
		return;
	}
	if (vrdma_broken(dev)) {
		/* Not before: a reset would wait for it, and the whole VM with it. */
		device_reset(dev);
		dev_info(&dev->vdev->dev, "the device that was given up is reset\n");
		return;
	}
	WRITE_ONCE(dev->stalled, false);
	dev_info(&dev->vdev->dev, "the device goes on\n");
	/* Its port is as the device says. */
	queue_work(dev->wq, &dev->config_work);
}

static void fatal_work(struct work_struct *work)
{
	struct vrdma_dev *dev = container_of(work, struct vrdma_dev, fatal_work);
	struct ib_event event = {
		.device = &dev->ibdev,
		.element.port_num = VRDMA_PORT,
		.event = IB_EVENT_DEVICE_FATAL,
	};

	if (dev->registered && !dev->fatal_told) {
		dev->fatal_told = true;
		ib_dispatch_event(&event);
	}
	vrdma_cqs_flush(dev);
	vrdma_port_update(dev);
}

static void config_work(struct work_struct *work)
{
	struct vrdma_dev *dev = container_of(work, struct vrdma_dev, config_work);

	if (dev->vdev->config->get_status(dev->vdev) & VIRTIO_CONFIG_S_NEEDS_RESET)
		vrdma_set_broken(dev, "it needs a reset");
	vrdma_port_update(dev);
	vrdma_mtu_update(dev);
}

static void vrdma_config_changed(struct virtio_device *vdev)
{
	struct vrdma_dev *dev = vdev->priv;

	queue_work(dev->wq, &dev->config_work);
}

/* Finds the queues, in the order in which the ABI has them. */
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
	/* virtio_ring keeps pointers to them. */
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
			/* No interrupts, so no callback. */
			snprintf(name, QUEUE_NAME_LEN, "channel.%u", i - first_channel);
		}
	}
	err = virtio_find_vqs(dev->vdev, num, vqs, info, NULL);
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
	u8 units;

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
	dev->caps.max_wqe_units = min_t(u32, units, VRDMA_WQE_MAX_UNITS);
	return 0;
}

/* Asks the device for its limits, and keeps them to what requests can express. */
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

/* Brings the device to where it can be registered. */
static int dev_start(struct vrdma_dev *dev)
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
	/* Without address handles there is no UD, and without that no QP1. */
	dev->gsi = dev->ah_mem && vrdma_probe_gsi(dev);
	/* What was not answered here would be missing for good. */
	return vrdma_broken(dev) || vrdma_stalled(dev) ? -EIO : 0;
}

/* Resets the device, after which it reads and writes no memory, and frees what it had. */
static void dev_stop(struct vrdma_dev *dev)
{
	WRITE_ONCE(dev->leaving, true);
	device_reset(dev);
	/* What still runs finds no events and a device that is broken. */
	WRITE_ONCE(dev->broken, true);
	vrdma_eqs_cancel(dev);
	/* It queues the next one. */
	cancel_delayed_work_sync(&dev->recover_work);
	cancel_work_sync(&dev->config_work);
	cancel_work_sync(&dev->fatal_work);
	vrdma_backlog_cleanup(dev);

	vrdma_cmdq_cleanup(dev);
	/* Commands of orphans may have queued them again. */
	cancel_delayed_work_sync(&dev->recover_work);
	cancel_work_sync(&dev->fatal_work);
	vrdma_eqs_cleanup(dev);
	vrdma_channels_cleanup(dev);
	dev->vdev->config->del_vqs(dev->vdev);
	vrdma_ah_cleanup(dev);
	vrdma_limbo_cleanup(dev);
}

static struct vrdma_dev *dev_alloc(struct virtio_device *vdev)
{
	struct vrdma_dev *dev = ib_alloc_device(vrdma_dev, ibdev);

	if (!dev)
		return NULL;
	dev->wq = alloc_workqueue("vrdma", WQ_MEM_RECLAIM, 0);
	if (!dev->wq) {
		ib_dealloc_device(&dev->ibdev);
		return NULL;
	}
	dev->vdev = vdev;
	dev->dma_dev = vdev->dev.parent;
	dev->last_state = IB_PORT_DOWN;
	INIT_WORK(&dev->fatal_work, fatal_work);
	INIT_WORK(&dev->config_work, config_work);
	INIT_DELAYED_WORK(&dev->recover_work, recover_work);
	mutex_init(&dev->netdev_lock);
	mutex_init(&dev->kqp_lock);
	vrdma_cmdq_init(&dev->cmdq);
	spin_lock_init(&dev->channel_lock);
	INIT_LIST_HEAD(&dev->free_channels);
	vrdma_backlog_init(dev);
	xa_init_flags(&dev->cqs, XA_FLAGS_LOCK_IRQ);
	xa_init_flags(&dev->qps, XA_FLAGS_LOCK_IRQ);
	ida_init(&dev->ah_ida);
	spin_lock_init(&dev->limbo_lock);
	INIT_LIST_HEAD(&dev->limbo);
	return dev;
}

static void dev_free(struct vrdma_dev *dev)
{
	destroy_workqueue(dev->wq);
	xa_destroy(&dev->cqs);
	xa_destroy(&dev->qps);
	ib_dealloc_device(&dev->ibdev);
}

static int vrdma_probe(struct virtio_device *vdev)
{
	struct vrdma_dev *dev;
	int err;

	err = check_dma(vdev);
	if (err)
		return err;
	dev = dev_alloc(vdev);
	if (!dev)
		return -ENOMEM;
	vdev->priv = dev;
	/* Memory is named in runs as long as it is contiguous. */
	dma_set_max_seg_size(dev->dma_dev, UINT_MAX);

	err = dev_start(dev);
	if (err)
		goto err_stop;
	vrdma_verbs_init(dev);
	err = vrdma_netdev_init(dev);
	if (err)
		goto err_stop;
	err = ib_register_device(&dev->ibdev, "vrdma%d", dev->dma_dev);
	if (err)
		goto err_netdev;
	dev->registered = true;
	vrdma_port_update(dev);
	/* It may have failed when there was nobody to tell yet. */
	if (vrdma_broken(dev))
		queue_work(dev->wq, &dev->fatal_work);
	return 0;

err_netdev:
	vrdma_netdev_cleanup(dev);
err_stop:
	dev_stop(dev);
	dev_free(dev);
	dev_err(&vdev->dev, "starting the device failed: %d\n", err);
	return err;
}

static void vrdma_remove(struct virtio_device *vdev)
{
	struct vrdma_dev *dev = vdev->priv;

	vrdma_netdev_cleanup(dev);
	/* Events that are dispatched already are the core's; there will be no more. */
	mutex_lock(&dev->netdev_lock);
	dev->registered = false;
	mutex_unlock(&dev->netdev_lock);
	/* From here on a device that stands still counts as broken: else what is flushed waits for it. */
	WRITE_ONCE(dev->leaving, true);
	if (vrdma_stalled(dev)) {
		/* Before those who posted take back memory that it could go on to use. */
		device_reset(dev);
		vrdma_set_broken(dev, "it is removed while it stands still");
	}
	flush_workqueue(dev->wq);
	ib_unregister_device(&dev->ibdev);
	dev_stop(dev);
	dev_free(dev);
}

/* Connections do not survive a suspended device, so it refuses. */
static int vrdma_freeze(struct virtio_device *vdev)
{
	return -EBUSY;
}

static int vrdma_restore(struct virtio_device *vdev)
{
	return 0;
}

static const struct virtio_device_id vrdma_id_table[] = {
	{ VRDMA_VIRTIO_ID, VIRTIO_DEV_ANY_ID },
	{ VRDMA_VIRTIO_ID_STANDIN, VIRTIO_DEV_ANY_ID },
	{}
};
MODULE_DEVICE_TABLE(virtio, vrdma_id_table);

static struct virtio_driver vrdma_driver = {
	.driver.name = KBUILD_MODNAME,
	.id_table = vrdma_id_table,
	.validate = vrdma_validate,
	.probe = vrdma_probe,
	.remove = vrdma_remove,
	.config_changed = vrdma_config_changed,
	.freeze = pm_sleep_ptr(vrdma_freeze),
	.restore = pm_sleep_ptr(vrdma_restore),
};
module_virtio_driver(vrdma_driver);

MODULE_DESCRIPTION("Paravirtual RDMA device");
MODULE_AUTHOR("The vrdma authors");
MODULE_LICENSE("GPL");
