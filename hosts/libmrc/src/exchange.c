#include "exchange.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Smaller pieces are not worth the copy, nor a mapping and a file descriptor of the agent. */
#define LEAST_BYTES (64 << 10)

/* A mapping; `device` and `inode` are 0 where no file is behind it. `anonymous`: private memory of no file, and not the
 * first thread's stack. */
struct mapping {
	uint64_t start;
	uint64_t end;
	uint64_t offset;
	uint64_t inode;
	unsigned int major;
	unsigned int minor;
	bool readable;
	bool writable;
	bool executable;
	bool shared;
	bool anonymous;
};

struct exchanged {
	struct exchanged *next;
	const void *owner;
	struct span pages;
	uint32_t number;
	unsigned int users;
	uint64_t inode;
	unsigned int major;
	unsigned int minor;
};

/* A private copy of a mapping, for the child of a fork. */
struct copy {
	struct copy *next;
	struct mapping of;
	void *bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct exchanged *all;
static struct copy *copies;

/* -- mappings of this process --------------------------------------------------------------------------------------- */

/* Open the list of mappings, whose entries come in the order of addresses; NULL: there is no /proc. `fclose` ends it. */
static FILE *maps_open(void)
{
	return fopen("/proc/self/maps", "re");
}

static bool maps_next(FILE *maps, struct mapping *mapping)
{
	char line[512];

	while (fgets(line, sizeof(line), maps)) {
		unsigned long long start, end, offset, inode;
		char rights[5];
		int name = 0;
		char *newline = strchr(line, '\n');

		/* A file's name may be longer than the line; its rest begins with no address. */
		while (!newline) {
			char rest[512];

			if (!fgets(rest, sizeof(rest), maps))
				break;
			newline = strchr(rest, '\n');
		}
		if (sscanf(line, "%llx-%llx %4s %llx %x:%x %llu %n", &start, &end, rights, &offset, &mapping->major,
			   &mapping->minor, &inode, &name) != 7)
			continue;
		*mapping = (struct mapping){
			.start = start,
			.end = end,
			.offset = offset,
			.inode = inode,
			.major = mapping->major,
			.minor = mapping->minor,
			.readable = rights[0] == 'r',
			.writable = rights[1] == 'w',
			.executable = rights[2] == 'x',
			.shared = rights[3] == 's',
		};
		mapping->anonymous = !inode && !mapping->shared && name > 0 &&
				     (!line[name] || !strncmp(line + name, "[heap]", 6) || !strncmp(line + name, "[anon:", 6));
		return true;
	}
	return false;
}

/* What must hold of each mapping of some memory. */
typedef bool mapping_check(const struct mapping *mapping, const void *of);

/* Return whether memory from `first` up to `end` is mapped without a gap, each mapping as it must be. */
static bool is_mapped(FILE *maps, uint64_t first, uint64_t end, mapping_check *fits, const void *of)
{
	struct mapping mapping;

	while (first < end && maps_next(maps, &mapping)) {
		if (mapping.end <= first)
			continue;
		if (mapping.start > first || !fits(&mapping, of))
			break;
		first = mapping.end;
	}
	fclose(maps);
	return first >= end;
}

static bool is_accessible(const struct mapping *mapping, const void *write)
{
	return mapping->readable && (!*(const bool *)write || mapping->writable);
}

/*
 * Check that memory is mapped, and can be written to if it is to be. The agent's writes by /proc/PID/mem pass over
 * the protection of pages, so that this is the only check, as pinning is on a NIC.
 */
int memory_check(uint64_t address, uint64_t length, bool write)
{
	FILE *maps = maps_open();

	/* Without /proc the agent has no way to the memory either, and says so. */
	return !maps || is_mapped(maps, address, address + length, is_accessible, &write) ? 0 : EFAULT;
}

/* -- exchanged pages ---------------------------------------------------------------------------------------------- */

static bool is_single_threaded(void)
{
	struct stat tasks;

	/* A folder for each thread, beside two links. */
	return !stat("/proc/self/task", &tasks) && tasks.st_nlink == 3;
}

static bool is_switched_off(void)
{
	const char *wanted = getenv("MRCLAB_EXCHANGE");

	return wanted && !strcmp(wanted, "0");
}

static bool is_of(const struct mapping *mapping, const struct exchanged *exchanged)
{
	return mapping->shared && mapping->inode == exchanged->inode && mapping->major == exchanged->major &&
	       mapping->minor == exchanged->minor;
}

static struct exchanged *file_of(const struct mapping *mapping)
{
	struct exchanged *each = all;

