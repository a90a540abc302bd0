/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * For vr-random: which uverbs methods of the device were called, and how often they succeeded.
 */
#ifndef METHODS_H
#define METHODS_H

#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdbool.h>
#include <stdint.h>

#define MOST_METHODS 96

/* Counters that children write. They begin at zero. */
struct method_counts {
	uint64_t done[MOST_METHODS], refused[MOST_METHODS];
};

/* Counts a call by ioctl(). A call of a method that is not in the table is not counted. */
void count_method(struct method_counts *counts, const struct ib_uverbs_ioctl_hdr *header, bool done);
/* Counts a command by write(). */
void count_command(struct method_counts *counts, uint32_t command, bool done);
/* Prints a line for each method: its name, how often it succeeded, and how often it was
 * refused. */
void print_methods(const struct method_counts *counts);

#endif
