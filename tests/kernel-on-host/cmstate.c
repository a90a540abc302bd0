/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Runs the kernel module's cmstate.c and prints its whole table. There is a line for each state
 * and happening: "state what next tell id limited". Then comes a line "event kind status what"
 * for each kind of event with some statuses, and a line "status number errno" for each status.
 */
#include <linux/types.h>
#include <stdio.h>

#include "cmstate.h"

int main(void)
{
	static const u32 odd[] = { 100, 0x80000000, 0xffffffff };
	u32 state, what, kind, status;
	size_t i;

	for (state = VRDMA_CM_CONNECTS; state <= VRDMA_CM_OVER; state++) {
		for (what = VRDMA_CM_IGNORED; what <= VRDMA_CM_FAILED; what++) {
			struct vrdma_cm_step step = vrdma_cm_step(state, what);

			printf("step %u %u %u %u %u %u\n", state, what, step.next, step.tell,
			       vrdma_cm_has_id(step.next), vrdma_cm_is_limited(step.next));
		}
	}
	for (kind = 0; kind < 10; kind++)
		for (status = 0; status < 10; status++)
			printf("event %u %u %u\n", kind, status, vrdma_cm_what(kind, status));
	for (i = 0; i < 3; i++)
		printf("event %u 0 %u\n", odd[i], vrdma_cm_what(odd[i], 0));
	for (status = 0; status < 10; status++)
		printf("status %u %d\n", status, vrdma_cm_errno(status));
	for (i = 0; i < 3; i++)
		printf("status %u %d\n", odd[i], vrdma_cm_errno(odd[i]));
	return 0;
}
