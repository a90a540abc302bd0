/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_CMDS_H
#define VRDMA_CMDS_H

#include "vrdma.h"

struct vrdma_runs;

int vrdma_cmd_query_device(struct vrdma_dev *dev, struct vrdma_caps *caps);
int vrdma_cmd_query_port(struct vrdma_dev *dev, struct vrdma_query_port_resp *resp);
int vrdma_cmd_query_counters(struct vrdma_dev *dev, struct vrdma_counters_resp *resp);
int vrdma_cmd_query_clock(struct vrdma_dev *dev, u64 *clock);
int vrdma_cmd_set_port_mtu(struct vrdma_dev *dev, u32 mtu);
int vrdma_cmd_add_gid(struct vrdma_dev *dev, u32 index, const union ib_gid *gid, u16 vlan);
int vrdma_cmd_del_gid(struct vrdma_dev *dev, u32 index);
int vrdma_cmd_alloc_context(struct vrdma_dev *dev, u32 *context);
int vrdma_cmd_dealloc_context(struct vrdma_dev *dev, u32 context);
int vrdma_cmd_bind_channel(struct vrdma_dev *dev, u32 context, u16 queue,
			   struct vrdma_runs *runs, bool *pending);
int vrdma_cmd_unbind_channel(struct vrdma_dev *dev, u16 queue);
int vrdma_cmd_alloc_pd(struct vrdma_dev *dev, u32 context, u32 *pdn);
int vrdma_cmd_dealloc_pd(struct vrdma_dev *dev, u32 pdn);
int vrdma_cmd_alloc_xrcd(struct vrdma_dev *dev, u32 *xrcdn);
int vrdma_cmd_dealloc_xrcd(struct vrdma_dev *dev, u32 xrcdn);
int vrdma_cmd_create_cq(struct vrdma_dev *dev, const struct vrdma_create_cq_req *req,
			struct vrdma_runs *runs, u32 *cqn, struct vrdma_mem **mem);
int vrdma_cmd_destroy_cq(struct vrdma_dev *dev, u32 cqn, struct vrdma_mem **mem);
int vrdma_cmd_resize_cq(struct vrdma_dev *dev, const struct vrdma_resize_cq_req *req,
			struct vrdma_runs *runs);
int vrdma_cmd_modify_cq(struct vrdma_dev *dev, u32 cqn, u16 count, u16 period);
int vrdma_cmd_create_qp(struct vrdma_dev *dev, const struct vrdma_create_qp_req *req, u32 *qpn);
int vrdma_cmd_modify_qp(struct vrdma_dev *dev, const struct vrdma_modify_qp_req *req);
int vrdma_cmd_modify_qp_no_timeout(struct vrdma_dev *dev, const struct vrdma_modify_qp_req *req);
int vrdma_cmd_query_qp(struct vrdma_dev *dev, u32 qpn, struct vrdma_qp_attr *attr);
int vrdma_cmd_destroy_qp(struct vrdma_dev *dev, u32 qpn);
int vrdma_cmd_destroy_qp_no_timeout(struct vrdma_dev *dev, u32 qpn);
int vrdma_cmd_create_srq(struct vrdma_dev *dev, const struct vrdma_create_srq_req *req, u32 *srqn);
int vrdma_cmd_modify_srq(struct vrdma_dev *dev, const struct vrdma_modify_srq_req *req);
int vrdma_cmd_query_srq(struct vrdma_dev *dev, u32 srqn, struct vrdma_query_srq_resp *resp);
int vrdma_cmd_destroy_srq(struct vrdma_dev *dev, u32 srqn);
int vrdma_cmd_destroy_srq_no_timeout(struct vrdma_dev *dev, u32 srqn);
int vrdma_cmd_attach_mcast(struct vrdma_dev *dev, u32 qpn, const union ib_gid *mgid);
int vrdma_cmd_detach_mcast(struct vrdma_dev *dev, u32 qpn, const union ib_gid *mgid);
int vrdma_cmd_set_ah_table(struct vrdma_dev *dev, u32 entries, struct vrdma_runs *runs,
			   struct vrdma_mem **mem);

#endif /* VRDMA_CMDS_H */
