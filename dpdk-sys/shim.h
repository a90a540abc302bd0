/* What bindgen reads: DPDK's headers, and the functions of shim.c. */
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

/* The checksums that a device is to fill in. Bits of `what` of shim_pktmbuf_offload. */
#define SHIM_FILL_IPV4 1
#define SHIM_FILL_UDP 2
#define SHIM_FILL_TCP 4

int shim_errno(void);
unsigned shim_lcore_id(void);
/* A stream whose every write is given to `write`, which takes all of it. */
FILE *shim_stream(void (*write)(const char *bytes, size_t len));

uint16_t shim_eth_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);
uint16_t shim_eth_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);
/* Whether the link is up; negative if the device cannot say. `mbps` may be UINT32_MAX: unknown. */
int shim_eth_link(uint16_t port, uint32_t *mbps);

/*
 * Has frames to this MAC address come to a receive queue. Negative (errno) if the device
 * refuses; `why` is then what its driver says, a string that stays, or null.
 */
int shim_flow_to_queue(uint16_t port, const uint8_t *dst, uint16_t queue, const char **why);
/* Takes all such rules back. */
int shim_flow_flush(uint16_t port);

struct rte_mbuf *shim_pktmbuf_alloc(struct rte_mempool *pool);
int shim_pktmbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned count);
/*
 * A pool whose mbufs lie one behind the other, as the driver of XDP sockets takes for granted:
 * without hugepages rte_pktmbuf_pool_create puts none across the border of a page, and the
 * kernel refuses those of the end, beyond what the driver reckons. NULL with rte_errno.
 */
struct rte_mempool *shim_packed_pool_create(const char *name, unsigned count, unsigned cache, uint16_t private_size, uint16_t data_room);
/*
 * Puts mbufs back that a driver took for frames to come, and lost as it was closed; how many.
 * They are those in nobody's hands that have had no frame since they were taken (pkt_len is 0).
 * Only for a pool from which one thread alone takes mbufs, the caller, and no driver any more.
 */
unsigned shim_pool_recover(struct rte_mempool *pool);
void shim_pktmbuf_free(struct rte_mbuf *mbuf);
/* Data and room of the first mbuf of a chain, how many they are, and whether it has all bytes.
 * It fits two registers. */
struct shim_view {
	uint8_t *data;
	uint16_t len;
	uint16_t room;
	uint16_t segments;
	bool whole;
};
struct shim_view shim_pktmbuf_view(const struct rte_mbuf *mbuf);
uint8_t *shim_pktmbuf_mtod(const struct rte_mbuf *mbuf);
/* Bytes of this segment, and of the whole chain. */
uint16_t shim_pktmbuf_data_len(const struct rte_mbuf *mbuf);
uint32_t shim_pktmbuf_pkt_len(const struct rte_mbuf *mbuf);
struct rte_mbuf *shim_pktmbuf_next(const struct rte_mbuf *mbuf);
/* Bytes that fit from the first byte of data on. */
uint16_t shim_pktmbuf_room(const struct rte_mbuf *mbuf);
/* Makes `len` bytes the data of a mbuf that is one segment. */
void shim_pktmbuf_set_len(struct rte_mbuf *mbuf, uint16_t len);
int shim_pktmbuf_chain(struct rte_mbuf *head, struct rte_mbuf *tail);
/*
 * Makes `len` bytes at `bytes` the data of a fresh mbuf, whose private area holds a struct
 * rte_mbuf_ext_shared_info. `done` is called with `opaque` when the last user of the bytes is
 * through.
 */
void shim_pktmbuf_attach(struct rte_mbuf *mbuf, void *bytes, uint16_t len, void (*done)(void *bytes, void *opaque),
			 void *opaque);
size_t shim_ext_shared_info_size(void);
/* Asks the device for checksums (SHIM_FILL_*); lengths of the Ethernet and the IP header in
 * bytes. */
void shim_pktmbuf_offload(struct rte_mbuf *mbuf, uint32_t what, bool ipv6, uint16_t l2_len, uint16_t l3_len);
/* What was asked for so, and where the byte behind the IP header is. */
struct shim_asked {
	uint32_t what;
	uint32_t start;
};
struct shim_asked shim_pktmbuf_asked(const struct rte_mbuf *mbuf);

#endif
