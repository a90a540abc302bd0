/* Input of bindgen: DPDK's headers, and the functions of shim.c. */
#ifndef VRDMA_DPDK_SHIM_H
#define VRDMA_DPDK_SHIM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_flow.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_memory.h>
#include <rte_mempool.h>
#include <rte_version.h>

/* Macros whose values bindgen cannot see. */
static const uint64_t SHIM_TX_OFFLOAD_MULTI_SEGS = RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
static const uint64_t SHIM_TX_OFFLOAD_IPV4_CKSUM = RTE_ETH_TX_OFFLOAD_IPV4_CKSUM;
static const uint64_t SHIM_TX_OFFLOAD_UDP_CKSUM = RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
static const uint64_t SHIM_TX_OFFLOAD_TCP_CKSUM = RTE_ETH_TX_OFFLOAD_TCP_CKSUM;
static const uint64_t SHIM_RX_OFFLOAD_CHECKSUM = RTE_ETH_RX_OFFLOAD_CHECKSUM;
static const uint32_t SHIM_DEV_INTR_LSC = RTE_ETH_DEV_INTR_LSC;
static const uint32_t SHIM_LOG_ERR = RTE_LOG_ERR;
static const uint32_t SHIM_LOG_WARNING = RTE_LOG_WARNING;
static const uint32_t SHIM_LOG_NOTICE = RTE_LOG_NOTICE;
static const uint32_t SHIM_LOG_INFO = RTE_LOG_INFO;
static const uint32_t SHIM_LOG_DEBUG = RTE_LOG_DEBUG;

/* Checksums that a device fills in. Bits of `what` of shim_pktmbuf_offload. */
#define SHIM_FILL_IPV4 1
#define SHIM_FILL_UDP 2
#define SHIM_FILL_TCP 4

int shim_errno(void);
unsigned shim_lcore_id(void);
/* Opens a stream that passes each write to `write`, which takes all bytes. */
FILE *shim_stream(void (*write)(const char *bytes, size_t len));

uint16_t shim_eth_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);
uint16_t shim_eth_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);
/*
 * Returns 1 if the link is up, 0 if it is down, and a negative error if the device cannot say.
 * A `mbps` of UINT32_MAX means an unknown speed.
 */
int shim_eth_link(uint16_t port, uint32_t *mbps);

/*
 * Steers frames to this MAC address to a receive queue. Returns a negative errno if the device
 * refuses. `why` is then the message of its driver, a string that stays valid, or null.
 */
int shim_flow_to_queue(uint16_t port, const uint8_t *dst, uint16_t queue, const char **why);
/* Removes all rules of shim_flow_to_queue. */
int shim_flow_flush(uint16_t port);

struct rte_mbuf *shim_pktmbuf_alloc(struct rte_mempool *pool);
int shim_pktmbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned count);
/*
 * Creates a pool whose mbufs lie one behind the other. Returns NULL and sets rte_errno on error.
 *
 * The driver of XDP sockets expects such a pool. Without hugepages, rte_pktmbuf_pool_create
 * puts no mbuf across a page border. Its last mbufs then lie beyond the size that the driver
 * calculates, and the kernel refuses them.
 */
struct rte_mempool *shim_packed_pool_create(const char *name, unsigned count, unsigned cache, uint16_t private_size, uint16_t data_room);
/*
 * Returns lost mbufs to the pool, and returns their number. A driver loses the mbufs that it
 * took for frames to come, when it is closed.
 *
 * An mbuf counts as lost if nobody holds it and it has held no frame since it was taken
 * (pkt_len is 0). Only the calling thread may take mbufs from the pool, and no driver may use
 * it any more.
 */
unsigned shim_pool_recover(struct rte_mempool *pool);
void shim_pktmbuf_free(struct rte_mbuf *mbuf);
/*
 * The first mbuf of a chain: its data and room. `segments` is the length of the chain; `whole`
 * tells whether the first mbuf has all bytes. The structure fits two registers.
 */
struct shim_view {
	uint8_t *data;
	uint16_t len;
	uint16_t room;
	uint16_t segments;
	bool whole;
};
struct shim_view shim_pktmbuf_view(const struct rte_mbuf *mbuf);
uint8_t *shim_pktmbuf_mtod(const struct rte_mbuf *mbuf);
/* Return the bytes of this segment, and of the whole chain. */
uint16_t shim_pktmbuf_data_len(const struct rte_mbuf *mbuf);
uint32_t shim_pktmbuf_pkt_len(const struct rte_mbuf *mbuf);
struct rte_mbuf *shim_pktmbuf_next(const struct rte_mbuf *mbuf);
/* Returns the bytes that fit into the segment, from its first byte of data on. */
uint16_t shim_pktmbuf_room(const struct rte_mbuf *mbuf);
/* Sets the data length of an mbuf of one segment. */
void shim_pktmbuf_set_len(struct rte_mbuf *mbuf, uint16_t len);
int shim_pktmbuf_chain(struct rte_mbuf *head, struct rte_mbuf *tail);
/*
 * Makes `len` bytes at `bytes` the data of a fresh mbuf. The mbuf's private area must have room
 * for a struct rte_mbuf_ext_shared_info. `done` is called with `opaque` when the last user of the
 * bytes has finished.
 */
void shim_pktmbuf_attach(struct rte_mbuf *mbuf, void *bytes, uint16_t len, void (*done)(void *bytes, void *opaque),
			 void *opaque);
size_t shim_ext_shared_info_size(void);
/*
 * Asks the device for checksums (SHIM_FILL_*). `l2_len` and `l3_len` are the lengths of the
 * Ethernet and the IP header in bytes.
 */
void shim_pktmbuf_offload(struct rte_mbuf *mbuf, uint32_t what, bool ipv6, uint16_t l2_len, uint16_t l3_len);
/* The checksums requested by shim_pktmbuf_offload, and the offset behind the IP header. */
struct shim_asked {
	uint32_t what;
	uint32_t start;
};
struct shim_asked shim_pktmbuf_asked(const struct rte_mbuf *mbuf);

#endif
