/*
 * What it costs to read and write another process's memory, in nanoseconds for each call: by /proc/PID/mem, by
 * process_vm_readv and process_vm_writev, and by memory that both have mapped. docs/explanation/libmrc.md has results.
 *
 * cc -O2 -std=c11 -D_GNU_SOURCE benchmarks/process_memory.c -o /tmp/process_memory && /tmp/process_memory
 */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SIZE (1 << 20)
#define ROUNDS 7

static unsigned char *theirs, own[SIZE];
static unsigned char *shared;
static int memory;
static pid_t child;

static void by_pread(size_t offset, size_t size)
{
	if (pread(memory, own, size, (off_t)(uintptr_t)(theirs + offset)) != (ssize_t)size)
		abort();
}

static void by_pwrite(size_t offset, size_t size)
{
	if (pwrite(memory, own, size, (off_t)(uintptr_t)(theirs + offset)) != (ssize_t)size)
		abort();
}

static void by_readv(size_t offset, size_t size)
{
	struct iovec local = {own, size}, remote = {theirs + offset, size};

	if (process_vm_readv(child, &local, 1, &remote, 1, 0) != (ssize_t)size)
		abort();
}

static void by_writev(size_t offset, size_t size)
{
	struct iovec local = {own, size}, remote = {theirs + offset, size};

	if (process_vm_writev(child, &local, 1, &remote, 1, 0) != (ssize_t)size)
		abort();
}

static void by_copy(size_t offset, size_t size)
{
	memcpy(shared + offset, own, size);
	__asm__ volatile("" ::: "memory");
}

static double measure(void (*call)(size_t, size_t), size_t size)
{
	size_t count = size < 4096 ? 20000 : 80000000 / size / 4 + 100;
	double best = 1e18;

	for (int round = 0; round < ROUNDS; round++) {
		struct timespec begin, end;
		double taken;

		clock_gettime(CLOCK_MONOTONIC, &begin);
		for (size_t i = 0; i < count; i++)
			call(i * size % (SIZE - size + 1) & ~(size_t)63, size);
		clock_gettime(CLOCK_MONOTONIC, &end);
		taken = ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) / (double)count;
		best = taken < best ? taken : best;
	}
	return best;
}

int main(void)
{
	static const struct {
		const char *name;
		void (*call)(size_t, size_t);
	} ways[] = {{"pread", by_pread},
		    {"process_vm_readv", by_readv},
		    {"pwrite", by_pwrite},
		    {"process_vm_writev", by_writev},
		    {"memcpy", by_copy}};
	static const size_t sizes[] = {64, 1024, 4096, 65536};
	char path[64];

	theirs = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	shared = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	child = fork();
	if (!child) {
		memset(theirs, 1, SIZE);
		memset(shared, 1, SIZE);
		pause();
		_exit(0);
	}
	usleep(200000);
	snprintf(path, sizeof(path), "/proc/%d/mem", (int)child);
	memory = open(path, O_RDWR);
	memset(own, 2, sizeof(own));
	printf("%-18s", "ns");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		printf("%9zu", sizes[i]);
	printf("\n");
	for (size_t way = 0; way < sizeof(ways) / sizeof(*ways); way++) {
		printf("%-18s", ways[way].name);
		for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
			printf("%9.0f", measure(ways[way].call, sizes[i]));
		printf("\n");
		fflush(stdout);
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return 0;
}
