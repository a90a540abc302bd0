// SPDX-License-Identifier: GPL-2.0
/*
 * Addresses of the channels' doorbells.
 *
 * A process may map the notify register of its channel if that register has a page of its own
 * (QEMU: page-per-vq=on). virtio_pci does not export the addresses. So they are read from the PCI
 * capabilities again.
 */
#include <linux/io.h>
#include <linux/pci.h>
#include <linux/virtio_config.h>
#include <linux/virtio_pci.h>

#include "channel.h"
#include "doorbell.h"

/* Finds the capability of type @cfg_type. Returns its offset in the configuration space, or 0. */
static u8 find_cap(struct pci_dev *pdev, u8 cfg_type, struct virtio_pci_cap *cap)
{
	u8 pos, type, bar;

	for (pos = pci_find_capability(pdev, PCI_CAP_ID_VNDR); pos;
	     pos = pci_find_next_capability(pdev, pos, PCI_CAP_ID_VNDR)) {
		pci_read_config_byte(pdev, pos + offsetof(struct virtio_pci_cap, cfg_type),
				     &type);
		pci_read_config_byte(pdev, pos + offsetof(struct virtio_pci_cap, bar), &bar);
		/* Other BAR numbers are reserved. Capabilities that have them must be ignored. */
		if (type != cfg_type || bar >= PCI_STD_NUM_BARS ||
		    !(pci_resource_flags(pdev, bar) & IORESOURCE_MEM))
			continue;
		cap->bar = bar;
		pci_read_config_dword(pdev, pos + offsetof(struct virtio_pci_cap, offset),
				      (u32 __force *)&cap->offset);
		pci_read_config_dword(pdev, pos + offsetof(struct virtio_pci_cap, length),
				      (u32 __force *)&cap->length);
		return pos;
	}
	return 0;
}

/*
 * Finds the doorbell of each channel whose doorbell has a page of its own.
 *
 * This selects queues, as virtio_pci does. So it must be called after the queues have been found,
 * and before the driver's probe returns.
 */
void vrdma_doorbells_find(struct vrdma_dev *dev)
{
	struct virtio_pci_common_cfg __iomem *common;
	u32 notify_offset, notify_len, multiplier;
	struct virtio_pci_cap cap;
	struct pci_dev *pdev;
	phys_addr_t base;
	unsigned int i;
	u8 pos, bar;
	u64 offset;

	if (!dev_is_pci(dev->dma_dev))
		return;
	pdev = to_pci_dev(dev->dma_dev);

	pos = find_cap(pdev, VIRTIO_PCI_CAP_NOTIFY_CFG, &cap);
	if (!pos)
		return;
	pci_read_config_dword(pdev, pos + offsetof(struct virtio_pci_notify_cap,
						   notify_off_multiplier), &multiplier);
	notify_offset = (u32 __force)cap.offset;
	notify_len = (u32 __force)cap.length;
	bar = cap.bar;
	base = pci_resource_start(pdev, bar) + notify_offset;
	if (multiplier < PAGE_SIZE || !PAGE_ALIGNED(multiplier) || !PAGE_ALIGNED(base) ||
	    (u64)notify_offset + notify_len > pci_resource_len(pdev, bar))
		return;

	if (!find_cap(pdev, VIRTIO_PCI_CAP_COMMON_CFG, &cap))
		return;
	common = pci_iomap_range(pdev, cap.bar, (u32 __force)cap.offset, sizeof(*common));
	if (!common)
		return;
	for (i = 1; i < dev->num_channels; i++) {
		struct vrdma_channel *chan = &dev->channels[i];

		iowrite16(chan->vq->index, &common->queue_select);
		offset = (u64)ioread16(&common->queue_notify_off) * multiplier;
		if (offset + PAGE_SIZE <= notify_len)
			chan->doorbell = base + offset;
	}
	pci_iounmap(pdev, common);
}
