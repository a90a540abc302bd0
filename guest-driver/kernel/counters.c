// SPDX-License-Identifier: GPL-2.0
/*
 * The counters of the device.
 *
 * They appear as hardware counters (`rdma statistic`, hw_counters/ in sysfs) and as counters of the
 * port (counters/). The core asks for the latter in management datagrams.
 */
#include <rdma/ib_mad.h>
#include <rdma/ib_pma.h>

#include "cmds.h"
#include "counters.h"

/* Offset of the attribute in the data of a performance management datagram (IBTA 16.1.1). */
#define PMA_DATA 40

#define COUNTER(name_, field_)                                                                  \
	{                                                                                       \
		.name = (name_),                                                                \
		.priv = (const void *)offsetof(struct vrdma_counters_resp, field_),             \
	}

/*
 * Names are those of rdma_rxe where it has the same counter. The driver itself keeps the last one.
 */
static const struct rdma_stat_desc counters[] = {
	COUNTER("sent_pkts", packets_sent),
	COUNTER("rcvd_pkts", packets_received),
	COUNTER("duplicate_request", duplicates),
	COUNTER("out_of_seq_request", out_of_order),
	COUNTER("rcvd_rnr_err", rnr_naks_received),
	COUNTER("send_rnr_err", rnr_naks_sent),
	COUNTER("rcvd_seq_err", sequence_naks_received),
	COUNTER("retry_exceeded_err", retry_exceeded),
	COUNTER("retry_rnr_exceeded_err", rnr_retry_exceeded),
	COUNTER("completer_retry_err", retries),
	COUNTER("send_err", unroutable),
	COUNTER("rdma_sends", sends),
	COUNTER("rdma_recvs", receives),
	COUNTER("sent_bytes", bytes_sent),
	COUNTER("rcvd_bytes", bytes_received),
	COUNTER("rdma_writes", writes),
	COUNTER("rdma_reads", reads),
	COUNTER("rdma_atomics", atomics),
	COUNTER("send_seq_err", sequence_naks_sent),
	COUNTER("send_nak_err", requests_refused),
	COUNTER("rcvd_nak_err", naks_received),
	COUNTER("local_ack_timeout_err", timeouts),
	COUNTER("rcvd_dropped", dropped),
	COUNTER("cqe_err", errors),
	COUNTER("cqe_flush_err", flushes),
	COUNTER("bad_requests", bad_requests),
	COUNTER("bad_ahs", bad_address_handles),
	COUNTER("cq_overruns", cq_overruns),
	{ .name = "link_downed" },
};

struct rdma_hw_stats *vrdma_alloc_hw_port_stats(struct ib_device *ibdev, u32 port)
{
	return rdma_alloc_hw_stats_struct(counters, ARRAY_SIZE(counters),
					  RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

int vrdma_get_hw_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats, u32 port, int index)
{
	struct vrdma_dev *dev = to_vdev(ibdev);
	struct vrdma_counters_resp resp;
	const __le64 *value;
	int err;
	int i;

	err = vrdma_cmd_query_counters(dev, &resp);
	if (err)
		return err;
	for (i = 0; i < ARRAY_SIZE(counters) - 1; i++) {
		value = (const void *)&resp + (uintptr_t)counters[i].priv;
		stats->value[i] = le64_to_cpu(*value);
	}
	stats->value[i] = READ_ONCE(dev->link_downed);
	return stats->num_counters;
}

/* Data counters of a port are in units of 4 bytes (IBTA 16.1.3.5). */
static u64 words(__le64 bytes)
{
	return le64_to_cpu(bytes) / 4;
}

static __be32 saturated(u64 count)
{
	return cpu_to_be32(min_t(u64, count, U32_MAX));
}

static void port_counters(struct ib_pma_portcounters *pma, const struct vrdma_counters_resp *resp,
			  u32 link_downed)
{
	pma->port_xmit_data = saturated(words(resp->bytes_sent));
	pma->port_rcv_data = saturated(words(resp->bytes_received));
	pma->port_xmit_packets = saturated(le64_to_cpu(resp->packets_sent));
	pma->port_rcv_packets = saturated(le64_to_cpu(resp->packets_received));
	pma->port_rcv_errors = cpu_to_be16(min_t(u64, le64_to_cpu(resp->dropped), U16_MAX));
	pma->port_xmit_discards = cpu_to_be16(min_t(u64, le64_to_cpu(resp->unroutable), U16_MAX));
	pma->link_downed_counter = min_t(u32, link_downed, U8_MAX);
}

static void port_counters_ext(struct ib_pma_portcounters_ext *pma,
			      const struct vrdma_counters_resp *resp)
{
	pma->port_xmit_data = cpu_to_be64(words(resp->bytes_sent));
	pma->port_rcv_data = cpu_to_be64(words(resp->bytes_received));
	pma->port_xmit_packets = cpu_to_be64(le64_to_cpu(resp->packets_sent));
	pma->port_rcv_packets = cpu_to_be64(le64_to_cpu(resp->packets_received));
	/* The device does not count multicast packets separately. */
	pma->port_unicast_xmit_packets = pma->port_xmit_packets;
	pma->port_unicast_rcv_packets = pma->port_rcv_packets;
}

/*
 * Answers management datagrams of the core, which needs them for counters/.
 *
 * Datagrams from peers are not answered: they are for the core's agents.
 */
int vrdma_process_mad(struct ib_device *ibdev, int flags, u32 port, const struct ib_wc *in_wc,
		      const struct ib_grh *in_grh, const struct ib_mad *in, struct ib_mad *out,
		      size_t *out_size, u16 *out_pkey_index)
{
	struct ib_class_port_info info = { .capability_mask = IB_PMA_CLASS_CAP_EXT_WIDTH };
	struct vrdma_dev *dev = to_vdev(ibdev);
	void *attribute = out->data + PMA_DATA;
	struct vrdma_counters_resp resp;

	if (in_wc || in->mad_hdr.mgmt_class != IB_MGMT_CLASS_PERF_MGMT ||
	    in->mad_hdr.method != IB_MGMT_METHOD_GET)
		return IB_MAD_RESULT_SUCCESS;
	if (in->mad_hdr.attr_id == IB_PMA_CLASS_PORT_INFO) {
		memcpy(attribute, &info, sizeof(info));
		return IB_MAD_RESULT_SUCCESS | IB_MAD_RESULT_REPLY;
	}
	if (vrdma_cmd_query_counters(dev, &resp))
		return IB_MAD_RESULT_FAILURE;
	if (in->mad_hdr.attr_id == IB_PMA_PORT_COUNTERS_EXT)
		port_counters_ext(attribute, &resp);
	else if (in->mad_hdr.attr_id == IB_PMA_PORT_COUNTERS)
		port_counters(attribute, &resp, READ_ONCE(dev->link_downed));
	else
		return IB_MAD_RESULT_SUCCESS;
	return IB_MAD_RESULT_SUCCESS | IB_MAD_RESULT_REPLY;
}
