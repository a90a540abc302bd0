/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "methods.h"
#include "vrdma_abi.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <stddef.h>
#include <stdio.h>

/* A command of write(), which the library calls by a method of the device. */
#define WRITE(command) {"write_" #command, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, IB_USER_VERBS_CMD_##command}
#define EXTENDED(command)                                                                         \
	{"write_ex_" #command, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE,                  \
	 IB_USER_VERBS_EX_CMD_##command | IB_USER_VERBS_CMD_FLAG_EXTENDED}
#define METHOD(object, method) {#method, UVERBS_OBJECT_##object, UVERBS_METHOD_##method, 0}
#define OWN(method) {"own_" #method, VRDMA_UVERBS_OBJECT_CHANNEL, VRDMA_UVERBS_METHOD_##method, 0}

/* Methods of Linux 6.12 that this driver supports. It has no flows, counters, work queues,
 * dma-bufs or advice. */
static const struct method {
	const char *name;
	uint16_t object, method;
	/* Command of INVOKE_WRITE. */
	uint32_t command;
} methods[] = {
	METHOD(DEVICE, INFO_HANDLES),
	METHOD(DEVICE, QUERY_PORT),
	METHOD(DEVICE, GET_CONTEXT),
	METHOD(DEVICE, QUERY_CONTEXT),
	METHOD(DEVICE, QUERY_GID_TABLE),
	METHOD(DEVICE, QUERY_GID_ENTRY),
	METHOD(PD, PD_DESTROY),
	METHOD(CQ, CQ_CREATE),
	METHOD(CQ, CQ_DESTROY),
	METHOD(QP, QP_CREATE),
	METHOD(QP, QP_DESTROY),
	METHOD(SRQ, SRQ_CREATE),
	METHOD(SRQ, SRQ_DESTROY),
	METHOD(AH, AH_DESTROY),
	METHOD(MR, DM_MR_REG),
	METHOD(MR, MR_DESTROY),
	METHOD(MR, QUERY_MR),
	METHOD(MW, MW_DESTROY),
	METHOD(XRCD, XRCD_DESTROY),
	METHOD(DM, DM_ALLOC),
	METHOD(DM, DM_FREE),
	METHOD(ASYNC_EVENT, ASYNC_EVENT_ALLOC),
	OWN(POST),
	OWN(KICK),
	OWN(QUERY_CONTEXT),
	OWN(QUERY_PD),
	OWN(QUERY_DM),
	OWN(QUERY_CLOCK),
	WRITE(GET_CONTEXT),
	WRITE(QUERY_DEVICE),
	WRITE(QUERY_PORT),
	WRITE(ALLOC_PD),
	WRITE(DEALLOC_PD),
	WRITE(CREATE_AH),
	WRITE(DESTROY_AH),
	WRITE(REG_MR),
	WRITE(REREG_MR),
	WRITE(DEREG_MR),
	WRITE(ALLOC_MW),
	WRITE(DEALLOC_MW),
	WRITE(CREATE_COMP_CHANNEL),
	WRITE(CREATE_CQ),
	WRITE(RESIZE_CQ),
	WRITE(DESTROY_CQ),
	WRITE(CREATE_QP),
	WRITE(QUERY_QP),
	WRITE(MODIFY_QP),
	WRITE(DESTROY_QP),
	WRITE(ATTACH_MCAST),
	WRITE(DETACH_MCAST),
	WRITE(CREATE_SRQ),
	WRITE(MODIFY_SRQ),
	WRITE(QUERY_SRQ),
	WRITE(DESTROY_SRQ),
	WRITE(OPEN_XRCD),
	WRITE(CLOSE_XRCD),
	WRITE(CREATE_XSRQ),
	WRITE(OPEN_QP),
	EXTENDED(QUERY_DEVICE),
	EXTENDED(CREATE_CQ),
	EXTENDED(CREATE_QP),
	EXTENDED(MODIFY_QP),
	EXTENDED(MODIFY_CQ),
};

#define METHODS (sizeof(methods) / sizeof(*methods))
_Static_assert(METHODS <= MOST_METHODS, "there is no room to count all methods");

static void count_one(struct method_counts *counts, uint16_t object, uint16_t method, uint32_t command, bool done)
{
	for (size_t i = 0; i < METHODS; i++)
		if (methods[i].object == object && methods[i].method == method && methods[i].command == command)
			__atomic_fetch_add(done ? &counts->done[i] : &counts->refused[i], 1, __ATOMIC_RELAXED);
}

void count_method(struct method_counts *counts, const struct ib_uverbs_ioctl_hdr *header, bool done)
{
	uint32_t command = 0;

	if (header->object_id == UVERBS_OBJECT_DEVICE && header->method_id == UVERBS_METHOD_INVOKE_WRITE)
		for (unsigned i = 0; i < header->num_attrs; i++)
			if (header->attrs[i].attr_id == UVERBS_ATTR_WRITE_CMD)
				command = header->attrs[i].data;
	count_one(counts, header->object_id, header->method_id, command, done);
}

void count_command(struct method_counts *counts, uint32_t command, bool done)
{
	count_one(counts, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, command, done);
}

void print_methods(const struct method_counts *counts)
{
	for (size_t i = 0; i < METHODS; i++)
		printf("method %s %lu %lu\n", methods[i].name, counts->done[i], counts->refused[i]);
}
