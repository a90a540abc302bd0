// SPDX-License-Identifier: GPL-2.0
/* The device's attributes in sysfs, which ibstat and similar tools read. */
#include <linux/sysfs.h>

#include "sysfs.h"
#include "vrdma.h"

static ssize_t hca_type_show(struct device *device, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "vrdma\n");
}
static DEVICE_ATTR_RO(hca_type);

static ssize_t hw_rev_show(struct device *device, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%x\n", VRDMA_VERSION_MAJOR);
}
static DEVICE_ATTR_RO(hw_rev);

static ssize_t board_id_show(struct device *device, struct device_attribute *attr, char *buf)
{
	struct vrdma_dev *dev = rdma_device_to_drv_device(device, struct vrdma_dev, ibdev);

	return sysfs_emit(buf, "virtio%u\n", dev->vdev->id.device);
}
static DEVICE_ATTR_RO(board_id);

static struct attribute *device_attrs[] = {
	&dev_attr_hca_type.attr,
	&dev_attr_hw_rev.attr,
	&dev_attr_board_id.attr,
	NULL
};

const struct attribute_group vrdma_device_group = {
	.attrs = device_attrs,
};
