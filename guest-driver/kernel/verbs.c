// SPDX-License-Identifier: GPL-2.0
/* The verbs of the device, its port and its PDs, and the table of all verbs. */
#include <linux/overflow.h>
#include <linux/pci.h>
#include <net/addrconf.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/uverbs_ioctl.h>

#include "ah.h"
#include "cmds.h"
#include "counters.h"
#include "cq.h"
#include "dm.h"
#include "fast.h"
#include "gid.h"
#include "iw.h"
#include "mcast.h"
#include "methods.h"
#include "mr.h"
#include "mw.h"
#include "objects.h"
#include "port.h"
#include "post.h"
#include "qp.h"
#include "resize.h"
#include "srq.h"
#include "sysfs.h"
#include "uctx.h"
#include "verbs.h"
#include "xrcd.h"

/* Longest time until the device acknowledges, as 4.096 us * 2^n. The value is rdma_rxe's. */
#define LOCAL_CA_ACK_DELAY 15

static int int_cap(u32 cap)
{
	return min_t(u32, cap, INT_MAX);
}

/* Translates the functions of the device to the flags of the verbs. */
static u64 device_cap_flags(u64 device_cap)
{
	static const struct {
		u64 cap;
		u64 flag;
	} functions[] = {
		{ VRDMA_CAP_CUR_QP_STATE, IB_DEVICE_CURR_QP_STATE_MOD },
		{ VRDMA_CAP_PORT_ACTIVE_EVENT, IB_DEVICE_PORT_ACTIVE_EVENT },
		{ VRDMA_CAP_SYS_IMAGE_GUID, IB_DEVICE_SYS_IMAGE_GUID },
		{ VRDMA_CAP_RNR_NAK, IB_DEVICE_RC_RNR_NAK_GEN },
		{ VRDMA_CAP_BAD_QKEY_COUNTER, IB_DEVICE_BAD_QKEY_CNTR },
		{ VRDMA_CAP_SRQ_RESIZE, IB_DEVICE_SRQ_RESIZE },
		{ VRDMA_CAP_XRC, IB_DEVICE_XRC },
		{ VRDMA_CAP_MEM_WINDOW, IB_DEVICE_MEM_WINDOW },
		{ VRDMA_CAP_MEM_WINDOW_TYPE_2B, IB_DEVICE_MEM_WINDOW_TYPE_2B },
		{ VRDMA_CAP_MEM_MGT_EXTENSIONS, IB_DEVICE_MEM_MGT_EXTENSIONS },
		{ VRDMA_CAP_ATOMIC_WRITE, IB_DEVICE_ATOMIC_WRITE },
		{ VRDMA_CAP_FLUSH_GLOBAL, IB_DEVICE_FLUSH_GLOBAL },
	};
	u64 flags = 0;
	int i;

	for (i = 0; i < ARRAY_SIZE(functions); i++)
		if (device_cap & functions[i].cap)
			flags |= functions[i].flag;
	return flags;
}

static int vrdma_query_device(struct ib_device *ibdev, struct ib_device_attr *attr,
			      struct ib_udata *udata)
{
	const struct vrdma_caps *caps = &to_vdev(ibdev)->caps;
	/* The core has one PD, CQ and region of its own, for QP1. */
	u32 core = to_vdev(ibdev)->gsi;

