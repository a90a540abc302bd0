/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * vr-mpi [-c] LARGEST: collective operations of all ranks, and without -c one-sided ones, with
 * messages of up to LARGEST numbers. Each number of each result is compared with the expected
 * one. The program is built with each of the MPI libraries.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

/* Returns the number that a rank sends to another at this place of the message. All differ. */
static int64_t number(int from, int to, int place, int round)
{
	return ((int64_t)from << 48) + ((int64_t)to << 40) + ((int64_t)round << 24) + place;
}

static void expect(const char *what, int place, int64_t found, int64_t expected)
{
	if (found == expected)
		return;
	fprintf(stderr, "rank %d: %s: number %d is %lld, not %lld\n", rank, what, place, (long long)found,
		(long long)expected);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static int64_t *numbers(int count)
{
	int64_t *memory = malloc((size_t)count * sizeof(*memory));

	if (!memory) {
		fprintf(stderr, "no memory\n");
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	return memory;
}

static void allreduce(int count, int round)
{
	int64_t *mine = numbers(count), *sum = numbers(count);

	for (int i = 0; i < count; i++)
		mine[i] = number(rank, 0, i, round);
	MPI_Allreduce(mine, sum, count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < count; i++) {
		int64_t expected = 0;

		for (int r = 0; r < ranks; r++)
			expected += number(r, 0, i, round);
		expect("the sum", i, sum[i], expected);
	}
	free(mine);
	free(sum);
}

static void all_to_all(int count, int round)
{
	int64_t *out = numbers(count * ranks), *in = numbers(count * ranks);

	for (int r = 0; r < ranks; r++)
		for (int i = 0; i < count; i++)
			out[r * count + i] = number(rank, r, i, round);
	memset(in, 0, (size_t)count * ranks * sizeof(*in));
	MPI_Alltoall(out, count, MPI_INT64_T, in, count, MPI_INT64_T, MPI_COMM_WORLD);
	for (int r = 0; r < ranks; r++)
		for (int i = 0; i < count; i++)
			expect("what came of all to all", i, in[r * count + i], number(r, rank, i, round));
	free(out);
	free(in);
}

/* Each rank puts to the next rank, gets from the previous one, and adds to a number of rank 0. */
static void one_sided(int count, int round)
{
	int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
	int64_t *window, *mine = numbers(count), *got = numbers(count);
	int64_t one = 1;
	MPI_Win win;

	/* Puts go to the first half, gets come from the second half. The number that all add
	 * to follows. */
	MPI_Win_allocate((MPI_Aint)(2 * count + 1) * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
	for (int i = 0; i < count; i++) {
		mine[i] = number(rank, next, i, round);
		window[i] = -1;
		window[count + i] = number(rank, rank, i, round);
	}
	window[2 * count] = 0;
	MPI_Win_fence(0, win);
	MPI_Put(mine, count, MPI_INT64_T, next, 0, count, MPI_INT64_T, win);
	MPI_Get(got, count, MPI_INT64_T, before, count, count, MPI_INT64_T, win);
	MPI_Accumulate(&one, 1, MPI_INT64_T, 0, 2 * (MPI_Aint)count, 1, MPI_INT64_T, MPI_SUM, win);
	MPI_Win_fence(0, win);
	for (int i = 0; i < count; i++) {
		expect("what was put", i, window[i], number(before, rank, i, round));
		expect("what was got", i, got[i], number(before, before, i, round));
	}
	if (rank == 0)
		expect("what all added to", 2 * count, window[2 * count], ranks);
	MPI_Win_free(&win);
	free(mine);
	free(got);
}

/* Returns how many hosts the ranks are on. */
static int count_hosts(void)
{
	char name[MPI_MAX_PROCESSOR_NAME] = "", *all = malloc((size_t)ranks * sizeof(name));
	int length, hosts = 0;

	if (!all)
		MPI_Abort(MPI_COMM_WORLD, 1);
	MPI_Get_processor_name(name, &length);
	MPI_Allgather(name, sizeof(name), MPI_CHAR, all, sizeof(name), MPI_CHAR, MPI_COMM_WORLD);
	for (int r = 0; r < ranks; r++) {
		int known = 0;

		for (int s = 0; s < r; s++)
			known |= strcmp(&all[r * sizeof(name)], &all[s * sizeof(name)]) == 0;
		hosts += !known;
	}
	free(all);
	return hosts;
}

int main(int argc, char **argv)
{
	int collective = argc > 1 && strcmp(argv[1], "-c") == 0;
	int largest = argc == 2 + collective ? atoi(argv[1 + collective]) : 0, round = 0, hosts;

	if (largest < 1) {
		fprintf(stderr, "Usage: vr-mpi [-c] LARGEST\n");
		return 2;
	}
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	hosts = count_hosts();
	for (int count = 1; count <= largest; count *= 8) {
		/* One less and one more, too: libraries often change their algorithm at powers
		 * of two. */
		for (int more = count > 1 ? -1 : 0; more <= 1; more++) {
			allreduce(count + more, round);
			all_to_all(count + more, round);
			if (!collective)
				one_sided(count + more, round);
			round++;
		}
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d ranks on %d hosts: all numbers are right in %d rounds\n", ranks, hosts, round);
	MPI_Finalize();
	return 0;
}