	while (each && !is_of(mapping, each))
		each = each->next;
	return each;
}

/* Copy whole words, without what sanitizers would say of bytes that a program has not allocated. */
__attribute__((no_sanitize("address", "thread", "undefined"))) static void copy_words(volatile uint64_t *to,
										      const uint64_t *from, size_t bytes)
{
	for (size_t i = 0; i < bytes / sizeof(*to); i++)
		to[i] = from[i];
}

static void block_signals(sigset_t *before)
{
	sigset_t every;

	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, before);
}

/* Put memory into the place of other memory, at once. */
static bool move_over(void *memory, uint64_t place, size_t bytes)
{
	return mremap(memory, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)(uintptr_t)place) != MAP_FAILED;
}

static bool is_plain(const struct mapping *mapping, const void *of)
{
	(void)of;
	return mapping->anonymous && mapping->readable && mapping->writable && !mapping->executable;
}

struct span exchange_offer(uint64_t address, uint64_t length)
{
	const struct span none = {0, 0};
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct span pages = {(address + page - 1) & -page, (address + length) & -page};
	uint64_t frame = (uintptr_t)&page;
	FILE *maps;

	if (pages.end < pages.first + LEAST_BYTES || (frame >= pages.first && frame < pages.end) || is_switched_off() ||
	    !is_single_threaded())
		return none;
	maps = maps_open();
	return maps && is_mapped(maps, pages.first, pages.end, is_plain, NULL) ? pages : none;
}

/* Return whether a mapping of the file has its place: address and offset differ by where the pages begin. */
static bool is_in_its_place(const struct mapping *mapping, const void *of)
{
	const struct exchanged *exchanged = of;

	return is_of(mapping, exchanged) && mapping->start - mapping->offset == exchanged->pages.first;
}

/* Return whether a mapping of the file is wherever some memory meets the pages. */
static bool is_in_place(const struct exchanged *exchanged, uint64_t address, uint64_t length)
{
	uint64_t first = address > exchanged->pages.first ? address : exchanged->pages.first;
	uint64_t end = address + length < exchanged->pages.end ? address + length : exchanged->pages.end;
	FILE *maps = maps_open();

	return maps && is_mapped(maps, first, end, is_in_its_place, exchanged);
}

struct exchanged *exchange_find(const void *owner, uint64_t address, uint64_t length)
{
	struct exchanged *each;

	pthread_mutex_lock(&lock);
	for (each = all; each; each = each->next) {
		if (each->owner == owner && each->users && address < each->pages.end && address + length > each->pages.first &&
		    is_in_place(each, address, length)) {
			each->users++;
			break;
		}
	}
	pthread_mutex_unlock(&lock);
	return each;
}

struct exchanged *exchange_pages(const void *owner, struct span pages, uint32_t number, int file)
{
	struct exchanged *made = malloc(sizeof(*made));
	size_t bytes = pages.end - pages.first;
	void *memory = MAP_FAILED;
	bool moved = false;
	struct stat described;
	sigset_t signals;

	if (made && !fstat(file, &described))
		memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
	close(file);
	if (memory == MAP_FAILED) {
		free(made);
		return NULL;
	}
	*made = (struct exchanged){
		.owner = owner,
		.pages = pages,
		.number = number,
		.users = 1,
		.inode = described.st_ino,
		.major = major(described.st_dev),
		.minor = minor(described.st_dev),
	};
	pthread_mutex_lock(&lock);
	made->next = all;
	all = made;
	/* A handler of a signal could write to a page that has been copied already, and start a thread that does. */
	block_signals(&signals);
	if (is_single_threaded()) {
		copy_words(memory, (const uint64_t *)(uintptr_t)pages.first, bytes);
		moved = move_over(memory, pages.first, bytes);
	}
	pthread_sigmask(SIG_SETMASK, &signals, NULL);
	if (!moved) {
		all = made->next;
		munmap(memory, bytes);
		free(made);
		made = NULL;
	}
	pthread_mutex_unlock(&lock);
	return made;
}

