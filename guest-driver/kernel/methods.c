// SPDX-License-Identifier: GPL-2.0
/*
 * The driver's own uverbs methods.
 *
 * They are for processes without a channel or a doorbell, and for processes that import a context
 * and its objects.
 */
#include "broken.h"
#include "channel.h"
#include "cmds.h"
#include "kchannel.h"
#include "methods.h"
#include "objects.h"
#include "uctx.h"
#include "umap.h"

#define UVERBS_MODULE_NAME vrdma
#include <rdma/uverbs_named_ioctl.h>

/* The macros of uverbs paste these names. The numbers are in vrdma_abi.h. */
enum {
	VRDMA_OBJECT_CHANNEL = VRDMA_UVERBS_OBJECT_CHANNEL,
	VRDMA_METHOD_POST = VRDMA_UVERBS_METHOD_POST,
	VRDMA_METHOD_KICK = VRDMA_UVERBS_METHOD_KICK,
	VRDMA_METHOD_QUERY_CONTEXT = VRDMA_UVERBS_METHOD_QUERY_CONTEXT,
	VRDMA_METHOD_QUERY_PD = VRDMA_UVERBS_METHOD_QUERY_PD,
	VRDMA_METHOD_QUERY_DM = VRDMA_UVERBS_METHOD_QUERY_DM,
	VRDMA_METHOD_QUERY_CLOCK = VRDMA_UVERBS_METHOD_QUERY_CLOCK,
	VRDMA_ATTR_POST_UNITS = VRDMA_UVERBS_ATTR_POST_UNITS,
	VRDMA_ATTR_QUERY_RESP = VRDMA_UVERBS_ATTR_QUERY_RESP,
	VRDMA_ATTR_QUERY_HANDLE = VRDMA_UVERBS_ATTR_QUERY_HANDLE,
};

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

/*
 * Returns all of the context except the channel, which belongs to the process that opened the
 * device.
 */
static int UVERBS_HANDLER(VRDMA_METHOD_QUERY_CONTEXT)(struct uverbs_attr_bundle *attrs)
{
	struct ib_ucontext *ibuctx = ib_uverbs_get_ucontext(attrs);
	struct vrdma_uctx_ex_resp resp = {};

	if (IS_ERR(ibuctx))
		return PTR_ERR(ibuctx);
	vrdma_uctx_describe(to_vuctx(ibuctx), &resp);
	return uverbs_copy_to_struct_or_zero(attrs, VRDMA_ATTR_QUERY_RESP, &resp, sizeof(resp));
}

static int UVERBS_HANDLER(VRDMA_METHOD_QUERY_PD)(struct uverbs_attr_bundle *attrs)
{
	struct ib_pd *ibpd = uverbs_attr_get_obj(attrs, VRDMA_ATTR_QUERY_HANDLE);
	struct vrdma_upd_resp resp = {};

	if (IS_ERR(ibpd))
		return PTR_ERR(ibpd);
	resp.pdn = cpu_to_le32(to_vpd(ibpd)->pdn);
	return uverbs_copy_to_struct_or_zero(attrs, VRDMA_ATTR_QUERY_RESP, &resp, sizeof(resp));
}

static int UVERBS_HANDLER(VRDMA_METHOD_QUERY_DM)(struct uverbs_attr_bundle *attrs)
{
	struct ib_dm *ibdm = uverbs_attr_get_obj(attrs, VRDMA_ATTR_QUERY_HANDLE);
	struct vrdma_udm_resp resp = {};
	struct vrdma_umap *umap;

	if (IS_ERR(ibdm))
		return PTR_ERR(ibdm);
	umap = &to_vdm(ibdm)->umap;
	resp.mmap = vrdma_umap_offset(umap);
	resp.mmap_len = cpu_to_le64(umap->rdma.npages * PAGE_SIZE);
	resp.length = cpu_to_le64(ibdm->length);
	return uverbs_copy_to_struct_or_zero(attrs, VRDMA_ATTR_QUERY_RESP, &resp, sizeof(resp));
}