	/* Newer kernels have no data of a process for their own queries. */
	if (udata && (udata->inlen || udata->outlen))
		return -EINVAL;
	memset(attr, 0, sizeof(*attr));
	attr->fw_ver = caps->fw_version;
	attr->sys_image_guid = caps->sys_image_guid;
	attr->max_mr_size = caps->max_mr_size;
	attr->page_size_cap = U32_MAX & PAGE_MASK;
	attr->vendor_id = to_vdev(ibdev)->vdev->id.vendor;
	attr->vendor_part_id = to_vdev(ibdev)->vdev->id.device;
	attr->hw_ver = VRDMA_VERSION_MAJOR;
	/* QP0 and QP1 are not for users. */
	attr->max_qp = int_cap(caps->max_qp - 2);
	attr->max_qp_wr = int_cap(caps->max_qp_wr);
	attr->device_cap_flags = device_cap_flags(caps->device_cap);
	attr->max_send_sge = int_cap(caps->max_send_sge);
	attr->max_recv_sge = int_cap(caps->max_recv_sge);
	attr->max_sge_rd = int_cap(caps->max_send_sge);
	attr->max_cq = int_cap(caps->max_cq - core);
	attr->max_cqe = int_cap(caps->max_cqe);
	attr->max_mr = int_cap(caps->max_mr - core);
	/* Windows take their keys from the table of regions. */
	attr->max_mw = caps->device_cap & VRDMA_CAP_WINDOWS ? attr->max_mr : 0;
	attr->max_pd = int_cap(caps->max_pd - core);
	attr->max_srq = int_cap(caps->max_srq);
	attr->max_srq_wr = caps->max_srq ? attr->max_qp_wr : 0;
	attr->max_srq_sge = caps->max_srq ? attr->max_recv_sge : 0;
	attr->max_mcast_grp = int_cap(caps->max_mcast_grp);
	attr->max_mcast_qp_attach = int_cap(caps->max_mcast_qp_attach);
	attr->max_total_mcast_qp_attach = int_cap(caps->max_total_mcast_qp_attach);
	attr->max_qp_rd_atom = int_cap(caps->max_dest_rd_atomic);
	attr->max_qp_init_rd_atom = int_cap(caps->max_rd_atomic);
	attr->max_res_rd_atom = int_cap(min_t(u64, INT_MAX, (u64)caps->max_dest_rd_atomic *
					      caps->max_qp));
	attr->atomic_cap = caps->atomic_cap > 1 ? IB_ATOMIC_GLOB :
			   caps->atomic_cap ? IB_ATOMIC_HCA : IB_ATOMIC_NONE;
	attr->max_ah = int_cap(caps->max_ah - vrdma_ah_reserved(to_vdev(ibdev)));
	attr->local_ca_ack_delay = LOCAL_CA_ACK_DELAY;
	attr->max_pkeys = 1;
	attr->max_dm_size = VRDMA_DM_CONTEXT_BYTES;
	attr->max_fast_reg_page_list_len = int_cap(caps->max_fast_reg_pages);
	if (caps->device_cap & VRDMA_CAP_CQ_MODERATION)
		attr->cq_caps = (struct ib_cq_caps){ U16_MAX, U16_MAX };
	if (caps->device_cap & VRDMA_CAP_CQ_TIMESTAMP) {
		/* The clock counts nanoseconds. */
		attr->hca_core_clock = 1000000;
		attr->timestamp_mask = U64_MAX;
	}
	return 0;
}

static void vrdma_get_dev_fw_str(struct ib_device *ibdev, char *str)
{
	u64 version = to_vdev(ibdev)->caps.fw_version;

	snprintf(str, IB_FW_VERSION_NAME_MAX, "%u.%u.%u", (u32)(version >> 32),
		 (u32)(version >> 16) & 0xffff, (u32)version & 0xffff);
}

