/* The memory that a program registers: which it may be, how peers address it, and what exchanged pages go through. */
#include "cases.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
#define PAGE ((size_t)4096)

static void write_into(struct end *a, struct end *b, unsigned char *memory, size_t length)
{
	struct ibv_mr *mr = ibv_reg_mr(b->pd, memory, length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct end to = *b;
	struct ibv_wc wc;

	CHECK(mr);
	to.memory = memory;
	to.mr = mr;
	fill(a->memory, length, 4);
	CHECK(!post_write(a, &to, a->qp, 1, 0, (uint32_t)length, IBV_SEND_SIGNALED, -1));
	poll_for(a->cq, 1, &wc);
	CHECK(wc.status == IBV_WC_SUCCESS && !memcmp(memory, a->memory, length));
	CHECK(!ibv_dereg_mr(mr));
}

static void memory(void)
{
	struct end a = open_end(paths[0]), b = open_end(paths[1]);
	static unsigned char data[5000];
	unsigned char stack[3000];
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned char *two, *heap = malloc(1);
	char name[] = "/tmp/libmrc-XXXXXX";
	int file = mkstemp(name);

	join(&a, &b);
	write_into(&a, &b, data, sizeof(data));
	write_into(&a, &b, stack, sizeof(stack));
	write_into(&a, &b, heap, 1);
	CHECK(file >= 0 && !unlink(name) && !ftruncate(file, (off_t)(2 * page)));
	two = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	CHECK(two != MAP_FAILED);
	write_into(&a, &b, two + 1, 2 * page - 1);
	/* Memory that is not there, or not to be written to, is refused when it is registered. */
	CHECK(!mprotect(two + page, page, PROT_READ));
	CHECK(!ibv_reg_mr(b.pd, two, 2 * page, IBV_ACCESS_LOCAL_WRITE) && errno == EFAULT);
	CHECK(!munmap(two + page, page));
	CHECK(!ibv_reg_mr(b.pd, two, page + 1, 0) && errno == EFAULT);
	CHECK(!ibv_reg_mr(b.pd, two, 0, 0) && errno == EINVAL);
	CHECK(!ibv_reg_mr(b.pd, two, page, IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL);
	CHECK(!munmap(two, page) && !close(file));
	free(heap);
	close_end(&a);
	close_end(&b);
}

/* A peer names bytes by their place from `iova` on; a region that is registered again keeps its key. */
static void addresses(void)
{
	struct end a = open_end(paths[0]), b = open_end(paths[1]);
	unsigned char other[64] = {0};
	struct ibv_mr *mr = ibv_reg_mr_iova(b.pd, b.memory, 4096, 0x1000, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	const uint64_t high = UINT64_MAX - 0xffff;
	struct ibv_mr *top = ibv_reg_mr_iova(b.pd, b.memory, 4096, high, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_sge element = {(uintptr_t)a.memory, 16, a.mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &element, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED}, *bad;
	struct ibv_wc wc;
	uint32_t old;

	CHECK(mr && top);
	join(&a, &b);
	fill(a.memory, 16, 5);
	wr.wr.rdma.remote_addr = high + 0x40;
	wr.wr.rdma.rkey = top->rkey;
	CHECK(!mrc_post_send(a.qp, &wr, &bad));
	poll_for(a.cq, 1, &wc);
	CHECK(wc.status == IBV_WC_SUCCESS && !memcmp(b.memory + 0x40, a.memory, 16));
	CHECK(!ibv_dereg_mr(top));
	wr.wr.rdma.remote_addr = 0x1020;
	wr.wr.rdma.rkey = mr->rkey;
	CHECK(!mrc_post_send(a.qp, &wr, &bad));
	poll_for(a.cq, 1, &wc);
	CHECK(wc.status == IBV_WC_SUCCESS && !memcmp(b.memory + 0x20, a.memory, 16));
	old = mr->rkey;
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, other, sizeof(other), 0) && mr->rkey == old);
	wr.wr.rdma.remote_addr = (uintptr_t)other;
	wr.wr.rdma.rkey = mr->rkey;
	CHECK(!mrc_post_send(a.qp, &wr, &bad));
	poll_for(a.cq, 1, &wc);
	CHECK(wc.status == IBV_WC_SUCCESS && !memcmp(other, a.memory, 16));
	/* The old place is gone, and ends the queue pair that names it. */
	wr.wr.rdma.remote_addr = 0x1020;
	CHECK(!mrc_post_send(a.qp, &wr, &bad));
	poll_for(a.cq, 1, &wc);
	CHECK(wc.status == IBV_WC_REM_ACCESS_ERR);
	CHECK(!ibv_dereg_mr(mr));
	close_end(&a);
	close_end(&b);
}

/* -- exchanged pages ---------------------------------------------------------------------------------------------- */

/* Return whether the agent has a page mapped, too, as the kernel lists it. */
static bool is_exchanged(const void *place)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long long start, end;
	char line[512];
	bool found = false;

	CHECK(maps);
	while (!found && fgets(line, sizeof(line), maps))
		found = sscanf(line, "%llx-%llx", &start, &end) == 2 && (uintptr_t)place >= start &&
			(uintptr_t)place < end && strstr(line, "rw-s") && strstr(line, "/memfd:mrc-verbs");
	fclose(maps);
	return found;
}

static unsigned char *pages(size_t bytes)
{
	unsigned char *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(made != MAP_FAILED);
	return made;
}

/* Write from one end into registered memory at the other, and check what is there then. */
static void write_to(struct end *a, struct end *b, struct ibv_mr *mr, size_t offset, size_t length, unsigned int seed)
{
	struct end to = *b;
	struct ibv_wc wc;

	to.memory = (unsigned char *)mr->addr + offset;
	to.mr = mr;
	fill(a->memory, length, seed);
	CHECK(!post_write(a, &to, a->qp, 1, 0, (uint32_t)length, IBV_SEND_SIGNALED, -1));
	poll_for(a->cq, 1, &wc);
	CHECK(wc.status == IBV_WC_SUCCESS && !memcmp(to.memory, a->memory, length));
}

/* Write from registered memory at one end into the usual memory at the other. */
static void write_from(struct end *a, struct end *b, struct ibv_mr *mr, size_t offset, size_t length)
{
	struct end from = *a;
	struct ibv_wc wc;

	from.memory = (unsigned char *)mr->addr + offset;
	from.mr = mr;
	CHECK(!post_write(&from, b, a->qp, 2, 0, (uint32_t)length, IBV_SEND_SIGNALED, -1));
	poll_for(a->cq, 1, &wc);
	CHECK(wc.status == IBV_WC_SUCCESS && !memcmp(b->memory, from.memory, length));
}

static void exchanges(void)
{
	struct end a = open_end(paths[0]), b = open_end(paths[1]);
	unsigned char *own = pages(64 * PAGE), *heap = malloc(64 * PAGE), *before = malloc(64 * PAGE);
	struct ibv_mr *mr, *inner, *across;

	CHECK(heap && before);
	join(&a, &b);
	fill(own, 64 * PAGE, 9);
	memcpy(before, own, 64 * PAGE);
	/* Whole pages change their place, and their bytes stay. Those at the edges, of which others have a part, do not. */
	mr = ibv_reg_mr(b.pd, own + 10, 64 * PAGE - 20, ALL);
	CHECK(mr && is_exchanged(own + PAGE) && is_exchanged(own + 63 * PAGE - 1));
	CHECK(!is_exchanged(own) && !is_exchanged(own + 63 * PAGE));
	CHECK(!memcmp(own, before, 64 * PAGE));
	write_to(&a, &b, mr, 0, SIZE, 11);
	write_to(&a, &b, mr, 64 * PAGE - 20 - SIZE, SIZE, 12);
	write_from(&b, &a, mr, 0, SIZE);
	write_from(&b, &a, mr, 64 * PAGE - 20 - SIZE, SIZE);
	/* Registrations share what was exchanged; one that also lies elsewhere works, too. */
	inner = ibv_reg_mr(b.pd, own + 4 * PAGE, 20 * PAGE, ALL);
	across = ibv_reg_mr(b.pd, own, 8 * PAGE, ALL);
	CHECK(inner && across);
	write_to(&a, &b, inner, 3, SIZE, 13);
	write_to(&a, &b, across, 0, 8 * PAGE, 14);
	memcpy(before, own, 64 * PAGE);
	CHECK(!ibv_dereg_mr(mr) && is_exchanged(own + PAGE));
	write_to(&a, &b, across, 7, 7 * PAGE, 15);
	write_from(&b, &a, inner, 100, SIZE);
	memcpy(before, own, 64 * PAGE);
	CHECK(!ibv_dereg_mr(inner) && !ibv_dereg_mr(across));
	/* With the last one the pages are private again, with what the device has written. */
	CHECK(!is_exchanged(own + PAGE) && !memcmp(own, before, 64 * PAGE));
	mr = ibv_reg_mr(b.pd, own, 64 * PAGE, ALL);
	CHECK(mr && is_exchanged(own) && !ibv_dereg_mr(mr));
	own = mremap(own, 64 * PAGE, 128 * PAGE, MREMAP_MAYMOVE);
	CHECK(own != MAP_FAILED && !memcmp(own, before, 64 * PAGE) && !own[128 * PAGE - 1]);
	/* Memory of malloc, which goes back to it. */
	mr = ibv_reg_mr(b.pd, heap, 64 * PAGE, ALL);
	CHECK(mr && is_exchanged((unsigned char *)(((uintptr_t)heap + PAGE) & -PAGE)));
	write_to(&a, &b, mr, 0, SIZE, 16);
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL | IBV_ACCESS_REMOTE_READ));
	write_to(&a, &b, mr, 5, SIZE, 17);
	CHECK(!ibv_dereg_mr(mr));
	fill(before, SIZE, 17);
	heap = realloc(heap, 640 * PAGE);
	CHECK(heap && !memcmp(heap + 5, before, SIZE));
	free(heap);
	free(before);
	close_end(&a);
	close_end(&b);
}

