/* Functions that Rust can call, for functions and fields that DPDK has only in its headers. */
#define _GNU_SOURCE
#include "shim.h"

#include <rte_errno.h>
#include <rte_mbuf_pool_ops.h>
#include <string.h>
#include <sys/types.h>

int shim_errno(void)
{
	return rte_errno;
}

unsigned shim_lcore_id(void)
{
	return rte_lcore_id();
}

static ssize_t stream_write(void *cookie, const char *bytes, size_t len)
{
	/* A function pointer fits into an object pointer wherever DPDK runs (POSIX dlsym). */
	((void (*)(const char *, size_t))cookie)(bytes, len);
	return (ssize_t)len;
}

FILE *shim_stream(void (*write)(const char *bytes, size_t len))
{
	cookie_io_functions_t functions = { .write = stream_write };
	FILE *stream = fopencookie((void *)write, "w", functions);

	if (stream != NULL)
		setvbuf(stream, NULL, _IOFBF, 4096);
	return stream;
}

uint16_t shim_eth_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_rx_burst(port, queue, mbufs, count);
}

uint16_t shim_eth_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_tx_burst(port, queue, mbufs, count);
}

int shim_eth_link(uint16_t port, uint32_t *mbps)
{
	struct rte_eth_link link = { 0 };
	int error = rte_eth_link_get_nowait(port, &link);

	*mbps = link.link_speed;
	return error < 0 ? error : link.link_status == RTE_ETH_LINK_UP;
}

int shim_flow_to_queue(uint16_t port, const uint8_t *dst, uint16_t queue, const char **why)
{
	struct rte_flow_attr attr = { .ingress = 1 };
	struct rte_flow_item_eth spec, mask;
	struct rte_flow_action_queue to = { .index = queue };
	struct rte_flow_item pattern[] = {
		{ .type = RTE_FLOW_ITEM_TYPE_ETH, .spec = &spec, .mask = &mask },
		{ .type = RTE_FLOW_ITEM_TYPE_END },
	};
	struct rte_flow_action actions[] = {
		{ .type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &to },
		{ .type = RTE_FLOW_ACTION_TYPE_END },
	};
	struct rte_flow_error error;

	memset(&spec, 0, sizeof(spec));
	memset(&mask, 0, sizeof(mask));
	memset(&error, 0, sizeof(error));
	memcpy(spec.hdr.dst_addr.addr_bytes, dst, RTE_ETHER_ADDR_LEN);
	memset(mask.hdr.dst_addr.addr_bytes, 0xff, RTE_ETHER_ADDR_LEN);
	rte_errno = 0;
	if (rte_flow_create(port, &attr, pattern, actions, &error))
		return 0;
	*why = error.message;
	return rte_errno > 0 ? -rte_errno : -EIO;
}

int shim_flow_flush(uint16_t port)
{
	struct rte_flow_error error;

	memset(&error, 0, sizeof(error));
	return rte_flow_flush(port, &error);
}

struct rte_mbuf *shim_pktmbuf_alloc(struct rte_mempool *pool)
{
	return rte_pktmbuf_alloc(pool);
}

int shim_pktmbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned count)
{
	return rte_pktmbuf_alloc_bulk(pool, mbufs, count);
}

void shim_pktmbuf_free(struct rte_mbuf *mbuf)
{
	rte_pktmbuf_free(mbuf);
}

struct shim_view shim_pktmbuf_view(const struct rte_mbuf *mbuf)
{
	return (struct shim_view){
		.data = rte_pktmbuf_mtod(mbuf, uint8_t *),
		.len = rte_pktmbuf_data_len(mbuf),
		.room = shim_pktmbuf_room(mbuf),
		.segments = mbuf->nb_segs,
		.whole = rte_pktmbuf_pkt_len(mbuf) == rte_pktmbuf_data_len(mbuf),
	};
}

uint8_t *shim_pktmbuf_mtod(const struct rte_mbuf *mbuf)
{
	return rte_pktmbuf_mtod(mbuf, uint8_t *);
}

uint16_t shim_pktmbuf_data_len(const struct rte_mbuf *mbuf)
{
	return rte_pktmbuf_data_len(mbuf);
}

uint32_t shim_pktmbuf_pkt_len(const struct rte_mbuf *mbuf)
{
	return rte_pktmbuf_pkt_len(mbuf);
}

struct rte_mbuf *shim_pktmbuf_next(const struct rte_mbuf *mbuf)
{
	return mbuf->next;
}

uint16_t shim_pktmbuf_room(const struct rte_mbuf *mbuf)
{
	return mbuf->buf_len - mbuf->data_off;
}

void shim_pktmbuf_set_len(struct rte_mbuf *mbuf, uint16_t len)
{
	mbuf->data_len = len;
	mbuf->pkt_len = len;
}

int shim_pktmbuf_chain(struct rte_mbuf *head, struct rte_mbuf *tail)
{
	return rte_pktmbuf_chain(head, tail);
}

