/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "common.h"

#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct common_options common = {
	.device = NULL, .gid_index = -1, .port = 18500, .timeout = 19, .retries = 7, .peer = NULL};

/* ---- errors and time ---- */

static void complain(const char *format, va_list arguments, int error)
{
	fflush(stdout);
	fprintf(stderr, "%s: ", program_invocation_short_name);
	vfprintf(stderr, format, arguments);
	if (error)
		fprintf(stderr, ": %s", strerror(error));
	fputc('\n', stderr);
}

void die(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	complain(format, arguments, 0);
	exit(FAILED);
}

void die_errno(const char *format, ...)
{
	int error = errno;
	va_list arguments;

	va_start(arguments, format);
	complain(format, arguments, error);
	exit(FAILED);
}

double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

void sleep_ms(double ms)
{
	struct timespec time = {.tv_sec = ms / 1e3, .tv_nsec = (long)(ms * 1e6) % 1000000000};

	nanosleep(&time, NULL);
}

/* ---- options ---- */

static const struct option_spec common_table[] = {
	{"device", 'd', TEXT, &common.device, "the RDMA device; the first one if not given"},
	{"gid-index", 'g', NUMBER, &common.gid_index, "index of the GID; the first RoCE v2 one of IPv4 if not given"},
	{"port", 'p', NUMBER, &common.port, "TCP port on which the two programs find each other"},
	{"timeout", 0, NUMBER, &common.timeout, "ACK timeout of QPs, 4.096 us * 2^N"},
	{"retries", 0, NUMBER, &common.retries, "retries of QPs, 0 to 7"},
	{NULL, 0, FLAG, NULL, NULL},
};

static void print_table(const struct option_spec *table)
{
	for (; table->name; table++) {
		int width = table->letter ? printf("  -%c, --%s", table->letter, table->name)
					  : printf("      --%s", table->name);

		width += printf("%s", table->kind == NUMBER ? " N" : table->kind == TEXT ? " TEXT" : "");
		printf("%*s%s", width < 28 ? 28 - width : 1, "", table->help);
		if (table->kind == NUMBER)
			printf(" (%ld)", *(long *)table->value);
		putchar('\n');
	}
}

static void take_option(const struct option_spec *spec, const char *text)
{
	char *end;

	switch (spec->kind) {
	case FLAG:
		*(bool *)spec->value = true;
		break;
	case TEXT:
		*(const char **)spec->value = text;
		break;
	case NUMBER:
		errno = 0;
		*(long *)spec->value = strtol(text, &end, 0);
		if (errno || *end || end == text) {
			fprintf(stderr, "%s: --%s: %s is no number\n", program_invocation_short_name, spec->name,
				text);
			exit(USAGE);
		}
		break;
	}
}

void parse_options(int argc, char **argv, const char *what, const struct option_spec *table)
{
	const struct option_spec *specs[64] = {NULL};
	struct option longs[64] = {{NULL, 0, NULL, 0}};
	char letters[64] = "";
	size_t count = 0;
	int c;

	for (int part = 0; part < 2; part++)
		for (const struct option_spec *spec = part ? table : common_table; spec->name; spec++) {
			int argument = spec->kind == FLAG ? no_argument : required_argument;

			specs[count] = spec;
			longs[count] = (struct option){spec->name, argument, NULL, 256 + (int)count};
			if (spec->letter)
				sprintf(letters + strlen(letters), "%c%s", spec->letter, argument ? ":" : "");
			count++;
		}
	longs[count] = (struct option){"help", no_argument, NULL, 'h'};
	while ((c = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
		if (c == 'h') {
			printf("%s\n\nOptions:\n", what);
			print_table(table);
			print_table(common_table);
			printf("      --help                this text\n\nExit status: 0 all is well, 1 a check failed, "
			       "2 mistyped, 3 an expected error did not come.\n");
			exit(OK);
		}
		if (c == '?')
			exit(USAGE);
		for (size_t i = 0; i < count; i++)
			if (c == 256 + (int)i || (c < 256 && c == specs[i]->letter))
				take_option(specs[i], optarg);
	}
	if (optind < argc)
		common.peer = argv[optind++];
	if (optind < argc) {
		fprintf(stderr, "%s: what is %s? Try --help\n", program_invocation_short_name, argv[optind]);
		exit(USAGE);
	}
	check_range("port", common.port, 1, 65535);
	check_range("timeout", common.timeout, 0, 31);
	check_range("retries", common.retries, 0, 7);
}

void check_range(const char *name, long value, long low, long high)
{
	if (value >= low && value <= high)
		return;
	fprintf(stderr, "%s: --%s must be from %ld to %ld\n", program_invocation_short_name, name, low, high);
	exit(USAGE);
}

/* ---- the link ---- */

static int link_listen(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(common.port)};
	struct pollfd ready = {.events = POLLIN};
	int link, one = 1;

	ready.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (ready.fd < 0)
		die_errno("socket");
	setsockopt(ready.fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(ready.fd, (struct sockaddr *)&address, sizeof(address)) || listen(ready.fd, 1))
		die_errno("TCP port %ld", common.port);
	if (poll(&ready, 1, 120000) != 1)
		die("no client came to TCP port %ld for two minutes", common.port);
	link = accept4(ready.fd, NULL, NULL, SOCK_CLOEXEC);
	if (link < 0)
		die_errno("accept");
	close(ready.fd);
	return link;
}