static void *sleep_on(void *pipe_end)
{
	char byte;

	CHECK(read(*(int *)pipe_end, &byte, 1) == 1);
	return NULL;
}

/* What is exchanged never, or no more. */
static void exchange_limits(void)
{
	struct end a = open_end(paths[0]), b = open_end(paths[1]);
	unsigned char *own = pages(32 * PAGE), *other = pages(32 * PAGE), stack[32 * 4096];
	int wake[2], file = memfd_create("other", 0);
	struct ibv_mr *mr, *late;
	pthread_t thread;

	join(&a, &b);
	mr = ibv_reg_mr(b.pd, own, 15 * PAGE, ALL);
	CHECK(mr && !is_exchanged(own) && !ibv_dereg_mr(mr)); /* too small */
	fill(stack, sizeof(stack), 1);
	mr = ibv_reg_mr(b.pd, stack, sizeof(stack), ALL);
	CHECK(mr && !is_exchanged(stack + sizeof(stack) / 2));
	write_to(&a, &b, mr, 0, SIZE, 2);
	CHECK(!ibv_dereg_mr(mr));
	CHECK(!ftruncate(file, 32 * PAGE) &&
	      mmap(other, 32 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == other);
	mr = ibv_reg_mr(b.pd, other, 32 * PAGE, ALL);
	CHECK(mr && !is_exchanged(other));
	write_to(&a, &b, mr, 0, SIZE, 3);
	CHECK(!ibv_dereg_mr(mr));
	/* Another thread could write to a page while it is moved. */
	mr = ibv_reg_mr(b.pd, own, 32 * PAGE, ALL);
	CHECK(mr && is_exchanged(own));
	CHECK(!pipe(wake) && !pthread_create(&thread, NULL, sleep_on, &wake[0]));
	CHECK(mmap(other, 32 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == other);
	late = ibv_reg_mr(b.pd, other, 32 * PAGE, ALL);
	CHECK(late && !is_exchanged(other));
	write_to(&a, &b, late, 0, SIZE, 4);
	write_to(&a, &b, mr, 0, SIZE, 5);
	CHECK(!ibv_dereg_mr(mr) && !memcmp(own, a.memory, SIZE));
	CHECK(write(wake[1], "x", 1) == 1 && !pthread_join(thread, NULL));
	CHECK(!ibv_dereg_mr(late));
	/* A region may be used after its pages are gone, as with a NIC; what takes their place is left alone. */
	mr = ibv_reg_mr(b.pd, other, 32 * PAGE, ALL);
	CHECK(mr && is_exchanged(other));
	CHECK(mmap(other, 32 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == other);
	late = ibv_reg_mr(b.pd, other, 32 * PAGE, ALL);
	CHECK(late && is_exchanged(other));
	write_to(&a, &b, late, 0, SIZE, 6);
	CHECK(!ibv_dereg_mr(mr) && is_exchanged(other) && !memcmp(other, a.memory, SIZE));
	CHECK(!munmap(other + PAGE, PAGE) && !ibv_dereg_mr(late) && !is_exchanged(other));
	CHECK(!memcmp(other, a.memory, PAGE) && !memcmp(other + 2 * PAGE, a.memory + 2 * PAGE, SIZE - 2 * PAGE));
	close_end(&a);
	close_end(&b);
}

static bool is_mapped(unsigned char *place)
{
	unsigned char resident;

	return !mincore(place, 1, &resident);
}

/* A child has the bytes of the moment of the fork, and neither end sees what the other writes then. It has no page that
 * its parent keeps from it. */
static void exchange_forks(void)
{
	struct end a = open_end(paths[0]), b = open_end(paths[1]);
	unsigned char *own = pages(64 * PAGE), *moved, *shadow = malloc(64 * PAGE);
	struct ibv_mr *mr;
	int status, wake[2];
	char byte;
	pid_t child;

	join(&a, &b);
	fill(own, 64 * PAGE, 1);
	mr = ibv_reg_mr(b.pd, own, 64 * PAGE, ALL);
	CHECK(mr && is_exchanged(own) && shadow && !pipe(wake));
	/* A program may move its pages, and protect some. */
	moved = mremap(own + 32 * PAGE, 16 * PAGE, 16 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, pages(16 * PAGE));
	CHECK(moved != MAP_FAILED && is_exchanged(moved));
	CHECK(!mprotect(own + 20 * PAGE, PAGE, PROT_READ));
	CHECK(!madvise(own + 56 * PAGE, 4 * PAGE, MADV_DONTFORK));
	memcpy(shadow, own, 32 * PAGE);
	memcpy(shadow + 32 * PAGE, moved, 16 * PAGE);
	child = fork();
	if (!child) {
		CHECK(read(wake[0], &byte, 1) == 1); /* until the parent has written */
		CHECK(!is_exchanged(own) && !is_exchanged(moved) && !is_exchanged(own + 60 * PAGE));
		CHECK(is_mapped(own + 55 * PAGE) && !is_mapped(own + 56 * PAGE) && is_mapped(own + 60 * PAGE));
		CHECK(!memcmp(own, shadow, 32 * PAGE) && !memcmp(moved, shadow + 32 * PAGE, 16 * PAGE));
		memset(own, 0, PAGE);
		memset(moved, 0, PAGE);
		_exit(0);
	}
	write_to(&a, &b, mr, 0, SIZE, 7);
	memset(moved, 5, PAGE);
	CHECK(write(wake[1], "x", 1) == 1);
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
	CHECK(!memcmp(own, a.memory, SIZE) && moved[0] == 5 && is_exchanged(own) && is_exchanged(moved));
	write_to(&a, &b, mr, 0, SIZE, 8);
	CHECK(!ibv_dereg_mr(mr) && !is_exchanged(own) && !is_exchanged(moved) && moved[0] == 5);
	free(shadow);
	close_end(&a);
	close_end(&b);
}

/* -- all of it in any order --------------------------------------------------------------------------------------- */

#define ARENA (96 * PAGE)
#define REGIONS 6

static unsigned int drawn(unsigned int below)
{
	static unsigned int state;

	if (!state)
		state = (unsigned int)atoi(getenv("SEED")) + 1;
	state = state * 1664525 + 1013904223;
	return (state >> 8) % below;
}

/* Do anything in any order: register memory that overlaps, write by the device and by the program, fork, replace mapped memory.
 * The program always finds the bytes that it would find without a device. */
static void anything(void)
{
	struct end a = open_end(paths[0]), b = open_end(paths[1]);
	unsigned char *arena = pages(ARENA), *shadow = calloc(1, ARENA);
	struct ibv_mr *regions[REGIONS] = {NULL};

	CHECK(shadow);
	join(&a, &b);
	for (unsigned int step = 0; step < 150; step++) {
		struct ibv_mr **at = &regions[drawn(REGIONS)], *mr = *at;
		size_t from = drawn(ARENA - 1), length = 1 + drawn((unsigned int)(ARENA - from));
		int status;
		pid_t child;

		switch (drawn(6)) {
		case 0:
		case 1:
			if (mr)
				CHECK(!ibv_dereg_mr(mr));
			*at = ibv_reg_mr(b.pd, arena + from, length, ALL);
			CHECK(*at);
			break;
		case 2:
			if (!mr)
				break;
			from = drawn((unsigned int)mr->length);
			length = 1 + drawn((unsigned int)(mr->length - from < SIZE ? mr->length - from : SIZE));
			write_to(&a, &b, mr, from, length, step);
			memcpy(shadow + ((unsigned char *)mr->addr - arena) + from, a.memory, length);
			break;
		case 3:
			fill(arena + from, length, step);
			fill(shadow + from, length, step);
			if (mr)
				write_from(&b, &a, mr, 0, mr->length < SIZE ? mr->length : SIZE);
			break;
		case 4:
			child = fork();
			if (!child) {
				CHECK(!memcmp(arena, shadow, ARENA));
				memset(arena, 0, ARENA);
				_exit(0);
			}
			CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
			break;
		default:
			/* Unregistered first, as a program would: what the device has is not what is mapped then. */
			if (drawn(4))
				break;
			for (int i = 0; i < REGIONS; i++) {
				if (regions[i])
					CHECK(!ibv_dereg_mr(regions[i]));
				regions[i] = NULL;
			}
			from &= -PAGE;
			CHECK(mmap(arena + from, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
				   0) == arena + from);
			memset(shadow + from, 0, PAGE);
		}
		CHECK(!memcmp(arena, shadow, ARENA));
	}
	free(shadow);
	exit(0); /* with whatever is registered */
}

static const struct test_case cases[] = {
	{"anything", anything},
	{"memory", memory},
	{"addresses", addresses},
	{"exchanges", exchanges},
	{"exchange_limits", exchange_limits},
	{"exchange_forks", exchange_forks},
};

int main(int count, char **arguments)
{
	return run_case(cases, sizeof(cases) / sizeof(*cases), count, arguments);
}
