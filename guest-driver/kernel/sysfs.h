/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_SYSFS_H
#define VRDMA_SYSFS_H

struct attribute_group;

extern const struct attribute_group vrdma_device_group;

#endif /* VRDMA_SYSFS_H */