static int vrdma_query_port(struct ib_device *ibdev, u32 port, struct ib_port_attr *attr)
{
	struct vrdma_dev *dev = to_vdev(ibdev);
	struct vrdma_query_port_resp resp;
	enum ib_mtu mtu;
	int err;

	err = vrdma_cmd_query_port(dev, &resp);
	if (err == -EIO) {
		/*
		 * The port of a device that does not answer is down. The other attributes are those
		 * from the start, because the core reads the length of the GID table only once.
		 */
		resp = dev->port;
		resp.state = VRDMA_PORT_DOWN;
	} else if (err) {
		return err;
	}
	attr->state = vrdma_port_state(dev, &mtu);
	if (resp.state != VRDMA_PORT_ACTIVE)
		attr->state = IB_PORT_DOWN;
	attr->phys_state = vrdma_phys_state(dev, attr->state);
	attr->max_mtu = ib_mtu_int_to_enum(dev->caps.max_mtu);
	attr->active_mtu = min(ib_mtu_int_to_enum(le32_to_cpu(resp.active_mtu)), mtu);
	/* A GID index has 8 bits in a request. iWARP has one GID, made from the MAC address. */
	attr->gid_tbl_len = dev->iwarp ? 1 :
		min_t(u16, le16_to_cpu(resp.gid_table_len), U8_MAX + 1);
	attr->ip_gids = true;
	attr->port_cap_flags = to_vdev(ibdev)->gsi ? IB_PORT_CM_SUP : 0;
	attr->max_msg_sz = le32_to_cpu(resp.max_msg_size);
	attr->qkey_viol_cntr = le32_to_cpu(resp.bad_qkeys);
	attr->pkey_tbl_len = 1;
	attr->max_vl_num = 1;
	vrdma_port_set_speed(attr, le32_to_cpu(resp.speed));
	return 0;
}

static int vrdma_modify_device(struct ib_device *ibdev, int mask, struct ib_device_modify *modify)
{
	if (mask & ~IB_DEVICE_MODIFY_NODE_DESC)
		return -EOPNOTSUPP;
	if (mask & IB_DEVICE_MODIFY_NODE_DESC)
		memcpy(ibdev->node_desc, modify->node_desc, sizeof(ibdev->node_desc));
	return 0;
}

static int vrdma_get_port_immutable(struct ib_device *ibdev, u32 port,
				    struct ib_port_immutable *immutable)
{
	struct ib_port_attr attr;
	int err;

	err = ib_query_port(ibdev, port, &attr);
	if (err)
		return err;
	immutable->pkey_tbl_len = attr.pkey_tbl_len;
	immutable->gid_tbl_len = attr.gid_tbl_len;
	if (to_vdev(ibdev)->iwarp) {
		immutable->core_cap_flags = RDMA_CORE_PORT_IWARP;
		return 0;
	}
	/* RC works without QP1 too, but the RoCE port type needs it. */
	immutable->core_cap_flags = RDMA_CORE_CAP_PROT_ROCE_UDP_ENCAP | RDMA_CORE_CAP_AF_IB |
				    RDMA_CORE_CAP_ETH_AH;
	if (to_vdev(ibdev)->gsi) {
		immutable->core_cap_flags = RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP;
		immutable->max_mad_size = IB_MGMT_MAD_SIZE;
	}
	return 0;
}

static enum rdma_link_layer vrdma_get_link_layer(struct ib_device *ibdev, u32 port)
{
	return IB_LINK_LAYER_ETHERNET;
}

static int vrdma_query_pkey(struct ib_device *ibdev, u32 port, u16 index, u16 *pkey)
{
	if (index)
		return -EINVAL;
	*pkey = IB_DEFAULT_PKEY_FULL;
	return 0;
}

static int vrdma_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	struct vrdma_uctx *uctx = rdma_udata_to_drv_context(udata, struct vrdma_uctx, ibuctx);
	struct vrdma_dev *dev = to_vdev(ibpd->device);
	struct vrdma_upd_resp resp = {};
	struct vrdma_pd *pd = to_vpd(ibpd);
	int err;

	err = vrdma_cmd_alloc_pd(dev, vrdma_context(uctx), &pd->pdn);
	if (err || !udata)
		return err;
	resp.pdn = cpu_to_le32(pd->pdn);
	err = ib_copy_to_udata(udata, &resp, min(sizeof(resp), udata->outlen));
	if (err)
		vrdma_cmd_dealloc_pd(dev, pd->pdn);
	return err;
}

static int vrdma_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	struct vrdma_dev *dev = to_vdev(ibpd->device);
	struct vrdma_pd *pd = to_vpd(ibpd);
	int err;

	err = vrdma_cmd_dealloc_pd(dev, pd->pdn);
	if (err && err != -EIO)
		ibdev_warn_ratelimited(&dev->ibdev, "PD %u remains in the device: %d\n", pd->pdn,
				       err);
	/* The caller cannot handle an error. */
	return 0;
}

