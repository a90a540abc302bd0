// SPDX-License-Identifier: GPL-2.0
/*
 * Address handles: entries of a table that the device reads.
 *
 * Creating one only writes memory, so it can be done in atomic context.
 */
#include <linux/etherdevice.h>
#include <rdma/ib_cache.h>

#include "ah.h"
#include "broken.h"
#include "cmds.h"
#include "mem.h"
#include "objects.h"
#include "runs.h"

/* One for each QP: while the core connects a QP, the CM request has an address handle. */
#define AH_ENTRIES_MAX 16384
#define AH_ENTRIES_MIN 64
/* Divisor for the kernel's share of the table. Processes cannot keep the kernel from connecting. */
#define AH_KERNEL_SHARE 8

static struct vrdma_ah_entry *ah_entry(struct vrdma_dev *dev, u32 index)
{
	return (struct vrdma_ah_entry *)dev->ah_mem->vaddr + index;
}

/* Returns the number of entries that are reserved for the kernel. */
u32 vrdma_ah_reserved(const struct vrdma_dev *dev)
{
	return dev->caps.max_ah / AH_KERNEL_SHARE;
}

/* Returns a value for vrdma_ah_entry.valid that no entry had recently. */
static u32 next_generation(struct vrdma_dev *dev)
{
	u32 gen;

	do {
		gen = atomic_inc_return(&dev->ah_gen);
	} while (!gen);
	return gen;
}

int vrdma_create_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *attr, struct ib_udata *udata)
{
	const struct ib_global_route *grh = rdma_ah_read_grh(attr->ah_attr);
	struct vrdma_dev *dev = to_vdev(ibah->device);
	struct vrdma_uah_resp resp = {};
	struct vrdma_ah *ah = to_vah(ibah);
	struct vrdma_ah_entry *entry;
	u16 vlan = 0xffff;
	int index, err;

	if (!dev->ah_mem)
		return -EOPNOTSUPP;
	if (attr->ah_attr->type != RDMA_AH_ATTR_TYPE_ROCE ||
	    !(rdma_ah_get_ah_flags(attr->ah_attr) & IB_AH_GRH))
		return -EINVAL;
	if (grh->sgid_attr) {
		err = rdma_read_gid_l2_fields(grh->sgid_attr, &vlan, NULL);
		if (err)
			return err;
	}

	index = ida_alloc_range(&dev->ah_ida, udata ? vrdma_ah_reserved(dev) : 0,
				dev->caps.max_ah - 1,
				attr->flags & RDMA_CREATE_AH_SLEEPABLE ? GFP_KERNEL : GFP_ATOMIC);
	if (index < 0)
		return index == -ENOSPC ? -ENOMEM : index;
	ah->index = index;
	resp.ah = cpu_to_le32(index);
	if (udata) {
		err = ib_copy_to_udata(udata, &resp, min(sizeof(resp), udata->outlen));
		if (err) {
			ida_free(&dev->ah_ida, index);
			return err;
		}
	}

	/* The entry is invalid while it is written. */
	entry = ah_entry(dev, index);
	entry->pdn = cpu_to_le32(to_vpd(ibah->pd)->pdn);
	memcpy(entry->dgid, grh->dgid.raw, sizeof(entry->dgid));
	ether_addr_copy(entry->dmac, attr->ah_attr->roce.dmac);
	entry->vlan = cpu_to_le16(vlan);
	entry->flow_label = cpu_to_le32(grh->flow_label);
	entry->udp_sport = 0;
	if (grh->flow_label)
		entry->udp_sport = cpu_to_le16(rdma_flow_label_to_udp_sport(grh->flow_label));
	entry->sgid_index = grh->sgid_index;
	entry->hop_limit = grh->hop_limit;
	entry->traffic_class = grh->traffic_class;
	entry->sl = rdma_ah_get_sl(attr->ah_attr);
	/* Pairs with the device's reads of the entry, between two reads of @valid. */
	virt_store_release(&entry->valid, cpu_to_le32(next_generation(dev)));
	return 0;
}

int vrdma_destroy_ah(struct ib_ah *ibah, u32 flags)
{
	struct vrdma_dev *dev = to_vdev(ibah->device);
	u32 index = to_vah(ibah)->index;

	WRITE_ONCE(ah_entry(dev, index)->valid, 0);
	/* The next owner writes to the entry only after the device can see that it is invalid. */
	virt_wmb();
	ida_free(&dev->ah_ida, index);
	return 0;
}

/* Gives the table to the device. A device without this command has no UD. */
int vrdma_ah_init(struct vrdma_dev *dev)
{
	u32 entries = min_t(u32, dev->caps.max_ah, AH_ENTRIES_MAX);
	struct vrdma_mem *mem = NULL;
	struct vrdma_runs *runs;
	int err;

	dev->caps.max_ah = 0;
	for (; entries; entries = entries > AH_ENTRIES_MIN ? entries / 2 : 0) {
		mem = vrdma_mem_alloc(dev, (size_t)entries * sizeof(struct vrdma_ah_entry),
				      GFP_KERNEL | __GFP_NOWARN);
		if (mem)
			break;
	}
	if (!mem)
		return entries ? -ENOMEM : 0;

	runs = vrdma_mem_runs(dev, mem);
	if (IS_ERR(runs)) {
		vrdma_mem_free(dev, mem);
		return PTR_ERR(runs);
	}
	err = vrdma_cmd_set_ah_table(dev, entries, runs, &mem);
	if (err) {
		vrdma_mem_release(dev, mem, vrdma_broken(dev) ? err : 0);
		return err == -EOPNOTSUPP ? 0 : err;
	}
	dev->ah_mem = mem;
	dev->caps.max_ah = entries;
	return 0;
}

/* Called after the device has been reset. */
void vrdma_ah_cleanup(struct vrdma_dev *dev)
{
	vrdma_mem_free(dev, dev->ah_mem);
	dev->ah_mem = NULL;
	ida_destroy(&dev->ah_ida);
}
