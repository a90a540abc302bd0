/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * For vr-random: which methods of uverbs that our device has were called, and how often they
 * succeeded.
 */
#ifndef METHODS_H
#define METHODS_H

#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdbool.h>
#include <stdint.h>

#define MOST_METHODS 96

/* Written by children; zero at first. */
struct method_counts {
	uint64_t done[MOST_METHODS], refused[MOST_METHODS];
};

/* Counts a call by ioctl(): nothing, if it is of no method of the table. */
void count_method(struct method_counts *counts, const struct ib_uverbs_ioctl_hdr *header, bool done);
/* Counts a command by write(). */
void count_command(struct method_counts *counts, uint32_t command, bool done);
/* A line for each method: its name, how often it succeeded, how often it was refused. */
void print_methods(const struct method_counts *counts);

#endif
