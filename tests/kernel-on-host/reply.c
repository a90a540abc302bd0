/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Runs the kernel module's reply.c. It reads a reply of QUERY_DEVICE, without its header, from
 * standard input. The argument says how many bytes of it the device wrote. It prints the module's
 * interpretation. With two arguments, "status" and a number, it prints the errno for that status
 * of a reply.
 */
#include <linux/types.h>
#include <stdio.h>
#include <stdlib.h>

#include <string.h>

#include "reply.h"

int main(int argc, char **argv)
{
	struct vrdma_query_device_ex_resp resp;
	struct vrdma_caps caps = { 0 };
	unsigned char reply[4096];
	size_t i;

	if (argc == 3 && !strcmp(argv[1], "status")) {
		printf("%d", vrdma_status_to_errno(atoi(argv[2])));
		return 0;
	}
	memset(&resp, 0xee, sizeof(resp));
	if (argc != 2 || fread(reply, 1, sizeof(reply), stdin) != sizeof(reply))
		return 2;
	if (!vrdma_reply_read(&resp, sizeof(resp), sizeof(resp.base), reply, atoi(argv[1]))) {
		puts("too short");
		return 0;
	}
	vrdma_caps_read(&caps, &resp);
	printf("device_cap %#llx, max_qp %u, atomic_cap %u, max_srq %u, max_mcast %u %u %u",
	       (unsigned long long)caps.device_cap, caps.max_qp, caps.atomic_cap, caps.max_srq,
	       caps.max_mcast_grp, caps.max_mcast_qp_attach, caps.max_total_mcast_qp_attach);
	for (i = 0; i < sizeof(resp.reserved) && !resp.reserved[i]; i++)
		;
	puts(i < sizeof(resp.reserved) ? ", more" : "");
	return 0;
}
