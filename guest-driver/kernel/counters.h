/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_COUNTERS_H
#define VRDMA_COUNTERS_H

#include "vrdma.h"

struct ib_grh;
struct ib_mad;

struct rdma_hw_stats *vrdma_alloc_hw_port_stats(struct ib_device *ibdev, u32 port);
int vrdma_get_hw_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats, u32 port, int index);
int vrdma_process_mad(struct ib_device *ibdev, int flags, u32 port, const struct ib_wc *in_wc,
		      const struct ib_grh *in_grh, const struct ib_mad *in, struct ib_mad *out,
		      size_t *out_size, u16 *out_pkey_index);

#endif /* VRDMA_COUNTERS_H */