static int link_connect(void)
{
	const double deadline = seconds() + 120;
	struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
	char port[8];
	int error;

	snprintf(port, sizeof(port), "%ld", common.port);
	error = getaddrinfo(common.peer, port, &hints, &found);
	if (error)
		die("%s: %s", common.peer, gai_strerror(error));
	for (;;) {
		int link = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (link < 0)
			die_errno("socket");
		if (!connect(link, found->ai_addr, found->ai_addrlen)) {
			freeaddrinfo(found);
			return link;
		}
		error = errno;
		close(link);
		errno = error;
		if (seconds() > deadline)
			die_errno("cannot connect to %s, TCP port %ld", common.peer, common.port);
		sleep_ms(20);
	}
}

static bool over_stdio(void)
{
	return common.peer && !strcmp(common.peer, "-");
}

int link_open(void)
{
	const struct timeval patience = {.tv_sec = 120};
	int link, one = 1;

	signal(SIGPIPE, SIG_IGN);
	if (over_stdio())
		return STDIN_FILENO;
	link = common.peer ? link_connect() : link_listen();
	setsockopt(link, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	/* If a peer's machine is gone, the connection does not even close. */
	setsockopt(link, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	return link;
}

void say(const char *format, ...)
{
	FILE *to = over_stdio() ? stderr : stdout;
	va_list arguments;

	va_start(arguments, format);
	vfprintf(to, format, arguments);
	va_end(arguments);
	fputc('\n', to);
	fflush(to);
}

void link_send(int link, const void *data, size_t length)
{
	if (link == STDIN_FILENO)
		link = STDOUT_FILENO;
	while (length) {
		ssize_t sent = write(link, data, length);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			die_errno("the link to the peer");
		data = (const char *)data + sent;
		length -= sent;
	}
}

bool link_recv(int link, void *data, size_t length)
{
	while (length) {
		ssize_t got = read(link, data, length);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		data = (char *)data + got;
		length -= got;
	}
	return true;
}

bool link_ready(int link)
{
	struct pollfd ready = {.fd = link, .events = POLLIN};

	return poll(&ready, 1, 0) == 1;
}

void link_barrier(int link)
{
	char byte = 'B';

	link_send(link, &byte, 1);
	if (!link_recv(link, &byte, 1) || byte != 'B')
		die("the peer went away");
}

/* ---- device and QPs ---- */

static int find_gid(struct ibv_context *context)
{
	static const uint8_t ipv4[12] = {[10] = 0xff, [11] = 0xff};
	struct ibv_gid_entry entries[256];
	ssize_t count = ibv_query_gid_table(context, entries, 256, 0);

	for (ssize_t i = 0; i < count; i++)
		if (entries[i].gid_type == IBV_GID_TYPE_ROCE_V2 && !memcmp(entries[i].gid.raw, ipv4, sizeof(ipv4)))
			return entries[i].gid_index;
	die("the device has no RoCE v2 GID of an IPv4 address");
}

void device_open(struct device *device)
{
	struct ibv_device **list = ibv_get_device_list(NULL), *found = NULL;

	if (!list)
		die_errno("no list of RDMA devices");
	for (struct ibv_device **each = list; *each && !found; each++)
		if (!common.device || !strcmp(ibv_get_device_name(*each), common.device))
			found = *each;
	if (!found)
		die("no RDMA device %s", common.device ? common.device : "at all");
	device->context = ibv_open_device(found);
	if (!device->context)
		die_errno("cannot open %s", ibv_get_device_name(found));
	ibv_free_device_list(list);

	if (ibv_query_device(device->context, &device->attr) || ibv_query_port(device->context, 1, &device->port))
		die_errno("cannot query the device");
	device->gid_index = common.gid_index < 0 ? find_gid(device->context) : (int)common.gid_index;
	if (ibv_query_gid(device->context, 1, device->gid_index, &device->gid))
		die_errno("cannot query GID %d", device->gid_index);
	device->pd = ibv_alloc_pd(device->context);
	if (!device->pd)
		die_errno("ibv_alloc_pd");
}

void device_close(struct device *device)
{
	int error = ibv_dealloc_pd(device->pd);

	if (error)
		die("ibv_dealloc_pd: %s", strerror(error));
	if (ibv_close_device(device->context))
		die_errno("ibv_close_device");
}

struct ibv_cq *cq_create(const struct device *device, unsigned entries, struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq = ibv_create_cq(device->context, entries, NULL, channel, 0);

	if (!cq)
		die_errno("ibv_create_cq of %u entries", entries);
	return cq;
}

struct ibv_qp *qp_create(const struct device *device, struct ibv_cq *cq, unsigned sends, unsigned receives)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = sends, .max_recv_wr = receives, .max_send_sge = 2, .max_recv_sge = 2},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC,
	};
	struct ibv_qp *qp = ibv_create_qp(device->pd, &init);
	int error;

	if (!qp)
		die_errno("ibv_create_qp");
	error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (error)
		die("QP to INIT: %s", strerror(error));
	return qp;
}

