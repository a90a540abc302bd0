/*
 * Calls each function of shim.c: `cargo xtask test --only shim-asan`. shim.c is built with
 * AddressSanitizer and UndefinedBehaviorSanitizer. Memory that the shim must not touch is
 * poisoned.
 */
#include "../shim.h"

#include <sanitizer/asan_interface.h>
#include <stdlib.h>
#include <string.h>

#define ROOM 2048
/* More than one call of rx_burst or tx_burst takes. */
#define MBUFS 80

#define CHECK(condition)                                                              \
	do {                                                                          \
		if (!(condition)) {                                                   \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			exit(1);                                                      \
		}                                                                     \
	} while (0)

static char said[64];
static size_t said_len;
static int done;

static void say(const char *bytes, size_t len)
{
	CHECK(said_len + len < sizeof(said));
	memcpy(said + said_len, bytes, len);
	said_len += len;
}

static void stream(void)
{
	FILE *out = shim_stream(say);

	CHECK(out != NULL);
	CHECK(fprintf(out, "%s", "hello") == 5 && fflush(out) == 0 && fprintf(out, " there") == 6);
	CHECK(fclose(out) == 0);
	CHECK(said_len == 11 && memcmp(said, "hello there", 11) == 0);
}

/* Frees the attached bytes, so that AddressSanitizer finds later accesses. */
static void release(void *bytes, void *opaque)
{
	CHECK(opaque == &done);
	free(bytes);
	done++;
}

static struct rte_mbuf *alloc(struct rte_mempool *pool)
{
	struct rte_mbuf *mbuf = shim_pktmbuf_alloc(pool);

	CHECK(mbuf != NULL);
	CHECK(shim_pktmbuf_data_len(mbuf) == 0 && shim_pktmbuf_pkt_len(mbuf) == 0 && shim_pktmbuf_next(mbuf) == NULL);
	CHECK(shim_pktmbuf_room(mbuf) == ROOM);
	return mbuf;
}

static void lengths(struct rte_mempool *pool)
{
	struct rte_mbuf *head = alloc(pool), *tail = alloc(pool);
	uint8_t *bytes = shim_pktmbuf_mtod(head);

	/* The shim only describes the bytes. */
	ASAN_POISON_MEMORY_REGION(bytes, ROOM);
	shim_pktmbuf_set_len(head, ROOM);
	shim_pktmbuf_set_len(tail, 1);
	CHECK(shim_pktmbuf_chain(head, tail) == 0);
	CHECK(shim_pktmbuf_next(head) == tail && shim_pktmbuf_mtod(head) == bytes);
	struct shim_view view = shim_pktmbuf_view(head);
	CHECK(view.data == bytes && view.len == ROOM && view.room == ROOM && view.segments == 2 && !view.whole);
	CHECK(shim_pktmbuf_data_len(head) == ROOM && shim_pktmbuf_pkt_len(head) == ROOM + 1);
	shim_pktmbuf_offload(head, SHIM_FILL_IPV4 | SHIM_FILL_UDP | SHIM_FILL_TCP, false, 18, 60);
	shim_pktmbuf_offload(tail, 0, true, 14, 40);
	/* The checksums of layer 4 are values of one field. The value of UDP equals both. */
	CHECK(shim_pktmbuf_asked(head).what == (SHIM_FILL_IPV4 | SHIM_FILL_UDP) && shim_pktmbuf_asked(head).start == 78);
	CHECK(shim_pktmbuf_asked(tail).what == 0 && shim_pktmbuf_asked(tail).start == 54);
	shim_pktmbuf_offload(tail, SHIM_FILL_TCP, true, 14, 40);
	CHECK(shim_pktmbuf_asked(tail).what == SHIM_FILL_TCP);
	shim_pktmbuf_free(head);
	ASAN_UNPOISON_MEMORY_REGION(bytes, ROOM);
}