static const struct ib_device_ops vrdma_dev_ops = {
	.owner = THIS_MODULE,
	.driver_id = RDMA_DRIVER_UNKNOWN,
	.uverbs_abi_ver = VRDMA_UVERBS_ABI_VERSION,
	.device_group = &vrdma_device_group,

	.add_gid = vrdma_add_gid,
	.alloc_dm = vrdma_alloc_dm,
	.alloc_mr = vrdma_alloc_mr,
	.alloc_pd = vrdma_alloc_pd,
	.alloc_ucontext = vrdma_alloc_ucontext,
	VRDMA_CREATE_CQ_OPS(vrdma_create_cq),
	.create_qp = vrdma_create_qp,
	.dealloc_dm = vrdma_dealloc_dm,
	.dealloc_pd = vrdma_dealloc_pd,
	.dealloc_ucontext = vrdma_dealloc_ucontext,
	.del_gid = vrdma_del_gid,
	.dereg_mr = vrdma_dereg_mr,
	.destroy_cq = vrdma_destroy_cq,
	.destroy_qp = vrdma_destroy_qp,
	.disassociate_ucontext = vrdma_disassociate_ucontext,
	.get_dev_fw_str = vrdma_get_dev_fw_str,
	.get_dma_mr = vrdma_get_dma_mr,
	.get_link_layer = vrdma_get_link_layer,
	.get_port_immutable = vrdma_get_port_immutable,
	.map_mr_sg = vrdma_map_mr_sg,
	.mmap = vrdma_mmap,
	.mmap_free = vrdma_mmap_free,
	.modify_device = vrdma_modify_device,
	.modify_qp = vrdma_modify_qp,
	.poll_cq = vrdma_poll_cq,
	.post_recv = vrdma_post_recv,
	.post_send = vrdma_post_send,
	.query_device = vrdma_query_device,
	.query_pkey = vrdma_query_pkey,
	.query_port = vrdma_query_port,
	.query_qp = vrdma_query_qp,
	.query_ucontext = vrdma_query_ucontext,
	.reg_dm_mr = vrdma_reg_dm_mr,
	.reg_user_mr = vrdma_reg_user_mr,
	.req_notify_cq = vrdma_req_notify_cq,

	INIT_RDMA_OBJ_SIZE(ib_cq, vrdma_cq, ibcq),
	INIT_RDMA_OBJ_SIZE(ib_pd, vrdma_pd, ibpd),
	INIT_RDMA_OBJ_SIZE(ib_qp, vrdma_qp, ibqp),
	INIT_RDMA_OBJ_SIZE(ib_ucontext, vrdma_uctx, ibuctx),
};

/* Only for a device that has a table of address handles. */
static const struct ib_device_ops vrdma_ah_ops = {
	.create_ah = vrdma_create_ah,
	.create_user_ah = vrdma_create_ah,
	.destroy_ah = vrdma_destroy_ah,

	INIT_RDMA_OBJ_SIZE(ib_ah, vrdma_ah, ibah),
};

/* Only for a device that has SRQs. */
static const struct ib_device_ops vrdma_srq_ops = {
	.create_srq = vrdma_create_srq,
	.destroy_srq = vrdma_destroy_srq,
	.modify_srq = vrdma_modify_srq,
	.post_srq_recv = vrdma_post_srq_recv,
	.query_srq = vrdma_query_srq,

	INIT_RDMA_OBJ_SIZE(ib_srq, vrdma_srq, ibsrq),
};

/* Each of these tables is only for a device that has the function. */
static const struct ib_device_ops vrdma_resize_ops = {
	VRDMA_RESIZE_CQ_OP(vrdma_resize_cq),
};

static const struct ib_device_ops vrdma_moderation_ops = { .modify_cq = vrdma_modify_cq };

