// SPDX-License-Identifier: GPL-2.0
/*
 * User contexts: their channel, what a process may map of it, and the methods for processes
 * that have no channel or no doorbell.
 */
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/virtio_config.h>

#include "broken.h"
#include "channel.h"
#include "cmds.h"
#include "kchannel.h"
#include "mem.h"
#include "objects.h"
#include "uctx.h"
#include "udata.h"

#define UVERBS_MODULE_NAME vrdma
#include <rdma/uverbs_named_ioctl.h>

/* The macros of uverbs paste these names; the numbers are in vrdma_abi.h. */
enum {
	VRDMA_OBJECT_CHANNEL = VRDMA_UVERBS_OBJECT_CHANNEL,
	VRDMA_METHOD_POST = VRDMA_UVERBS_METHOD_POST,
	VRDMA_METHOD_KICK = VRDMA_UVERBS_METHOD_KICK,
	VRDMA_ATTR_POST_UNITS = VRDMA_UVERBS_ATTR_POST_UNITS,
};

/**
 * struct vrdma_mmap_entry - what a process may map of a channel
 * @rdma: the entry of the core
 * @chan: the channel, to which this is a reference
 * @pfn: the first page
 * @io: it is a register, not memory
 */
struct vrdma_mmap_entry {
	struct rdma_user_mmap_entry rdma;
	struct vrdma_channel *chan;
	unsigned long pfn;
	bool io;
};

static struct vrdma_mmap_entry *mmap_entry_insert(struct vrdma_uctx *uctx, phys_addr_t addr,
						  size_t len, bool io, __le64 *offset)
{
	struct vrdma_mmap_entry *entry;
	int err;

	entry = kzalloc(sizeof(*entry), GFP_KERNEL);
	if (!entry)
		return NULL;
	entry->chan = uctx->chan;
	entry->pfn = PHYS_PFN(addr);
	entry->io = io;
	err = rdma_user_mmap_entry_insert(&uctx->ibuctx, &entry->rdma, len);
	if (err) {
		kfree(entry);
		return NULL;
	}
	vrdma_channel_hold(uctx->chan);
	*offset = cpu_to_le64(rdma_user_mmap_get_offset(&entry->rdma));
	return entry;
}

void vrdma_mmap_free(struct rdma_user_mmap_entry *rdma)
{
	struct vrdma_mmap_entry *entry = container_of(rdma, struct vrdma_mmap_entry, rdma);

	vrdma_channel_put(entry->chan);
	kfree(entry);
}

/* Nothing can be mapped from here on; entries that are still mapped hold the channel. */
static void mmap_entries_remove(struct vrdma_uctx *uctx)
{
	if (uctx->doorbell)
		rdma_user_mmap_entry_remove(&uctx->doorbell->rdma);
	if (uctx->slots)
		rdma_user_mmap_entry_remove(&uctx->slots->rdma);
	if (uctx->rings)
		rdma_user_mmap_entry_remove(&uctx->rings->rdma);
}

/* Called before the command that binds or unbinds, which may be answered late or never. */
static void set_maybe_bound(struct vrdma_channel *chan)
{
	spin_lock(&chan->dev->channel_lock);
	chan->maybe_bound = true;
	spin_unlock(&chan->dev->channel_lock);
}

static void uctx_put_channel(struct vrdma_uctx *uctx)
{
	struct vrdma_channel *chan = uctx->chan;
	struct vrdma_dev *dev = chan->dev;
	int err;

	mmap_entries_remove(uctx);
	set_maybe_bound(chan);
	err = vrdma_cmd_unbind_channel(dev, chan->vq->index);
	spin_lock(&dev->channel_lock);
	chan->owner = NULL;
	/* After a late answer vrdma_channel_unbound() is called. */
	if (!err)
		chan->maybe_bound = false;
	spin_unlock(&dev->channel_lock);
	vrdma_channel_put(chan);
	uctx->chan = NULL;
}

