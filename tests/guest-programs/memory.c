/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "common.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- memory with canaries ---- */

/* Distance from the first page's end to the beginning of the area. The area therefore shares
 * its first and last page with canaries. */
#define SHIFT 192

static uint8_t canary(size_t index)
{
	return (uint8_t)(index * 37 + 11);
}

void region_create(struct region *region, size_t length, bool shared)
{
	const size_t page = sysconf(_SC_PAGESIZE);
	const int flags = MAP_ANONYMOUS | (shared ? MAP_SHARED : MAP_PRIVATE);

	region->length = length;
	region->map_length = (page + SHIFT + length + 1 + page - 1) / page * page + page;
	region->map = mmap(NULL, region->map_length, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (region->map == MAP_FAILED)
		die_errno("no memory for %zu bytes", length);
	region->area = region->map + page + SHIFT;
	for (size_t i = 0; i < region->map_length; i++) {
		if (region->map + i == region->area)
			i += length;
		region->map[i] = canary(i);
	}
	memset(region->area, POISON, length);
}

void region_check(const struct region *region, const char *name)
{
	const size_t start = region->area - region->map;

	for (size_t i = 0; i < region->map_length; i++) {
		if (i == start)
			i += region->length;
		if (region->map[i] != canary(i))
			die("%s: the canary at %+ld from the area's start (length %zu) is %#x instead of %#x", name,
			    (long)(i - start), region->length, region->map[i], canary(i));
	}
}

/* ---- patterns ---- */

uint64_t mix(uint64_t value)
{
	value = (value ^ value >> 31) * 0x7fb5d329728ea185;
	value = (value ^ value >> 27) * 0x81dadef4bc2dd44d;
	return value ^ value >> 33;
}

static uint64_t pattern_word(uint64_t seed, size_t index)
{
	uint64_t word = (seed + index) * 0x9e3779b97f4a7c15;

	return word ^ word >> 29;
}

void pattern_fill(uint8_t *to, size_t length, uint64_t seed)
{
	uint64_t word;
	size_t i;

	for (i = 0; i + 8 <= length; i += 8) {
		word = pattern_word(seed, i / 8);
		memcpy(to + i, &word, 8);
	}
	word = pattern_word(seed, i / 8);
	memcpy(to + i, &word, length - i);
}

long pattern_check(const uint8_t *bytes, size_t length, uint64_t seed)
{
	uint64_t expected, word;
	size_t i;

	for (i = 0; i < length; i += 8) {
		const size_t part = length - i < 8 ? length - i : 8;

		expected = pattern_word(seed, i / 8);
		word = expected;
		memcpy(&word, bytes + i, part);
		if (word != expected)
			return i + __builtin_ctzll(word ^ expected) / 8;
	}
	return -1;
}

long poison_check(const uint8_t *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (bytes[i] != POISON)
			return i;
	return -1;
}

/* ---- random numbers ---- */

struct rng rng_create(long seed)
{
	struct rng rng = {.state = seed};

	if (!seed)
		rng.state = mix((uint64_t)(seconds() * 1e6) ^ (uint64_t)getpid() << 48) >> 8;
	printf("seed %lu\n", rng.state);
	fflush(stdout);
	return rng;
}

uint64_t rng_next(struct rng *rng)
{
	rng->state += 0x9e3779b97f4a7c15;
	return mix(rng->state);
}

uint64_t rng_below(struct rng *rng, uint64_t limit)
{
	return limit ? rng_next(rng) % limit : 0;
}