static const struct ib_device_ops vrdma_mcast_ops = {
	.attach_mcast = vrdma_attach_mcast,
	.detach_mcast = vrdma_detach_mcast,
};

static const struct ib_device_ops vrdma_mw_ops = {
	.alloc_mw = vrdma_alloc_mw,
	.dealloc_mw = vrdma_dealloc_mw,
	INIT_RDMA_OBJ_SIZE(ib_mw, vrdma_mw, ibmw),
};

static const struct ib_device_ops vrdma_xrcd_ops = {
	.alloc_xrcd = vrdma_alloc_xrcd,
	.dealloc_xrcd = vrdma_dealloc_xrcd,
	INIT_RDMA_OBJ_SIZE(ib_xrcd, vrdma_xrcd, ibxrcd),
};

static const struct ib_device_ops vrdma_rereg_ops = { .rereg_user_mr = vrdma_rereg_user_mr };

/* Only for a device that has counters. */
static const struct ib_device_ops vrdma_counter_ops = {
	.alloc_hw_port_stats = vrdma_alloc_hw_port_stats,
	.get_hw_stats = vrdma_get_hw_stats,
	.process_mad = vrdma_process_mad,
};

/*
 * Returns the parent of the verbs device: the PCI function, if the virtio device is on PCI.
 *
 * Programs and tools look for /sys/bus/pci/devices/FUNCTION/infiniband, and read the NUMA node of
 * the parent. On another bus the parent is the virtio device. The driver stays bound to the virtio
 * device, which is removed before its PCI function.
 */
static struct device *parent_of(struct virtio_device *vdev)
{
	return vdev->dev.parent && dev_is_pci(vdev->dev.parent) ? vdev->dev.parent : &vdev->dev;
}

/* Fills in the verbs device. Called when the limits are known. */
void vrdma_verbs_init(struct vrdma_dev *dev)
{
	struct ib_device *ibdev = &dev->ibdev;

	ibdev->node_type = RDMA_NODE_IB_CA;
	ibdev->phys_port_cnt = 1;
	ibdev->num_comp_vectors = dev->num_eqs - 1;
	ibdev->dev.parent = parent_of(dev->vdev);
	ibdev->driver_def = vrdma_uapi_defs;
	/* Processes arm their CQs in memory. This method only refuses invalid CQ handles. */
	ibdev->uverbs_cmd_mask |= BIT_ULL(IB_USER_VERBS_CMD_REQ_NOTIFY_CQ);
	addrconf_addr_eui48((u8 *)&ibdev->node_guid, dev->mac);
	ib_set_device_ops(ibdev, &vrdma_dev_ops);
	if (dev->iwarp)
		vrdma_iw_init(ibdev);
	if (dev->ah_mem)
		ib_set_device_ops(ibdev, &vrdma_ah_ops);
	if (dev->caps.max_srq)
		ib_set_device_ops(ibdev, &vrdma_srq_ops);
	if (dev->caps.device_cap & VRDMA_CAP_CQ_RESIZE)
		ib_set_device_ops(ibdev, &vrdma_resize_ops);
	if (dev->caps.device_cap & VRDMA_CAP_CQ_MODERATION)
		ib_set_device_ops(ibdev, &vrdma_moderation_ops);
	if (dev->caps.max_mcast_grp)
		ib_set_device_ops(ibdev, &vrdma_mcast_ops);
	if (dev->caps.device_cap & VRDMA_CAP_WINDOWS)
		ib_set_device_ops(ibdev, &vrdma_mw_ops);
	if (dev->caps.device_cap & VRDMA_CAP_XRC)
		ib_set_device_ops(ibdev, &vrdma_xrcd_ops);
	if (dev->caps.device_cap & VRDMA_CAP_REREG_MR)
		ib_set_device_ops(ibdev, &vrdma_rereg_ops);
	if (dev->caps.device_cap & VRDMA_CAP_HW_COUNTERS)
		ib_set_device_ops(ibdev, &vrdma_counter_ops);
}