/* Binds a channel to @uctx. If that fails it has none, which is an error only if it is -EIO. */
static int uctx_bind_channel(struct vrdma_uctx *uctx, struct vrdma_channel *chan)
{
	struct vrdma_dev *dev = chan->dev;
	bool pending = false;
	int err;

	uctx->chan = chan;
	set_maybe_bound(chan);
	err = vrdma_channel_bind(chan, uctx->context, &pending);
	spin_lock(&dev->channel_lock);
	/* It may be bound if the device did not answer, or is broken. */
	if (!pending && !vrdma_broken(dev))
		chan->maybe_bound = false;
	if (err)
		chan->owner = NULL;
	spin_unlock(&dev->channel_lock);
	if (!err)
		return 0;
	vrdma_channel_put(chan);
	uctx->chan = NULL;
	ibdev_warn_ratelimited(&dev->ibdev, "binding channel %u failed: %d\n", chan->vq->index,
			       err);
	return err == -EIO ? err : 0;
}

/* Gives @uctx a channel if there is one; without one its process posts by system calls. */
static int uctx_get_channel(struct vrdma_uctx *uctx, struct vrdma_uctx_resp *resp)
{
	struct vrdma_dev *dev = to_vdev(uctx->ibuctx.device);
	u32 flags = VRDMA_CONTEXT_F_CHANNEL;
	const struct vring *vring;
	struct vrdma_channel *chan;
	int err;

	chan = vrdma_channel_get_free(dev, uctx);
	if (!chan)
		return 0;
	err = uctx_bind_channel(uctx, chan);
	if (err || !uctx->chan)
		return err;

	vring = chan->vring;
	if (virtio_has_feature(dev->vdev, VIRTIO_RING_F_EVENT_IDX))
		flags |= VRDMA_CONTEXT_F_EVENT_IDX;

	uctx->rings = mmap_entry_insert(uctx, virt_to_phys(chan->rings), chan->rings_len, false,
					&resp->rings_mmap);
	uctx->slots = mmap_entry_insert(uctx, virt_to_phys(chan->slots->vaddr),
					chan->slots->size, false, &resp->slots_mmap);
	if (!uctx->rings || !uctx->slots)
		goto err_channel;
	if (chan->doorbell) {
		uctx->doorbell = mmap_entry_insert(uctx, chan->doorbell, PAGE_SIZE, true,
						   &resp->doorbell_mmap);
		if (!uctx->doorbell)
			goto err_channel;
		flags |= VRDMA_CONTEXT_F_DOORBELL;
		resp->doorbell_len = cpu_to_le32(PAGE_SIZE);
		resp->doorbell_offset = cpu_to_le32(offset_in_page(chan->doorbell));
	}
	resp->flags = cpu_to_le32(flags);
	resp->entries = cpu_to_le16(chan->num);
	resp->queue = cpu_to_le16(chan->vq->index);
	resp->rings_len = cpu_to_le32(chan->rings_len);
	resp->avail_offset = cpu_to_le32((void *)vring->avail - chan->rings);
	resp->used_offset = cpu_to_le32((void *)vring->used - chan->rings);
	resp->slots_len = cpu_to_le32(chan->slots->size);
	return 0;

err_channel:
	uctx_put_channel(uctx);
	return -ENOMEM;
}

int vrdma_alloc_ucontext(struct ib_ucontext *ibuctx, struct ib_udata *udata)
{
	struct vrdma_dev *dev = to_vdev(ibuctx->device);
	struct vrdma_uctx *uctx = to_vuctx(ibuctx);
	struct vrdma_uctx_ex_resp resp = {};
	struct vrdma_uctx_req req;
	int err;

	err = vrdma_udata_read(udata, &req, sizeof(req));
	if (err)
		return err;
	if (req.reserved || (req.flags & ~cpu_to_le32(VRDMA_CONTEXT_F_NO_CHANNEL)))
		return -EINVAL;

	err = vrdma_cmd_alloc_context(dev, &uctx->context);
	if (err)
		return err;
	if (!(req.flags & cpu_to_le32(VRDMA_CONTEXT_F_NO_CHANNEL))) {
		err = uctx_get_channel(uctx, &resp.base);
		if (err)
			goto err_context;
	}
	resp.base.context = cpu_to_le32(uctx->context);
	resp.base.max_qp = cpu_to_le32(dev->caps.max_qp);
	resp.base.max_inline = cpu_to_le32(dev->caps.max_inline);
	resp.base.max_wqe_units = cpu_to_le32(dev->caps.max_wqe_units);
	resp.device_cap = cpu_to_le64(dev->caps.device_cap);
	err = ib_copy_to_udata(udata, &resp, min(sizeof(resp), udata->outlen));
	if (err)
		goto err_channel;
	return 0;

err_channel:
	if (uctx->chan)
		uctx_put_channel(uctx);
err_context:
	vrdma_cmd_dealloc_context(dev, uctx->context);
	return err;
}