struct address qp_address(const struct device *device, const struct ibv_qp *qp)
{
	return (struct address){
		.qpn = qp->qp_num,
		.psn = mix(qp->qp_num ^ (uint64_t)getpid() << 32) & 0xffffff,
		.mtu = device->port.active_mtu,
		.gid = device->gid,
	};
}

void qp_connect(const struct device *device, struct ibv_qp *qp, uint32_t psn, const struct address *to)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = to->mtu < device->port.active_mtu ? to->mtu : device->port.active_mtu,
		.dest_qp_num = to->qpn,
		.rq_psn = to->psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.dgid = to->gid, .sgid_index = device->gid_index, .hop_limit = 64}},
	};
	int error = ibv_modify_qp(qp, &attr,
				  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);

	if (error)
		die("QP to RTR: %s", strerror(error));
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = psn;
	attr.timeout = common.timeout;
	attr.retry_cnt = common.retries;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 1;
	error = ibv_modify_qp(qp, &attr,
			      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				      IBV_QP_MAX_QP_RD_ATOMIC);
	if (error)
		die("QP to RTS: %s", strerror(error));
}

void qps_connect(const struct device *device, int link, struct ibv_qp *const *qps, size_t count, struct address *peers)
{
	for (size_t i = 0; i < count; i++) {
		struct address address = qp_address(device, qps[i]);

		link_send(link, &address, sizeof(address));
	}
	for (size_t i = 0; i < count; i++) {
		struct address peer;

		if (!link_recv(link, &peer, sizeof(peer)))
			die("the peer went away");
		qp_connect(device, qps[i], qp_address(device, qps[i]).psn, &peer);
		if (peers)
			peers[i] = peer;
	}
	link_barrier(link);
}

void qp_to_error(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	int error = ibv_modify_qp(qp, &attr, IBV_QP_STATE);

	if (error)
		die("QP to ERR: %s", strerror(error));
}

struct ibv_mr *mr_create(const struct device *device, void *area, size_t length, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(device->pd, area, length, access);

	if (!mr)
		die_errno("ibv_reg_mr of %zu bytes", length);
	return mr;
}

/* ---- waiting for completions ---- */

static int poll_cq(struct waiter *waiter, struct ibv_wc *wc, int max)
{
	int count = ibv_poll_cq(waiter->cq, max, wc);

	if (count < 0)
		die("ibv_poll_cq failed");
	return count;
}

/* Waits for an event. Completions that came earlier may be in the CQ without one. */
static void wait_event(struct waiter *waiter, double ms)
{
	struct pollfd ready = {.fd = waiter->channel->fd, .events = POLLIN};
	struct ibv_cq *cq;
	void *unused;

	if (poll(&ready, 1, ms < 1 ? 1 : (int)ms) != 1)
		return;
	if (ibv_get_cq_event(waiter->channel, &cq, &unused))
		die_errno("ibv_get_cq_event");
	ibv_ack_cq_events(cq, 1);
}

int wait_completions(struct waiter *waiter, struct ibv_wc *wc, int max, double ms)
{
	int error, count = poll_cq(waiter, wc, max);
	double deadline;

	if (count) {
		waiter->idle = 0;
		return count;
	}
	if (waiter->channel) {
		error = ibv_req_notify_cq(waiter->cq, 0);
		if (error)
			die("ibv_req_notify_cq: %s", strerror(error));
		/* Completions that came before the CQ was armed raise no event. */
		count = poll_cq(waiter, wc, max);
		if (count)
			return count;
		wait_event(waiter, ms);
		return poll_cq(waiter, wc, max);
	}
	deadline = seconds() + ms / 1e3;
	for (;;) {
		count = poll_cq(waiter, wc, max);
		if (count) {
			waiter->idle = 0;
			return count;
		}
		waiter->idle++;
		/* Let a peer on the same processor run. */
		if (waiter->idle > 1000)
			sleep_ms(waiter->idle > 3000 ? 1 : 0.05);
		if (waiter->idle % 64 == 0 && seconds() > deadline)
			return 0;
	}
}
