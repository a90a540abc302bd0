/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What the kernel's header of this name has beside the one for programs, as far as reply.c needs it. */
#include_next <linux/types.h>
#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint32_t u32;
typedef uint64_t u64;

#define le32_to_cpu le32toh
#define le64_to_cpu le64toh