void shim_pktmbuf_attach(struct rte_mbuf *mbuf, void *bytes, uint16_t len, void (*done)(void *bytes, void *opaque),
			 void *opaque)
{
	struct rte_mbuf_ext_shared_info *shared = rte_mbuf_to_priv(mbuf);

	shared->free_cb = done;
	shared->fcb_opaque = opaque;
	rte_mbuf_ext_refcnt_set(shared, 1);
	/*
	 * Virtual devices read through the virtual address. Other devices get such mbufs only if
	 * I/O addresses equal virtual addresses.
	 */
	rte_pktmbuf_attach_extbuf(mbuf, bytes, (rte_iova_t)(uintptr_t)bytes, len, shared);
	mbuf->data_off = 0;
	shim_pktmbuf_set_len(mbuf, len);
}

size_t shim_ext_shared_info_size(void)
{
	return sizeof(struct rte_mbuf_ext_shared_info);
}

void shim_pktmbuf_offload(struct rte_mbuf *mbuf, uint32_t what, bool ipv6, uint16_t l2_len, uint16_t l3_len)
{
	mbuf->l2_len = l2_len;
	mbuf->l3_len = l3_len;
	mbuf->ol_flags |= ipv6 ? RTE_MBUF_F_TX_IPV6 : RTE_MBUF_F_TX_IPV4;
	if (what & SHIM_FILL_IPV4)
		mbuf->ol_flags |= RTE_MBUF_F_TX_IP_CKSUM;
	if (what & SHIM_FILL_UDP)
		mbuf->ol_flags |= RTE_MBUF_F_TX_UDP_CKSUM;
	if (what & SHIM_FILL_TCP)
		mbuf->ol_flags |= RTE_MBUF_F_TX_TCP_CKSUM;
}

struct shim_asked shim_pktmbuf_asked(const struct rte_mbuf *mbuf)
{
	struct shim_asked asked = { .start = mbuf->l2_len + mbuf->l3_len };

	if (mbuf->ol_flags & RTE_MBUF_F_TX_IP_CKSUM)
		asked.what |= SHIM_FILL_IPV4;
	/* The checksums of layer 4 are values of one field, not bits. */
	if ((mbuf->ol_flags & RTE_MBUF_F_TX_L4_MASK) == RTE_MBUF_F_TX_UDP_CKSUM)
		asked.what |= SHIM_FILL_UDP;
	if ((mbuf->ol_flags & RTE_MBUF_F_TX_L4_MASK) == RTE_MBUF_F_TX_TCP_CKSUM)
		asked.what |= SHIM_FILL_TCP;
	return asked;
}

struct rte_mempool *shim_packed_pool_create(const char *name, unsigned count, unsigned cache, uint16_t private_size, uint16_t data_room)
{
	struct rte_pktmbuf_pool_private about = {
		.mbuf_data_room_size = data_room,
		.mbuf_priv_size = private_size,
	};
	unsigned size = sizeof(struct rte_mbuf) + private_size + data_room;
	struct rte_mempool *pool = rte_mempool_create_empty(name, count, size, cache, sizeof(about), SOCKET_ID_ANY,
							    RTE_MEMPOOL_F_NO_IOVA_CONTIG);
	int result;

	if (pool == NULL)
		return NULL;
	result = rte_mempool_set_ops_byname(pool, rte_mbuf_best_mempool_ops(), NULL);
	if (result == 0) {
		rte_pktmbuf_pool_init(pool, &about);
		result = rte_mempool_populate_default(pool);
	}
	if (result < 0) {
		rte_mempool_free(pool);
		rte_errno = -result;
		return NULL;
	}
	rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
	return pool;
}

struct recovery {
	struct rte_mbuf *first;
	unsigned count;
};

static void recover(struct rte_mempool *pool, void *arg, void *obj, unsigned index)
{
	struct recovery *found = arg;
	struct rte_mbuf *mbuf = obj;

	(void)pool;
	(void)index;
	if (mbuf->pkt_len != 0)
		return;
	mbuf->pkt_len = 1;
	mbuf->next = found->first;
	found->first = mbuf;
	found->count++;
}

unsigned shim_pool_recover(struct rte_mempool *pool)
{
	struct rte_mbuf *free_ones = NULL;
	struct recovery lost = { NULL, 0 };
	void *obj;

	/* Mbufs in the pool are not lost. Take them out meanwhile, and mark them. */
	while (rte_mempool_get(pool, &obj) == 0) {
		struct rte_mbuf *mbuf = obj;

		mbuf->pkt_len = 1;
		mbuf->next = free_ones;
		free_ones = mbuf;
	}
	rte_mempool_obj_iter(pool, recover, &lost);
	for (int list = 0; list < 2; list++) {
		struct rte_mbuf *mbuf = list == 0 ? free_ones : lost.first;

		while (mbuf != NULL) {
			struct rte_mbuf *next = mbuf->next;

			/* The state that a pool requires of a free mbuf. */
			mbuf->next = NULL;
			mbuf->nb_segs = 1;
			mbuf->ol_flags = 0;
			rte_mbuf_refcnt_set(mbuf, 1);
			rte_mempool_put(pool, mbuf);
			mbuf = next;
		}
	}
	return lost.count;
}
