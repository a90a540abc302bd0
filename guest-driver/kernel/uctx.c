// SPDX-License-Identifier: GPL-2.0
/* User contexts: their channels, and what a process may map of them. */
#include <linux/slab.h>
#include <linux/virtio_config.h>

#include "broken.h"
#include "channel.h"
#include "cmds.h"
#include "mem.h"
#include "objects.h"
#include "uctx.h"
#include "udata.h"
#include "umap.h"

/**
 * struct vrdma_chan_umap - a part of a channel that a process may map
 * @umap: the mapping
 * @chan: the channel, to which the mapping has a reference
 */
struct vrdma_chan_umap {
	struct vrdma_umap umap;
	struct vrdma_channel *chan;
};

static void chan_umap_free(struct vrdma_umap *umap)
{
	struct vrdma_chan_umap *map = container_of(umap, struct vrdma_chan_umap, umap);

	vrdma_channel_put(map->chan);
	kfree(map);
}

static struct vrdma_umap *chan_umap_insert(struct vrdma_uctx *uctx, phys_addr_t addr, size_t len,
					   bool io, __le64 *offset)
{
	struct vrdma_chan_umap *map;

	map = kzalloc(sizeof(*map), GFP_KERNEL);
	if (!map)
		return NULL;
	map->chan = uctx->chan;
	map->umap.io = io;
	map->umap.free = chan_umap_free;
	if (vrdma_umap_insert(&uctx->ibuctx, &map->umap, addr, len)) {
		kfree(map);
		return NULL;
	}
	vrdma_channel_hold(uctx->chan);
	*offset = vrdma_umap_offset(&map->umap);
	return &map->umap;
}

/* Prevents further mappings of the channel. Existing mappings keep their references to it. */
static void umaps_remove(struct vrdma_uctx *uctx)
{
	if (uctx->doorbell)
		rdma_user_mmap_entry_remove(&uctx->doorbell->rdma);
	if (uctx->slots)
		rdma_user_mmap_entry_remove(&uctx->slots->rdma);
	if (uctx->rings)
		rdma_user_mmap_entry_remove(&uctx->rings->rdma);
}

/* Called before the command that binds or unbinds, whose answer may come late or never. */
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

	umaps_remove(uctx);
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

/*
 * Binds a channel to @uctx. On failure @uctx has no channel, which is an error only if it is -EIO.
 */
static int uctx_bind_channel(struct vrdma_uctx *uctx, struct vrdma_channel *chan)
{
	struct vrdma_dev *dev = chan->dev;
	bool pending = false;
	int err;

	uctx->chan = chan;
	set_maybe_bound(chan);
	err = vrdma_channel_bind(chan, uctx->context, &pending);
	spin_lock(&dev->channel_lock);
	/* The channel may be bound if the device did not answer, or is broken. */
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

/* Gives @uctx a channel if one is free. Otherwise its process posts by system calls. */
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

	uctx->rings = chan_umap_insert(uctx, virt_to_phys(chan->rings), chan->rings_len, false,
				       &resp->rings_mmap);
	uctx->slots = chan_umap_insert(uctx, virt_to_phys(chan->slots->vaddr), chan->slots->size,
				       false, &resp->slots_mmap);
	if (!uctx->rings || !uctx->slots)
		goto err_channel;
	if (chan->doorbell) {
		uctx->doorbell = chan_umap_insert(uctx, chan->doorbell, PAGE_SIZE, true,
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

/**
 * vrdma_uctx_describe() - describe a context to a process that uses it
 * @uctx: the context
 * @resp: filled in, except for the channel
 */
void vrdma_uctx_describe(const struct vrdma_uctx *uctx, struct vrdma_uctx_ex_resp *resp)
{
	const struct vrdma_caps *caps = &to_vdev(uctx->ibuctx.device)->caps;

	resp->base.context = cpu_to_le32(uctx->context);
	resp->base.max_qp = cpu_to_le32(caps->max_qp);
	resp->base.max_inline = cpu_to_le32(caps->max_inline);
	resp->base.max_wqe_units = cpu_to_le32(caps->max_wqe_units);
	resp->device_cap = cpu_to_le64(caps->device_cap);
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
	vrdma_uctx_describe(uctx, &resp);
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

/*
 * Does nothing for a process that imports a context: the core returns its own part.
 *
 * The method QUERY_CONTEXT returns the rest.
 */
int vrdma_query_ucontext(struct ib_ucontext *ibuctx, struct uverbs_attr_bundle *attrs)
{
	return 0;
}