static int UVERBS_HANDLER(VRDMA_METHOD_QUERY_CLOCK)(struct uverbs_attr_bundle *attrs)
{
	struct ib_ucontext *ibuctx = ib_uverbs_get_ucontext(attrs);
	struct vrdma_uclock_resp resp = {};
	struct vrdma_dev *dev;
	u64 clock;
	int err;

	if (IS_ERR(ibuctx))
		return PTR_ERR(ibuctx);
	dev = to_vdev(ibuctx->device);
	if (!(dev->caps.device_cap & VRDMA_CAP_CQ_TIMESTAMP))
		return -EOPNOTSUPP;
	/* A process asks while it polls, so it must not wait each time. */
	if (vrdma_stalled(dev))
		return -EIO;
	err = vrdma_cmd_query_clock(dev, &clock);
	if (err)
		return err;
	resp.clock = cpu_to_le64(clock);
	return uverbs_copy_to_struct_or_zero(attrs, VRDMA_ATTR_QUERY_RESP, &resp, sizeof(resp));
}

DECLARE_UVERBS_NAMED_METHOD(VRDMA_METHOD_POST,
			    UVERBS_ATTR_PTR_IN(VRDMA_ATTR_POST_UNITS,
					       UVERBS_ATTR_SIZE(VRDMA_WQE_UNIT_SIZE,
								VRDMA_UVERBS_POST_MAX_UNITS *
								VRDMA_WQE_UNIT_SIZE),
					       UA_MANDATORY, UA_ALLOC_AND_COPY));

DECLARE_UVERBS_NAMED_METHOD(VRDMA_METHOD_KICK);

DECLARE_UVERBS_NAMED_METHOD(VRDMA_METHOD_QUERY_CONTEXT,
			    UVERBS_ATTR_PTR_OUT(VRDMA_ATTR_QUERY_RESP,
						UVERBS_ATTR_STRUCT(struct vrdma_uctx_ex_resp,
								   device_cap),
						UA_MANDATORY));

DECLARE_UVERBS_NAMED_METHOD(VRDMA_METHOD_QUERY_PD,
			    UVERBS_ATTR_IDR(VRDMA_ATTR_QUERY_HANDLE, UVERBS_OBJECT_PD,
					    UVERBS_ACCESS_READ, UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(VRDMA_ATTR_QUERY_RESP,
						UVERBS_ATTR_STRUCT(struct vrdma_upd_resp, pdn),
						UA_MANDATORY));

DECLARE_UVERBS_NAMED_METHOD(VRDMA_METHOD_QUERY_DM,
			    UVERBS_ATTR_IDR(VRDMA_ATTR_QUERY_HANDLE, UVERBS_OBJECT_DM,
					    UVERBS_ACCESS_READ, UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(VRDMA_ATTR_QUERY_RESP,
						UVERBS_ATTR_STRUCT(struct vrdma_udm_resp, length),
						UA_MANDATORY));

DECLARE_UVERBS_NAMED_METHOD(VRDMA_METHOD_QUERY_CLOCK,
			    UVERBS_ATTR_PTR_OUT(VRDMA_ATTR_QUERY_RESP,
						UVERBS_ATTR_STRUCT(struct vrdma_uclock_resp, clock),
						UA_MANDATORY));

DECLARE_UVERBS_GLOBAL_METHODS(VRDMA_OBJECT_CHANNEL,
			      &UVERBS_METHOD(VRDMA_METHOD_POST),
			      &UVERBS_METHOD(VRDMA_METHOD_KICK),
			      &UVERBS_METHOD(VRDMA_METHOD_QUERY_CONTEXT),
			      &UVERBS_METHOD(VRDMA_METHOD_QUERY_PD),
			      &UVERBS_METHOD(VRDMA_METHOD_QUERY_DM),
			      &UVERBS_METHOD(VRDMA_METHOD_QUERY_CLOCK));

const struct uapi_definition vrdma_uapi_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE_NAMED(VRDMA_OBJECT_CHANNEL),
	{},
};
