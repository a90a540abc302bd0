/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_REPLY_H
#define VRDMA_REPLY_H

#include "vrdma_abi.h"

/* Memory windows of all types. */
#define VRDMA_CAP_WINDOWS (VRDMA_CAP_MEM_WINDOW | VRDMA_CAP_MEM_WINDOW_TYPE_2B)

/* Functions of the device that this driver knows. */
#define VRDMA_DRIVER_CAPS \
	(VRDMA_CAP_V1_0 | VRDMA_CAP_SRQ | VRDMA_CAP_SRQ_RESIZE | VRDMA_CAP_XRC | \
	 VRDMA_CAP_ATOMIC_WRITE | \
	 VRDMA_CAP_WINDOWS | VRDMA_CAP_REREG_MR | VRDMA_CAP_CQ_RESIZE | \
	 VRDMA_CAP_MEM_MGT_EXTENSIONS | \
	 VRDMA_CAP_CQ_MODERATION | VRDMA_CAP_CQ_IGNORE_OVERRUN | VRDMA_CAP_MULTICAST | \
	 VRDMA_CAP_CQ_TIMESTAMP | VRDMA_CAP_FLUSH_GLOBAL | VRDMA_CAP_HW_COUNTERS | \
	 VRDMA_CAP_NEXT_HOP | VRDMA_CAP_WQE_LIST | VRDMA_CAP_CM_TRAFFIC_CLASS)

/**
 * struct vrdma_caps - abilities of the device, from QUERY_DEVICE and the configuration space
 * @device_cap: functions that both device and driver have, VRDMA_CAP_*
 */
struct vrdma_caps {
	u64 device_cap;
	u64 fw_version;
	__be64 sys_image_guid;
	u64 max_mr_size;
	u32 max_mr_runs;
	u32 max_pd;
	u32 max_cq;
	u32 max_cqe;
	u32 max_mr;
	u32 max_qp;
	u32 max_qp_wr;
	u32 max_send_sge;
	u32 max_recv_sge;
	u32 max_inline;
	u32 max_rd_atomic;
	u32 max_dest_rd_atomic;
	u32 max_ah;
	u32 atomic_cap;
	u32 max_srq;
	u32 max_mcast_grp;
	u32 max_mcast_qp_attach;
	u32 max_total_mcast_qp_attach;
	u32 max_fast_reg_pages;
	u32 max_wqe_units;
	u32 max_mtu;
};

bool vrdma_reply_read(void *resp, size_t size, size_t least, const void *from, size_t len);
void vrdma_caps_read(struct vrdma_caps *caps, const struct vrdma_query_device_ex_resp *resp);
int vrdma_status_to_errno(u32 status);

#endif /* VRDMA_REPLY_H */
