/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The kernel's additions to the header of this name for programs, as far as reply.c and ring.c
 * need them. */
#include_next <linux/types.h>
#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;
typedef u64 dma_addr_t;

#define le32_to_cpu le32toh
#define le64_to_cpu le64toh