uint32_t exchange_number(const struct exchanged *exchanged)
{
	return exchanged->number;
}

static int protection(const struct mapping *mapping)
{
	return (mapping->readable ? PROT_READ : 0) | (mapping->writable ? PROT_WRITE : 0) |
	       (mapping->executable ? PROT_EXEC : 0);
}

/* Return a private copy of the bytes of a mapping, NULL where there is none. */
static void *private_copy(const struct mapping *mapping)
{
	size_t bytes = mapping->end - mapping->start;
	void *memory;

	if (!mapping->readable)
		return NULL;
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (memory == MAP_FAILED)
		return NULL;
	copy_words(memory, (const uint64_t *)(uintptr_t)mapping->start, bytes);
	return memory;
}

/* Put a private copy into the place of what it was made of. */
static bool put_back(void *memory, const struct mapping *mapping)
{
	size_t bytes = mapping->end - mapping->start;

	if (!mapping->writable)
		mprotect(memory, bytes, protection(mapping));
	return move_over(memory, mapping->start, bytes);
}

/* Copy every mapping of exchanged pages, wherever the program has moved it, or those of one only. */
static void copy_mappings(const struct exchanged *only)
{
	FILE *maps = maps_open();
	struct copy *copy;

	while (maps && (copy = malloc(sizeof(*copy)))) {
		const struct exchanged *file = NULL;

		while (!file && maps_next(maps, &copy->of)) {
			file = file_of(&copy->of);
			if (only && file != only)
				file = NULL;
		}
		copy->bytes = file ? private_copy(&copy->of) : NULL;
		if (!copy->bytes) {
			free(copy);
			if (!file)
				break;
			continue;
		}
		copy->next = copies;
		copies = copy;
	}
	if (maps)
		fclose(maps);
}

/* Return whether the child of a fork has got a mapping. It has none of what its parent has excluded (MADV_DONTFORK). */
static bool is_inherited(const struct mapping *mapping)
{
	unsigned char resident;

	return !mincore((void *)(uintptr_t)mapping->start, 1, &resident);
}

/* Use the copies or give them up. */
static void end_copies(bool use)
{
	while (copies) {
		struct copy *copy = copies;

		if (!use || !is_inherited(&copy->of) || !put_back(copy->bytes, &copy->of))
			munmap(copy->bytes, copy->of.end - copy->of.start);
		copies = copy->next;
		free(copy);
	}
}

/* Take pages without a registration out of the list, and make them private memory again if that loses no write. */
static void give_back(struct exchanged *exchanged)
{
	struct exchanged **at = &all;
	sigset_t signals;
	bool done;

	block_signals(&signals);
	done = is_single_threaded();
	if (done) {
		copy_mappings(exchanged);
		end_copies(true);
	}
	pthread_sigmask(SIG_SETMASK, &signals, NULL);
	/* What stays in its place must be known when the process forks. */
	if (!done)
		return;
	while (*at != exchanged)
		at = &(*at)->next;
	*at = exchanged->next;
	free(exchanged);
}

void exchange_leave(struct exchanged *exchanged)
{
	if (!exchanged)
		return;
	pthread_mutex_lock(&lock);
	if (!--exchanged->users)
		give_back(exchanged);
	pthread_mutex_unlock(&lock);
}

void exchange_leave_all(const void *owner)
{
	struct exchanged *each, *next;

	pthread_mutex_lock(&lock);
	for (each = all; each; each = next) {
		next = each->next;
		if (each->owner != owner || !each->users)
			continue;
		each->users = 0;
		give_back(each);
	}
	pthread_mutex_unlock(&lock);
}

void exchange_before_fork(void)
{
	pthread_mutex_lock(&lock);
	if (all)
		copy_mappings(NULL);
}

void exchange_after_fork(bool child)
{
	end_copies(child);
	if (child) {
		/* What the parent's objects refer to stays allocated; they end with ENODEV. */
		all = NULL;
		pthread_mutex_init(&lock, NULL);
	} else {
		pthread_mutex_unlock(&lock);
	}
}
