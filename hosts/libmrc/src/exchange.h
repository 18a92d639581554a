/*
 * Registered pages that the agent has mapped, too: their bytes are moved into a memory file of the agent, and that file
 * is mapped over them. The agent then copies to and from them without a system call for each packet.
 */
#ifndef LIBMRC_EXCHANGE_H
#define LIBMRC_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>

/* Addresses from `first` up to, but not including, `end`. */
struct span {
	uint64_t first;
	uint64_t end;
};

struct exchanged;

/* Check that memory is mapped, and can be written to if it is to be: 0, or EFAULT. */
int memory_check(uint64_t address, uint64_t length, bool write);

/* Return the pages of some memory that may be exchanged; an empty span where there are none: too few, of a file or of
 * a stack, or in a process with several threads, one of which could write to a page while it is moved. */
struct span exchange_offer(uint64_t address, uint64_t length);

/* Return what was exchanged before and lies in some memory, and count a user; NULL: nothing that is still in its place.
 * `owner`: of which connection. */
struct exchanged *exchange_find(const void *owner, uint64_t address, uint64_t length);

/* Move pages into a file of the agent, which gave it a number, and map it over them; NULL: not possible. The file is
 * closed. */
struct exchanged *exchange_pages(const void *owner, struct span pages, uint32_t number, int file);

uint32_t exchange_number(const struct exchanged *exchanged);

/* Count a user less. With the last one the pages become private memory again, where the process has one thread; else
 * the memory file stays in their place, which the agent has forgotten by then. */
void exchange_leave(struct exchanged *exchanged);

/* Do so for all of a connection that ends. */
void exchange_leave_all(const void *owner);

/* Around forks: the child gets private copies of all exchanged pages, as of other memory. */
void exchange_before_fork(void);
void exchange_after_fork(bool child);

#endif