void vrdma_dealloc_ucontext(struct ib_ucontext *ibuctx)
{
	struct vrdma_dev *dev = to_vdev(ibuctx->device);
	struct vrdma_uctx *uctx = to_vuctx(ibuctx);
	int err;

	if (uctx->chan)
		uctx_put_channel(uctx);
	err = vrdma_cmd_dealloc_context(dev, uctx->context);
	if (err && err != -EIO)
		ibdev_warn_ratelimited(&dev->ibdev, "context %u remains in the device: %d\n",
				       uctx->context, err);
}

int vrdma_mmap(struct ib_ucontext *ibuctx, struct vm_area_struct *vma)
{
	struct rdma_user_mmap_entry *rdma;
	struct vrdma_mmap_entry *entry;
	pgprot_t prot;
	int err;

	rdma = rdma_user_mmap_entry_get(ibuctx, vma);
	if (!rdma)
		return -EINVAL;
	entry = container_of(rdma, struct vrdma_mmap_entry, rdma);
	prot = entry->io ? pgprot_device(vma->vm_page_prot) : vma->vm_page_prot;
	/* For memory too, so that the core unmaps it when the device is removed. */
	err = rdma_user_mmap_io(ibuctx, vma, entry->pfn, rdma->npages * PAGE_SIZE, prot, rdma);
	rdma_user_mmap_entry_put(rdma);
	return err;
}

/*
 * The core has already removed what rdma_user_mmap_io() mapped, which is all. That this function
 * exists tells the core that the driver can be removed while processes use it.
 */
void vrdma_disassociate_ucontext(struct ib_ucontext *ibuctx)
{
}

static int UVERBS_HANDLER(VRDMA_METHOD_POST)(struct uverbs_attr_bundle *attrs)
{
	struct ib_ucontext *ibuctx = ib_uverbs_get_ucontext(attrs);
	void *buf;
	int len;

	if (IS_ERR(ibuctx))
		return PTR_ERR(ibuctx);
	buf = uverbs_attr_get_alloced_ptr(attrs, VRDMA_ATTR_POST_UNITS);
	if (IS_ERR(buf))
		return PTR_ERR(buf);
	len = uverbs_attr_get_len(attrs, VRDMA_ATTR_POST_UNITS);
	if (len < 0)
		return len;
	if (!len || len % VRDMA_WQE_UNIT_SIZE)
		return -EINVAL;
	return vrdma_user_post(to_vdev(ibuctx->device), to_vuctx(ibuctx), buf,
			       len / VRDMA_WQE_UNIT_SIZE);
}

static int UVERBS_HANDLER(VRDMA_METHOD_KICK)(struct uverbs_attr_bundle *attrs)
{
	struct ib_ucontext *ibuctx = ib_uverbs_get_ucontext(attrs);
	struct vrdma_uctx *uctx;

	if (IS_ERR(ibuctx))
		return PTR_ERR(ibuctx);
	uctx = to_vuctx(ibuctx);
	if (!uctx->chan)
		return -EINVAL;
	if (vrdma_broken(uctx->chan->dev) || !virtqueue_notify(uctx->chan->vq))
		return -EIO;
	return 0;
}

DECLARE_UVERBS_NAMED_METHOD(VRDMA_METHOD_POST,
			    UVERBS_ATTR_PTR_IN(VRDMA_ATTR_POST_UNITS,
					       UVERBS_ATTR_SIZE(VRDMA_WQE_UNIT_SIZE,
								VRDMA_UVERBS_POST_MAX_UNITS *
								VRDMA_WQE_UNIT_SIZE),
					       UA_MANDATORY, UA_ALLOC_AND_COPY));

DECLARE_UVERBS_NAMED_METHOD(VRDMA_METHOD_KICK);

DECLARE_UVERBS_GLOBAL_METHODS(VRDMA_OBJECT_CHANNEL,
			      &UVERBS_METHOD(VRDMA_METHOD_POST),
			      &UVERBS_METHOD(VRDMA_METHOD_KICK));

const struct uapi_definition vrdma_uapi_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE_NAMED(VRDMA_OBJECT_CHANNEL),
	{},
};