static void lent(struct rte_mempool *pool, uint16_t len)
{
	struct rte_mbuf *head = alloc(pool), *mbuf = alloc(pool);
	uint8_t *bytes = malloc(len);

	CHECK(bytes != NULL && shim_ext_shared_info_size() <= rte_pktmbuf_priv_size(pool));
	done = 0;
	shim_pktmbuf_attach(mbuf, bytes, len, release, &done);
	CHECK(shim_pktmbuf_mtod(mbuf) == bytes && shim_pktmbuf_data_len(mbuf) == len && shim_pktmbuf_room(mbuf) == len);
	shim_pktmbuf_set_len(head, 14);
	CHECK(shim_pktmbuf_chain(head, mbuf) == 0 && shim_pktmbuf_pkt_len(head) == 14u + len && done == 0);
	shim_pktmbuf_free(head);
	CHECK(done == 1);
	/* The mbuf can be allocated again, with its own data area. */
	shim_pktmbuf_free(alloc(pool));
}

/* net_ring returns what is sent to it. */
static void bursts(struct rte_mempool *pool, uint16_t port)
{
	struct rte_mbuf **mbufs = malloc(MBUFS * sizeof(*mbufs));
	uint16_t sent, received;
	uint32_t mbps;

	CHECK(mbufs != NULL && shim_pktmbuf_alloc_bulk(pool, mbufs, MBUFS) == 0);
	for (int i = 0; i < MBUFS; i++) {
		memset(shim_pktmbuf_mtod(mbufs[i]), i, 60);
		shim_pktmbuf_set_len(mbufs[i], 60);
	}
	sent = shim_eth_tx_burst(port, 0, mbufs, MBUFS);
	CHECK(sent == MBUFS);
	received = shim_eth_rx_burst(port, 0, mbufs, MBUFS);
	CHECK(received == MBUFS);
	for (int i = 0; i < MBUFS; i++) {
		CHECK(shim_pktmbuf_data_len(mbufs[i]) == 60 && shim_pktmbuf_mtod(mbufs[i])[59] == i);
		shim_pktmbuf_free(mbufs[i]);
	}
	CHECK(shim_eth_rx_burst(port, 0, mbufs, MBUFS) == 0);
	free(mbufs);
	CHECK(shim_eth_link(port, &mbps) == 1);
	CHECK(shim_eth_link(RTE_MAX_ETHPORTS - 1, &mbps) < 0);
}

static uint16_t start(struct rte_mempool *pool)
{
	struct rte_eth_conf conf = { 0 };
	uint16_t port = rte_eth_find_next(0);

	CHECK(port < RTE_MAX_ETHPORTS);
	CHECK(rte_eth_dev_configure(port, 1, 1, &conf) == 0);
	CHECK(rte_eth_rx_queue_setup(port, 0, 128, SOCKET_ID_ANY, NULL, pool) == 0);
	CHECK(rte_eth_tx_queue_setup(port, 0, 128, SOCKET_ID_ANY, NULL) == 0);
	CHECK(rte_eth_dev_start(port) == 0);
	return port;
}

int main(void)
{
	static char *args[] = { "shim", "--no-huge", "-m", "64", "--no-pci", "--no-telemetry", "--no-shconf", "-l", "0",
				"--vdev=net_ring0", "--log-level=error", NULL };
	struct rte_mempool *pool;

	stream();
	CHECK(rte_eal_init(sizeof(args) / sizeof(*args) - 1, args) >= 0);
	CHECK(shim_lcore_id() != LCORE_ID_ANY);
	pool = rte_pktmbuf_pool_create("pool", 1023, 0, RTE_ALIGN(shim_ext_shared_info_size(), RTE_MBUF_PRIV_ALIGN),
				       ROOM + RTE_PKTMBUF_HEADROOM, SOCKET_ID_ANY);
	CHECK(pool != NULL);
	CHECK(rte_pktmbuf_pool_create("pool", 1023, 0, 0, ROOM, SOCKET_ID_ANY) == NULL && shim_errno() == EEXIST);
	lengths(pool);
	lent(pool, 1);
	lent(pool, 1500);
	lent(pool, UINT16_MAX);
	bursts(pool, start(pool));
	CHECK(rte_mempool_avail_count(pool) == 1023);
	puts("1 passed");
	return 0;
}
