// SPDX-License-Identifier: GPL-2.0
/*
 * vrdma: driver of a paravirtual RDMA device (virtio).
 */
#include <linux/iommu.h>
#include <linux/module.h>
#include <linux/swiotlb.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>

#include "broken.h"
#include "cm.h"
#include "dev.h"
#include "netdev.h"
#include "port.h"
#include "recover.h"
#include "verbs.h"

static bool config_is_vrdma(struct virtio_device *vdev)
{
	u8 transport;
	u32 magic;
	u16 major;

	virtio_cread_le(vdev, struct vrdma_config, magic, &magic);
	if (magic != VRDMA_MAGIC && magic != VRDMA_MAGIC_TRANSPORT)
		return false;
	virtio_cread_le(vdev, struct vrdma_config, version_major, &major);
	if (major != VRDMA_VERSION_MAJOR) {
		dev_err(&vdev->dev, "version %u of the device is not known\n", major);
		return false;
	}
	virtio_cread_le(vdev, struct vrdma_config, transport, &transport);
	if (magic == VRDMA_MAGIC_TRANSPORT && transport != VRDMA_TRANSPORT_IWARP) {
		dev_err(&vdev->dev, "transport %u of the device is not known\n", transport);
		return false;
	}
	return true;
}

/*
 * Checks that the device can reach memory by the bus addresses in commands.
 *
 * Either the device uses the DMA of the platform, or bus addresses must be physical.
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
	/* Processes write split rings without indirect tables, and 16 bits to the doorbell. */
	__virtio_clear_bit(vdev, VIRTIO_F_RING_PACKED);
	__virtio_clear_bit(vdev, VIRTIO_RING_F_INDIRECT_DESC);
	__virtio_clear_bit(vdev, VIRTIO_F_NOTIFICATION_DATA);
	/* Processes use barriers for memory only. */
	__virtio_clear_bit(vdev, VIRTIO_F_ORDER_PLATFORM);
	return 0;
}

static void vrdma_config_changed(struct virtio_device *vdev)
{
	struct vrdma_dev *dev = vdev->priv;

	queue_work(dev->wq, &dev->config_work);
}

static int vrdma_probe(struct virtio_device *vdev)
{
	struct vrdma_dev *dev;
	int err;

	err = check_dma(vdev);
	if (err)
		return err;
	dev = vrdma_dev_alloc(vdev);
	if (!dev)
		return -ENOMEM;
	vdev->priv = dev;
	/* An extent may have any length. */
	dma_set_max_seg_size(dev->dma_dev, UINT_MAX);

	err = vrdma_dev_start(dev);
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
	vrdma_recover_watch(dev);
	/* The device may have failed before events could be dispatched. */
	if (vrdma_broken(dev))
		queue_work(dev->wq, &dev->fatal_work);
	return 0;

err_netdev:
	vrdma_netdev_cleanup(dev);
err_stop:
	vrdma_dev_stop(dev);
	vrdma_dev_free(dev);
	dev_err(&vdev->dev, "starting the device failed: %d\n", err);
	return err;
}

static void vrdma_remove(struct virtio_device *vdev)
{
	struct vrdma_dev *dev = vdev->priv;

	vrdma_find_reset(dev);
	vrdma_netdev_cleanup(dev);
	/* No events are dispatched from here on. */
	mutex_lock(&dev->netdev_lock);
	dev->registered = false;
	mutex_unlock(&dev->netdev_lock);
	/* From here on a stalled device counts as broken. Otherwise its users would wait for it. */
	WRITE_ONCE(dev->removing, true);
	if (vrdma_stalled(dev)) {
		/* Done before users free memory that the device could use when it resumes. */
		vrdma_reset(dev);
		vrdma_set_broken(dev, "it is removed while it stands still");
	}
	flush_workqueue(dev->wq);
	vrdma_cm_stop(dev);
	ib_unregister_device(&dev->ibdev);
	vrdma_dev_stop(dev);
	vrdma_dev_free(dev);
}

/* Refuses to suspend, because connections would not survive it. */
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
	/* Linux 6.1 does not set it. */
	.driver.owner = THIS_MODULE,
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
MODULE_VERSION("0.1.0");
